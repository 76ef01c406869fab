"""How does an operator watch an installation? On a page that is redrawn every second, until q or Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.operate.top_view import Page, draw_page
from pulse.cli.options import Command
from pulse.cli.output import console
from pulse.cli.session import open_operator_engine
from pulse.cli.worker.banner import name_database
from pulse.event_loop import run
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.settings import Settings

EVERY = 1.0  # seconds
PATIENCE = timedelta(seconds=2)  # for a database that does not answer, before the page says so
QUIT = (b"q", b"Q", b"\x03", b"\x04")  # Ctrl-C and Ctrl-D, if the terminal does not turn them into signals


@click.command(cls=Command)
@click.option("--once", is_flag=True, help="Print one page and end.")
@click.pass_obj
def top(session: Session, /, once: bool) -> None:
    """Show topics, workers and what needs attention, live.

    It costs the same with ten million jobs as with ten. q or Ctrl-C ends it. Without a terminal it prints one page.

    \b
    Examples:
      pulse top
      pulse top --once
      pulse top --json
    """
    with session.reachable_settings() as settings:
        if session.as_json or once or not sys.stdout.isatty():
            overview = session.run_with_engine(lambda engine: engine.statistics.overview(), settings=settings)
            on = console()
            page = Page(describe_source(settings), overview)
            session.answer(overview, lambda: on.print(draw_page(page, on.width)))
            return
        with suppress(KeyboardInterrupt):
            run(_watch(replace(settings, patience=min(settings.patience, PATIENCE))))


async def _watch(settings: Settings) -> None:
    from rich.live import Live

    on, page = console(), Page(describe_source(settings))
    is_over = asyncio.Event()
    async with open_operator_engine(settings) as engine:
        with _quit_on_key(is_over), Live(console=on, screen=True, auto_refresh=False) as live:
            while not is_over.is_set():
                page = await _read_page(engine, page)
                live.update(draw_page(page, on.width, on.height), refresh=True)
                await _sleep_unless(is_over)


async def _read_page(engine: Engine, page: Page) -> Page:
    """Read the figures. If the database does not answer, return the last page with the problem."""
    try:
        return Page(page.source, await engine.statistics.overview())
    except PulseError as error:
        return page._replace(problem=str(error))


async def _sleep_unless(is_over: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(EVERY):
            await is_over.wait()


@contextmanager
def _quit_on_key(is_over: asyncio.Event) -> Iterator[None]:
    """Set the event when q is pressed, if there is a keyboard."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    stdin, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before: list[Any] = termios.tcgetattr(stdin)

    def read_keys() -> None:
        typed = os.read(stdin, 64)
        if not typed or any(key in typed for key in QUIT):
            is_over.set()

    tty.setcbreak(stdin, termios.TCSADRAIN)  # keys that were typed before still count
    loop.add_reader(stdin, read_keys)
    try:
        yield
    finally:
        loop.remove_reader(stdin)
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def describe_source(settings: Settings) -> str:
    """Return the address of the server or database that is watched, without a password."""
    if settings.server_url is not None:
        return settings.server_url
    return f"{name_database(settings)}, schema {settings.schema}"
