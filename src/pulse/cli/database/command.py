"""How does a developer start, stop and open the embedded Postgres?"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import click

from pulse.cli.options import Group
from pulse.cli.output import print_text
from pulse.cli.session import NO_DATABASE, Session
from pulse.model.errors import DatabaseUnreachable, EmbeddedPostgresFailed, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings
    from pulse.store.embedded.server import EmbeddedPostgres

CHECK_EVERY = 0.5  # seconds between two checks that the server still runs


@click.group(cls=Group)
def db() -> None:
    """Start, stop and open the embedded Postgres of this folder.

    \b
    Examples:
      pulse db start                 in another terminal
      pulse db psql -c 'select 1'
      pulse db stop
    """


@db.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Also listen on this port of 127.0.0.1; 0: any free port.")
@click.pass_obj
def start(session: Session, port: int | None) -> None:
    """Start the embedded Postgres, and run it until Ctrl-C.

    Without --port it listens on a Unix socket that only you can open.
    """
    from pulse.store.embedded import server as embedded

    settings = session.settings()
    with (
        _stop_on_signals() as stop,
        embedded.start(settings.state_dir, postgres=settings.postgres, port=port) as server,
    ):
        _print_banner(session, server)
        if server.owned:
            _wait_for_end(server, settings, stop)


def _print_banner(session: Session, server: EmbeddedPostgres) -> None:
    text = (
        f"Postgres {server.major} {'runs' if server.owned else 'runs already'} (pid {server.pid}):\n\n  {server.dsn}\n"
    )
    if server.owned:
        text += f"\nIts data is in {server.home / 'data'}. Stop it with Ctrl-C here, or `pulse db stop` elsewhere."
    document = {"dsn": server.dsn, "pid": server.pid, "major": server.major, "was_running": not server.owned}
    session.answer(document, lambda: print_text(text))


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set the event on SIGINT and SIGTERM, from before the server starts, so that no signal leaves it behind."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_end(server: EmbeddedPostgres, settings: Settings, stop: threading.Event) -> None:
    from pulse.store.embedded import server as embedded

    while not stop.wait(CHECK_EVERY):
        if embedded.running(settings.state_dir) is None:
            stop.wait(CHECK_EVERY)  # a process that stops it needs a moment to clean up
            if (server.home / "server.json").exists():  # a stop removes the file, a crash leaves it
                raise EmbeddedPostgresFailed(f"the server has ended by itself; see {server.home / 'server.log'}")
            print_text("Postgres was stopped by another process.", to_stderr=True)
            return
    print_text("Stopping Postgres.", to_stderr=True)


@db.command()
@click.pass_obj
def stop(session: Session) -> None:
    """Stop the embedded Postgres, even if another process started it."""
    from pulse.store.embedded import server as embedded

    state_dir = session.settings().state_dir
    was_running = embedded.stop(state_dir)
    text = "Postgres was stopped." if was_running else f"No embedded Postgres is running in {state_dir}."
    session.answer({"was_running": was_running}, lambda: print_text(text))


@db.command()
@click.pass_obj
def dsn(session: Session) -> None:
    """Print the URL of the database in use. Nothing is started."""
    from pulse.store.embedded import server as embedded

    settings = session.settings()
    server = None if settings.database_url else embedded.running(settings.state_dir)
    url = server.dsn if server else settings.database_url
    if url is None:
        raise NotFound(f"no embedded Postgres is running in {settings.state_dir}: run `pulse db start`")
    session.answer({"dsn": url}, lambda: print_text(url))


@db.command(context_settings={"ignore_unknown_options": True}, short_help="Open psql on the database in use.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def psql(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Open psql on the database in use, with the schema of Pulse in its search path.

    The ARGUMENTS are passed to psql; put -- before those that `pulse` would read itself.
    """
    session = ctx.ensure_object(Session)
    settings = session.settings()
    program = _find_psql(settings)
    with session.database(settings) as found:
        address, environment = _without_password(found)
        # psql runs as a child, because a server that was started for it has to be stopped afterwards.
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for psql, which does not inherit this
        try:
            code = subprocess.run([program, "--dbname", address, *arguments], env=environment, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, before)
    ctx.exit(code if code >= 0 else 128 - code)


def _find_psql(settings: Settings) -> str:
    """Return the psql of the embedded server's own programs, or else the one in PATH."""
    from pulse.store.embedded.binaries import find_binaries

    if settings.database_url is None:
        for binaries in find_binaries(settings.postgres):
            if os.access(binaries.folder / "psql", os.X_OK):
                return str(binaries.folder / "psql")
    if found := shutil.which("psql"):
        return found
    raise NotFound("psql was not found: install your system's Postgres client, for example postgresql-client")


def _without_password(settings: Settings) -> tuple[str, dict[str, str]]:
    """Return the URL without its password, which `ps` would show, and an environment with the password."""
    url = settings.database_url
    if url is None:
        raise DatabaseUnreachable(NO_DATABASE)
    environment = dict(os.environ)
    if not settings.pgbouncer:  # pgbouncer refuses options at startup
        environment["PGOPTIONS"] = f"{environment.get('PGOPTIONS', '')} -c search_path={settings.schema},public".strip()
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    if password:
        environment["PGPASSWORD"] = unquote(password)
    return parts._replace(netloc=f"{user}{at}{host}").geturl(), environment
