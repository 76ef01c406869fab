"""How are numbers, lengths of time and instants written in texts for people?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pulse.timing.duration import format_duration

_STEPS = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))


def about(length: timedelta) -> str:
    """Return a length of time in at most two units: 2d3h, 5m20s, 12s, or "less than 1s"."""
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
    """Return "a, b and c"."""
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def first_words(text: str, limit: int = 200) -> str:
    """Return the first line of a text, cut to `limit` characters, without its full stop, for use in a sentence."""
    line = text.strip().partition("\n")[0].strip()
    return f"{line[: limit - 1]}…" if len(line) > limit else line.removesuffix(".")
