"""How are numbers, lengths and instants said to people, in texts that every door shows alike?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pulse.timing.duration import format_duration

_STEPS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))


def about(length: timedelta) -> str:
    """To two units at most: 2d3h, 5m20s, 12s. What is less than a second is said so."""
    length = max(length, timedelta())
    largest = next((number for number, step in enumerate(_STEPS) if length >= step), None)
    if largest is None:
        return "less than 1s"
    finest = _STEPS[min(largest + 1, len(_STEPS) - 1)]
    return format_duration(length // finest * finest)


def instant(when: datetime) -> str:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def first_words(text: str, most: int = 200) -> str:
    """The first line of it, cut, and without the full stop that the sentence around it brings."""
    line = text.strip().partition("\n")[0].strip()
    return f"{line[: most - 1]}…" if len(line) > most else line.removesuffix(".")
