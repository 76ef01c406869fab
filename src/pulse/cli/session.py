"""What does every command share: its settings, its way to a database, its loop, its answer when refused?"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse.cli.database.commands_lock import shared_server
from pulse.cli.database.keeper import keeping
from pulse.cli.exit_codes import exit_code_of
from pulse.cli.output import say, show_json
from pulse.event_loop import run
from pulse.model.errors import DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from pulse.engine.engine import Engine
    from pulse.model.errors import PulseError
    from pulse.sdk.app import Pulse
    from pulse.settings import Settings

T = TypeVar("T")

NO_DATABASE = (
    "no database: set PULSE_DATABASE_URL to one of yours, or run `pulse db start` for one of Pulse's own in this "
    "folder (it needs a Postgres on this machine, or `pip install 'pulse-postgres[embedded]'`)"
)


@dataclass
class Session:
    """What the command line said, for all commands alike."""

    given: dict[str, Any] = field(default_factory=dict)  # settings, by flag or environment
    flags: dict[str, str] = field(default_factory=dict)  # those that came as flags, to repeat them in hints
    as_json: bool = False

    def settings(self, **more: Any) -> Settings:  # noqa: ANN401
        from pulse.settings import Settings

        return self._meant(Settings.from_env(**self.given, **more))

    def settings_of(self, app: Pulse) -> Settings:
        """The application's own, which are the code's and then the environment's; but a flag wins over both."""
        return self._meant(replace(app.settings, **{name: self.given[name] for name in self.flags}))

    def _meant(self, settings: Settings) -> Settings:
        is_meant = "server_url" in self.flags or "database_url" not in self.flags
        return settings if is_meant else replace(settings, server_url=None)  # a flag wins over the environment

    @contextmanager
    def database(self, settings: Settings, *, create: bool = False, keep: bool = False) -> Iterator[Settings]:
        """The settings with a database in them: the one that was named, else the embedded one.

        If the embedded server runs, it is used; else it is started and, after the command, stopped again. One that
        holds no data yet is not worth starting, unless the command is there to `create` it. A command that goes on is
        to `keep` it: stopped from elsewhere, it is started again.
        """
        if settings.database_url:
            yield settings
            return
        from pulse.store.embedded import server as embedded

        if not (create or has_data(settings.state_dir)):
            raise DatabaseUnreachable(NO_DATABASE)
        start = partial(embedded.start, settings.state_dir, postgres=settings.postgres)
        with shared_server(settings.state_dir) as lock, start() as server:
            try:
                with keeping(server, start) if keep else nullcontext():
                    yield replace(settings, database_url=server.dsn)
            finally:
                if server.owned:
                    lock.wait_for_others()

    def answer(self, document: object, show: Callable[[], None]) -> None:
        """The document for programs, with --json; for people, what `show` prints."""
        if self.as_json:
            show_json(document)
        else:
            show()

    def refuse(self, error: PulseError) -> int:
        """Say what is wrong, on stderr and with --json also as the document; answers with the exit code."""
        if self.as_json:
            show_json({"error": describe(error)})
        say(f"Error: {error}", to_stderr=True)
        return exit_code_of(error)

    def use(self, work: Callable[[Engine], Awaitable[T]], *, settings: Settings | None = None) -> T:
        """Do one piece of work with the engine: of the server that was named, else of the database.

        A Postgres that was started for it is stopped when the command ends, so that the answer waits for nobody.
        """
        with ExitStack() as here:
            command = click.get_current_context(silent=True)
            enter = command.with_resource if command else here.enter_context
            return use(enter(self.reach(settings)), work)

    @contextmanager
    def reach(self, settings: Settings | None = None) -> Iterator[Settings]:
        """Settings with a way to the jobs in them. A server that was named has its own database."""
        settings = settings or self.settings()
        if settings.server_url is not None:
            yield settings
            return
        from pulse.store.embedded.dev_notes import with_notes

        with self.database(settings) as found:
            yield found if settings.database_url else with_notes(found)


def use(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Do one piece of work with the engine. Its duties do not run: a command changes only what it was asked to."""

    async def inside() -> T:
        async with open_operating(settings) as engine:
            return await work(engine)

    return run(inside())


def open_operating(settings: Settings) -> AbstractAsyncContextManager[Any]:
    """The engine, or a server's that is spoken to in the same words."""
    if settings.server_url is None:
        from pulse.engine.engine import open_engine

        return open_engine(settings)
    from pulse.links.opening import open_remote_operating

    return open_remote_operating(settings)


def has_data(state_dir: Path) -> bool:
    return (state_dir / "postgres" / "data").exists()


def describe(error: PulseError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}
