"""How are all apps of a process connected to the test database, and how is it reset for each test?

Two threads live as long as the run, each with an event loop and connections of its own: one for the calls of apps and
tests, one for handlers. They cannot share a loop, because an async handler may enqueue with a sync call.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pulse.engine.engine import Engine
from pulse.links.direct import DirectLink
from pulse.links.link_thread import LinkThread
from pulse.model.explain.facts import Explanation, Reason
from pulse.sdk.app import Pulse
from pulse.store.connections.pool import Database
from pulse.testing import database as test_database
from pulse.testing.drain import Drain

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from datetime import timedelta
    from uuid import UUID

    import pytest

    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection
    from pulse.testing.summary import Summary

T = TypeVar("T")


class DatabaseSession:
    """The database of one test process, and the threads that use it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._link_thread = LinkThread(self._open_link)
        self._drain_thread = LinkThread(self._open_database)
        self._used: dict[Pulse, None] = {}  # apps used by the current test
        self._is_shifted = False

    def close(self) -> None:
        self._drain_thread.close()
        self._link_thread.close()

    @asynccontextmanager
    async def _open_link(self) -> AsyncIterator[SessionLink]:
        async with self._open_database() as database:
            engine = Engine(database, buckets=self.settings.buckets)
            link = SessionLink(engine, database)
            link.start_notifying()
            yield link
            await engine.stop()

    @asynccontextmanager
    async def _open_database(self) -> AsyncIterator[Database]:
        async with await Database.connect(self.settings) as database:
            yield database

    # --- for each test

    def prepare(self, patch: pytest.MonkeyPatch) -> None:
        """Empty the tables, reset the clock, and connect every app to this database until the patches are undone."""
        self._used.clear()
        if self._is_shifted:
            self.shift_time(None)
        self._do(lambda conn: test_database.empty(conn, schema=self.settings.schema))
        # Patched on the class as properties, which take precedence over the values that an app has cached already and
        # also apply to apps that the test creates.
        read = Pulse.__dict__["settings"].func
        patch.setattr(Pulse, "settings", property(lambda app: self._redirect(app, read), _keep_settings))
        patch.setattr(Pulse, "link_thread", property(self._link_thread_of))
        # For other processes that a test starts.
        patch.setenv("PULSE_DATABASE_URL", str(self.settings.database_url))
        patch.setenv("PULSE_SCHEMA", self.settings.schema)

    def _redirect(self, app: Pulse, read: Callable[[Pulse], Settings]) -> Settings:
        self._used[app] = None
        here, settings = self.settings, app.__dict__.get("settings") or read(app)
        return replace(settings, database_url=here.database_url, schema=here.schema, listen_url=None, pgbouncer=False)

    def _link_thread_of(self, app: Pulse) -> LinkThread[SessionLink]:
        self._used[app] = None
        return self._link_thread

    def shift_time(self, by: timedelta | None) -> None:
        self._is_shifted = by is not None
        self._do(lambda conn: test_database.shift_time(conn, schema=self.settings.schema, by=by))

    # --- reading and running

    def ask(self, question: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        return self._link_thread.call(lambda link: question(link.engine))

    def _do(self, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._link_thread.call(lambda link: link.database.run(work))

    def drain(self) -> Summary:
        return self._drain_thread.call(lambda database: Drain(database, self._apps()).run())

    async def adrain(self) -> Summary:
        async with self._open_database() as database:
            return await Drain(database, self._apps()).run()

    def _apps(self) -> list[Pulse]:
        """Return all apps, those that the test has used first: if two apps have a task, the test means its own."""
        return list(self._used | dict.fromkeys(Pulse._apps))


class SessionLink(DirectLink):
    """The link of all apps, which also gives tests the engine and the database."""

    def __init__(self, engine: Engine, database: Database) -> None:
        super().__init__(engine)
        self.engine = engine
        self.database = database

    async def explain(self, job_id: UUID) -> Explanation:
        """Explain the job, but advise to drain instead of to start a worker."""
        found = await super().explain(job_id)
        if found.reason is not Reason.NO_WORKER:
            return found
        text = f"Nothing runs by itself under the `pulse` fixture: call pulse.drain() to run topic {found.topic!r}."
        return msgspec.structs.replace(found, text=text)


def _keep_settings(app: Pulse, settings: Settings) -> None:
    app.__dict__["settings"] = settings
