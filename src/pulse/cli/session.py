"""What do all commands share? Their settings, a database or server, an event loop, and how they show errors."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pulse.cli.database.commands_lock import hold_commands_lock
from pulse.cli.database.keeper import keep_running
from pulse.cli.exit_codes import exit_code_of
from pulse.cli.output import print_text, show_json
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
    "no database: set PULSE_DATABASE_URL to yours, or run `pulse db start` for an embedded one in this folder (it "
    "needs Postgres on this machine, or `pip install 'pulse-postgres[embedded]'`)"
)


@dataclass
class Session:
    """The shared flags of the command line, and the methods that all commands use."""

    given: dict[str, Any] = field(default_factory=dict)  # settings from flags or the environment
    flags: dict[str, str] = field(default_factory=dict)  # settings from flags only, to repeat them in hints
    as_json: bool = False

    def settings(self, **more: Any) -> Settings:  # noqa: ANN401
        from pulse.settings import Settings

        return self._apply_flags(Settings.from_env(**self.given, **more))

    def settings_of(self, app: Pulse) -> Settings:
        """Return the settings of an application, from its code and the environment, with flags winning over both."""
        return self._apply_flags(replace(app.settings, **{name: self.given[name] for name in self.flags}))

    def _apply_flags(self, settings: Settings) -> Settings:
        """Leave out a server of the environment if a flag names a database, because a flag wins."""
        uses_server = "server_url" in self.flags or "database_url" not in self.flags
        return settings if uses_server else replace(settings, server_url=None)

    @contextmanager
    def database(self, settings: Settings, *, create: bool = False, keep: bool = False) -> Iterator[Settings]:
        """Yield the settings with a database URL: the given one, or that of the embedded Postgres.

        If the embedded Postgres runs, it is used; otherwise it is started, and stopped again after the command. If it
        has no data yet, it is started only with `create`. With `keep`, for commands that run on, it is started again
        when another process stops it.
        """
        if settings.database_url:
            yield settings
            return
        from pulse.store.embedded import server as embedded

        if not (create or has_data(settings.state_dir)):
            raise DatabaseUnreachable(NO_DATABASE)
        start = partial(embedded.start, settings.state_dir, postgres=settings.postgres)
        with hold_commands_lock(settings.state_dir) as lock, start() as server:
            try:
                with keep_running(server, start) if keep else nullcontext():
                    yield replace(settings, database_url=server.dsn)
            finally:
                if server.owned:
                    lock.wait_for_others()

    def answer(self, document: object, show: Callable[[], None]) -> None:
        """Print the document with --json, or else call `show`, which prints for people."""
        if self.as_json:
            show_json(document)
        else:
            show()

    def refuse(self, error: PulseError) -> int:
        """Print an error on stderr, and with --json also as the document. Return the exit code."""
        if self.as_json:
            show_json({"error": describe(error)})
        print_text(f"Error: {error}", to_stderr=True)
        return exit_code_of(error)

    def run_with_engine(self, work: Callable[[Engine], Awaitable[T]], *, settings: Settings | None = None) -> T:
        """Run an async function with the engine of the given server or database, and return its result.

        A Postgres that was started for it is stopped when the command ends, not before the result is printed.
        """
        with ExitStack() as here:
            command = click.get_current_context(silent=True)
            enter = command.with_resource if command else here.enter_context
            return run_with_engine(enter(self.reachable_settings(settings)), work)

    @contextmanager
    def reachable_settings(self, settings: Settings | None = None) -> Iterator[Settings]:
        """Yield settings that name a server, or a database that is running."""
        settings = settings or self.settings()
        if settings.server_url is not None:
            yield settings
            return
        from pulse.store.embedded.dev_notes import with_notes

        with self.database(settings) as found:
            yield found if settings.database_url else with_notes(found)


def run_with_engine(settings: Settings, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run an async function with the engine, and return its result. The duties of the engine do not run, because a
    command should change nothing by itself."""

    async def call() -> T:
        async with open_operator_engine(settings) as engine:
            return await work(engine)

    return run(call())


def open_operator_engine(settings: Settings) -> AbstractAsyncContextManager[Any]:
    """Open an engine on the database, or the engine of a server, which has the same methods."""
    if settings.server_url is None:
        from pulse.engine.engine import open_engine

        return open_engine(settings)
    from pulse.links.opening import open_remote_operator_engine

    return open_remote_operator_engine(settings)


def has_data(state_dir: Path) -> bool:
    return (state_dir / "postgres" / "data").exists()


def describe(error: PulseError) -> dict[str, str]:
    return {"code": error.code, "message": str(error)}
