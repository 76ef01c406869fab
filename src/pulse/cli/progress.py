"""How is the progress of long work shown? By a bar on stderr, if it is a terminal and --json was not given."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulse.cli.session import Session


@contextmanager
def progress(session: Session, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a bar, and yield a function to call with the number of items that were just done.

    Without a total the bar only shows that the work goes on.
    """
    if session.as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    from pulse.cli.output import console

    counted = TextColumn("{task.completed:,}" if total is None else f"{{task.completed:,}} of {total:,}")
    columns = (TextColumn("{task.description}"), BarColumn(), counted)
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda more: bar.advance(task, more)


@contextmanager
def show_status(session: Session, what: str) -> Iterator[None]:
    """Show a text while the block runs, for work whose progress is unknown."""
    if session.as_json or not sys.stderr.isatty():
        yield
        return
    from pulse.cli.output import console

    with console(to_stderr=True).status(what):
        yield
