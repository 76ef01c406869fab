"""How is data printed on a terminal or as JSON, without control characters in it having an effect?

The texts of a job are chosen by the program that submits it, and a terminal obeys escape sequences. So every function
here escapes its texts: `print_text`, `show_table`, `show_fields` and `show_json`.
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
UNLIMITED = 100_000  # columns of a file or a pipe, where nothing is cut, so that grep finds everything
GAP = 2  # characters between two columns

AGES = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("min", timedelta(minutes=1)), ("s", timedelta(seconds=1)))
UNIT_SIZES = {"s": 60, "min": 60, "h": 24}  # how many of a unit make one of the next


class Styled(NamedTuple):
    text: str
    style: str


Cell = str | Styled


class Column(NamedTuple):
    """A column of a table. If space is short it shrinks to `min_width`, then is left out, the highest `rank` first."""

    title: str
    rank: int = 0  # 0: always shown, and in full
    min_width: int = 8
    is_number: bool = False
    folds: bool = False  # long text continues on the next line instead of being cut


# Texts


def escape(text: str) -> str:
    """Return text as one line, with control characters spelled out, so that a terminal does not act on them."""
    return _UNSAFE.sub(_escape_character, text)


def escape_block(text: str) -> str:
    """Escape text like `escape`, but keep its lines."""
    return "\n".join(escape(line) for line in text.expandtabs().split("\n"))


def _escape_character(found: re.Match[str]) -> str:
    char = found.group()
    return _SHORT.get(char) or (f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}")


def print_text(text: str, *, to_stderr: bool = False) -> None:
    click.echo(escape_block(text), err=to_stderr)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_text(line)


def print_next_page(following: str | None) -> None:
    """Print how to get the next page, if there is one."""
    if following:
        print_text(f"More: repeat with --after {shlex.quote(following)}")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# Times


def local_time(instant: datetime) -> str:
    """Return an instant as `2026-11-18 05:30:47-06:00`: local time with its offset from UTC."""
    return instant.astimezone().isoformat(sep=" ", timespec="seconds")


def age(instant: datetime, now: datetime | None = None) -> str:
    """Return how long ago an instant was or how far ahead it is, in the largest unit that fits."""
    passed = (now or datetime.now(UTC)) - instant
    if passed > timedelta():
        return f"{length} ago" if (length := rough_length(passed)) else "just now"
    return f"in {length}" if (length := nearest_length(-passed)) else "just now"


def rough_length(length: timedelta) -> str | None:
    """Return a length in the largest unit that fits, rounded down, or None if it is less than a second."""
    return next((f"{count} {unit}" for unit, size in AGES if (count := length // size)), None)


def nearest_length(length: timedelta) -> str | None:
    """Return a length like `rough_length`, but rounded to the nearest, so that 1 h does not become 59 min at once."""
    counts = ((round(length / size), unit) for unit, size in reversed(AGES))
    count, unit = next((count, unit) for count, unit in counts if count < UNIT_SIZES.get(unit, math.inf))
    return f"{count} {unit}" if count else None


def time_and_age(instant: datetime) -> str:
    return f"{local_time(instant)} ({age(instant)})"


# JSON


def show_json(value: object) -> None:
    """Print one JSON document. JSON escapes U+0000 to U+001F itself; other unsafe characters are escaped here."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    escaped = re.sub(_UNSAFE, lambda found: f"\\u{ord(found.group()):04x}" if found.group() != "\n" else "\n", text)
    click.echo(escaped)


# Tables


def console(*, to_stderr: bool = False) -> Console:
    from rich.console import Console

    file = sys.stderr if to_stderr else sys.stdout
    width = None if file.isatty() else UNLIMITED
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], *, on: Console | None = None) -> None:
    """Print a table that fits the terminal; in a pipe, all of it."""
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
    """Print names and values, one pair per line. Long values are folded, never cut."""
    from rich.table import Table

    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in fields:
        grid.add_row(_text(name), _text(value, is_block=True))
    _print(grid, on or console())


def _print(table: Table, on: Console) -> None:
    """Print a table; in a pipe, without the blanks at the end of its lines."""
    if on.is_terminal:
        on.print(table)
        return
    with on.capture() as captured:
        on.print(table)
    for line in captured.get().splitlines():
        on.print(line.rstrip(), soft_wrap=True)


def _text(cell: Cell, *, is_block: bool = False) -> Text:
    """Return a cell as text, never as markup: [bold] in a payload stays as it is."""
    from rich.text import Text

    text, style = (cell, "") if isinstance(cell, str) else cell
    return Text(escape_block(text) if is_block else escape(text), style=style)


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> dict[int, int]:
    """Return the width of each column that is shown, by its index."""
    wanted = {index: _widest(column, [row[index] for row in rows]) for index, column in enumerate(columns)}
    minimum = {
        index: wanted[index] if column.rank == 0 else min(wanted[index], column.min_width)
        for index, column in enumerate(columns)
    }
    by_rank = sorted(wanted, key=lambda index: columns[index].rank)
    while sum(minimum[index] + GAP for index in by_rank) - GAP > width and columns[by_rank[-1]].rank:
        by_rank.pop()
    spare = width + GAP - sum(minimum[index] + GAP for index in by_rank)
    widths = {}
    for index in sorted(by_rank, key=lambda index: wanted[index]):  # short columns first, so that they are shown whole
        widths[index] = min(wanted[index], minimum[index] + max(spare, 0))
        spare -= widths[index] - minimum[index]
    return dict(sorted(widths.items()))


def _widest(column: Column, cells: Sequence[Cell]) -> int:
    from rich.cells import cell_len

    return max(cell_len(column.title), *(cell_len(_text(cell).plain) for cell in cells), 1)
