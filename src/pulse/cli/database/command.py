"""How does a developer start, stop and enter the embedded Postgres?"""

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
from pulse.cli.output import say
from pulse.cli.session import NO_DATABASE, Session
from pulse.model.errors import DatabaseUnreachable, EmbeddedPostgresFailed, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings
    from pulse.store.embedded.server import EmbeddedPostgres

LOOK_EVERY = 0.5  # seconds between two looks at whether the server is still there


@click.group(cls=Group)
def db() -> None:
    """Start, stop and enter the embedded Postgres of this folder.

    \b
    Examples:
      pulse db start                 in a terminal of its own
      pulse db psql -c 'select 1'
      pulse db stop
    """


@db.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Also listen on 127.0.0.1 there; 0 takes any free port.")
@click.pass_obj
def start(session: Session, port: int | None) -> None:
    """Start the embedded Postgres and keep it until Ctrl-C.

    Without --port it listens on a socket that only you can open.
    """
    from pulse.store.embedded import server as embedded

    settings = session.settings()
    with (
        _until_told_to_stop() as stop,
        embedded.start(settings.state_dir, postgres=settings.postgres, port=port) as server,
    ):
        _introduce(session, server)
        if server.owned:
            _wait_for_the_end(server, settings, stop)


def _introduce(session: Session, server: EmbeddedPostgres) -> None:
    text = (
        f"Postgres {server.major} {'runs' if server.owned else 'runs already'} (pid {server.pid}):\n\n  {server.dsn}\n"
    )
    if server.owned:
        text += f"\nIts data is in {server.home / 'data'}. Stop it with Ctrl-C here, or `pulse db stop` elsewhere."
    document = {"dsn": server.dsn, "pid": server.pid, "major": server.major, "was_running": not server.owned}
    session.answer(document, lambda: say(text))


@contextmanager
def _until_told_to_stop() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set the event, from before the server starts, so that none is met unprepared."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_the_end(server: EmbeddedPostgres, settings: Settings, stop: threading.Event) -> None:
    from pulse.store.embedded import server as embedded

    while not stop.wait(LOOK_EVERY):
        if embedded.running(settings.state_dir) is None:
            stop.wait(LOOK_EVERY)  # whoever stops it needs a moment to tidy up
            if (server.home / "server.json").exists():  # it is removed by a stop, and left by a crash
                raise EmbeddedPostgresFailed(f"the server has ended by itself; see {server.home / 'server.log'}")
            say("Postgres was stopped from elsewhere.", to_stderr=True)
            return
    say("Stopping Postgres.", to_stderr=True)


@db.command()
@click.pass_obj
def stop(session: Session) -> None:
    """Stop the embedded Postgres, whoever started it."""
    from pulse.store.embedded import server as embedded

    state_dir = session.settings().state_dir
    was_running = embedded.stop(state_dir)
    text = "Postgres was stopped." if was_running else f"No Postgres of ours is running in {state_dir}."
    session.answer({"was_running": was_running}, lambda: say(text))


@db.command()
@click.pass_obj
def dsn(session: Session) -> None:
    """Print the address of the database in use; nothing is started."""
    from pulse.store.embedded import server as embedded

    settings = session.settings()
    server = None if settings.database_url else embedded.running(settings.state_dir)
    url = server.dsn if server else settings.database_url
    if url is None:
        raise NotFound(f"no Postgres of ours is running in {settings.state_dir}: run `pulse db start`")
    session.answer({"dsn": url}, lambda: say(url))


@db.command(
    context_settings={"ignore_unknown_options": True}, short_help="Open psql on the database in use, in our schema."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def psql(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Open psql on the database in use, with our schema in its search path.

    The ARGUMENTS go to psql as they are; put -- before those that Pulse would take for its own.
    """
    session = ctx.ensure_object(Session)
    settings = session.settings()
    program = _find_psql(settings)
    with session.database(settings) as found:
        address, environment = _without_password(found)
        # A child and not an exec, since a server that we started has to be stopped afterwards.
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is psql's; a program does not inherit this
        try:
            code = subprocess.run([program, "--dbname", address, *arguments], env=environment, check=False).returncode
        finally:
            signal.signal(signal.SIGINT, before)
    ctx.exit(code if code >= 0 else 128 - code)


def _find_psql(settings: Settings) -> str:
    """The one beside the server's own programs, else any."""
    from pulse.store.embedded.binaries import find_binaries

    if settings.database_url is None:
        for binaries in find_binaries(settings.postgres):
            if os.access(binaries.folder / "psql", os.X_OK):
                return str(binaries.folder / "psql")
    if found := shutil.which("psql"):
        return found
    raise NotFound("psql was not found: install your system's Postgres client, for example postgresql-client")


def _without_password(settings: Settings) -> tuple[str, dict[str, str]]:
    """The address to show to `ps`, and an environment that holds the rest."""
    url = settings.database_url
    if url is None:
        raise DatabaseUnreachable(NO_DATABASE)
    environment = dict(os.environ)
    if not settings.pgbouncer:  # which refuses options at startup
        environment["PGOPTIONS"] = f"{environment.get('PGOPTIONS', '')} -c search_path={settings.schema},public".strip()
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    if password:
        environment["PGPASSWORD"] = unquote(password)
    return parts._replace(netloc=f"{user}{at}{host}").geturl(), environment
