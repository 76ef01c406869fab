"""How long is "1h30m"? Parses and formats lengths of time as people write them.

The notation is Go's, as in our source documents: a sum of numbers with units such as `1h30m`, `1.5s` or `250ms`, with
`d` (24 hours) added. A bare number is seconds. There is no unit for months, since their lengths differ.
"""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
LONGEST = 200  # characters: enough for each unit once, with more digits than anybody needs
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:us|ms|s|m|h|d))+")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")


class InvalidDuration(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is not a duration: write something like 30s, 5m, 1h30m, 2d or 250ms")


def parse_duration(text: str) -> timedelta:
    """Return the length of time that a text such as `1h30m` or a bare number of seconds means. Never negative."""
    if len(text) > LONGEST:
        raise InvalidDuration(text[:40] + "…")
    text = text.strip()
    if _SECONDS.fullmatch(text):
        text += "s"
    if not _WHOLE.fullmatch(text):
        raise InvalidDuration(text)
    try:
        return sum((float(number) * UNITS[unit] for number, unit in _PART.findall(text)), timedelta())
    except OverflowError:
        raise InvalidDuration(text) from None


def format_duration(length: timedelta) -> str:
    """Return the shortest text that `parse_duration` reads back exactly. It does not read back negative ones: -5s."""
    if length < timedelta():
        return f"-{format_duration(-length)}"
    parts = []
    for name in ("d", "h", "m", "s", "ms", "us"):
        count, length = divmod(length, UNITS[name])
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"
