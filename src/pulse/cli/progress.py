"""How does a person see that long work goes on? A bar on stderr, where there is a terminal and nobody wants JSON."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pulse.cli.session import Session


@contextmanager
def progress(session: Session, what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """What is yielded is called with how many more are done. Without a total it shows that something moves."""
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
def under_way(session: Session, what: str) -> Iterator[None]:
    """Show what is being done while it is, where nobody can tell how far it is."""
    if session.as_json or not sys.stderr.isatty():
        yield
        return
    from pulse.cli.output import console

    with console(to_stderr=True).status(what):
        yield
