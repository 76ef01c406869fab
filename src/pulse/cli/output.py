"""How does something appear on the terminal, or as JSON, without the data taking control of either?

Whoever submits a job chooses its texts, and whoever reads them sits at a terminal that obeys escape sequences. So
every text passes through `escape` here, on every way out: `say`, `show_table`, `show_fields` and `show_json`.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# Control characters, lone surrogates, and the marks that make text read backwards.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
UNLIMITED = 100_000  # columns of a file or a pipe: nothing is cut there, so that grep finds it
GAP = 2  # between two columns

AGES = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
MOST = {"s": 60, "min": 60, "h": 24}  # of a unit; so many are one of the next


class Styled(NamedTuple):
    text: str
    style: str


Cell = str | Styled


class Column(NamedTuple):
    """A column of a table. Where space is short it shrinks to `least`, then goes, the highest `rank` first."""

    title: str
    rank: int = 0  # 0: always there, and in full
    least: int = 8
    is_number: bool = False
    folds: bool = False  # a sentence, which goes on below where it would be cut


# Texts


def escape(text: str) -> str:
    """One line that a terminal prints and does not obey."""
    return _UNSAFE.sub(_spell, text)


def escape_block(text: str) -> str:
    """As `escape`, with the lines kept."""
    return "\n".join(escape(line) for line in text.expandtabs().split("\n"))


def _spell(found: re.Match[str]) -> str:
    char = found.group()
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def say(text: str, *, to_stderr: bool = False) -> None:
    click.echo(escape_block(text), err=to_stderr)


def say_each(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say_more(following: str | None) -> None:
    """Say how to get the page that follows, if there is one."""
    if following:
        say(f"More: repeat with --after {shlex.quote(following)}")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# Times


def local_time(instant: datetime) -> str:
    """Return an instant as `2026-11-18 05:30:47-06:00`: local, with its distance from UTC."""
    return instant.astimezone().isoformat(sep=" ", timespec="seconds")


def age(instant: datetime, now: datetime | None = None) -> str:
    """How long ago, or how far ahead, in the largest unit that fits."""
    passed = (now or datetime.now(UTC)) - instant
    if passed > timedelta():
        return f"{length} ago" if (length := rough(passed)) else "just now"
    return f"in {length}" if (length := nearest(-passed)) else "just now"


def rough(length: timedelta) -> str | None:
    """In the largest unit that fits; none if it is less than a second."""
    return next((f"{count} {unit}" for unit, size in AGES if (count := length // size)), None)


def nearest(length: timedelta) -> str | None:
    """As `rough`, rounded to the nearest: what was set a moment ago for in 1 h is not in 59 min."""
    counts = ((round(length / size), unit) for unit, size in reversed(AGES))
    count, unit = next((count, unit) for count, unit in counts if count < MOST.get(unit, math.inf))
    return f"{count} {unit}" if count else None


def when(instant: datetime) -> str:
    return f"{local_time(instant)} ({age(instant)})"


# JSON


def show_json(value: object) -> None:
    """One document on stdout. JSON spells U+0000 to U+001F by itself; the rest of what is unsafe is spelled here."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    spelled = re.sub(_UNSAFE, lambda found: f"\\u{ord(found.group()):04x}" if found.group() != "\n" else "\n", text)
    click.echo(spelled)


# Tables


def console(*, to_stderr: bool = False) -> Console:
    from rich.console import Console

    file = sys.stderr if to_stderr else sys.stdout
    width = None if file.isatty() else UNLIMITED
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, on: Console | None = None) -> None:
    """A table that fits the terminal; in a pipe, all of it."""
    on = on or console()
    _print(make_table(columns, rows, on.width), on)


def make_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    from rich.table import Table

    widths = _fit(columns, rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for index, width in widths.items():
        column = columns[index]
        justify: Any = "right" if column.is_number else "left"
        overflow: Any = "fold" if column.folds else "ellipsis"
        table.add_column(column.title, width=width, no_wrap=not column.folds, overflow=overflow, justify=justify)
    for row in rows:
        table.add_row(*(_text(row[index]) for index in widths))
    return table


def show_fields(fields: Sequence[tuple[str, Cell]], *, on: Console | None = None) -> None:
    """Names and values, one below the other. Long values are folded, never cut."""
    from rich.table import Table

    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields:
        grid.add_row(_text(name), _text(value, is_block=True))
    _print(grid, on or console())


def _print(table: Table, on: Console) -> None:
    """Print a table; in a pipe, without the blanks that fill each line up to the widest."""
    if on.is_terminal:
        on.print(table)
        return
    with on.capture() as captured:
        on.print(table)
    for line in captured.get().splitlines():
        on.print(line.rstrip(), soft_wrap=True)


def _text(cell: Cell, *, is_block: bool = False) -> Text:
    """Never markup: what looks like [bold] in a payload is just that."""
    from rich.text import Text

    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(escape_block(text) if is_block else escape(text), style=style)


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> dict[int, int]:
    """Which columns are shown, by their place, and how wide."""
    wanted = {index: _widest(column, [row[index] for row in rows]) for index, column in enumerate(columns)}
    least = {
        index: wanted[index] if column.rank == 0 else min(wanted[index], column.least)
        for index, column in enumerate(columns)
    }
    by_rank = sorted(wanted, key=lambda index: columns[index].rank)
    while sum(least[index] + GAP for index in by_rank) - GAP > width and columns[by_rank[-1]].rank:
        by_rank.pop()
    spare = width + GAP - sum(least[index] + GAP for index in by_rank)
    widths = {}
    for index in sorted(by_rank, key=lambda index: wanted[index]):  # what is short is shown whole
        widths[index] = min(wanted[index], least[index] + max(spare, 0))
        spare -= widths[index] - least[index]
    return dict(sorted(widths.items()))


def _widest(column: Column, cells: Sequence[Cell]) -> int:
    from rich.cells import cell_len

    return max(cell_len(column.title), *(cell_len(_text(cell).plain) for cell in cells), 1)
