"""How are values written for people to read?

Whatever is shown passes `visible`, which nobody can forget: names, errors and payloads come from anywhere, and letters
that steer a terminal or turn the direction of reading are shown, not obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Sized
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from markupsafe import Markup, escape

from pulse.timing.duration import format_duration

LONGEST_TEXT = 20_000  # characters of one text on a page

# Control characters but for tab and newline, what changes the direction of reading, and what is there but not seen.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(value: Any) -> Any:  # noqa: ANN401
    """What every expression of a template passes."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return "" if value is None else value
    return _HIDDEN.sub(_name, value)


def _name(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else f"\\u{code:04x}"


def cut(text: str | None, longest: int = LONGEST_TEXT) -> str:
    if text is None or len(text) <= longest:
        return text or ""
    return f"{text[:longest]}… ({len(text):,} characters; the API has all of them)"


def cut_short(text: str, longest: int) -> str:
    """For a line of a list, where there is no room to say how much is missing."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def pretty(text: str | None) -> str:
    """JSON with its parts under each other, if it is not too long for that."""
    if text is None:
        return ""
    if len(text) > LONGEST_TEXT:
        return cut(text)
    try:
        return cut(msgspec.json.format(text, indent=2))  # numbers to the last digit, as they were written
    except (msgspec.DecodeError, RecursionError):
        return text


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def share(value: float | None) -> str:
    if value is None:
        return "–"
    return "0 %" if value == 0 else "<0.1 %" if value < 0.001 else f"{value * 100:.1f} %"


def length(value: timedelta | float | None) -> str:
    """Short enough to compare at a glance."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return format_duration(timedelta(seconds=round(seconds, 1 if seconds < 10 else 0)))


def instant(value: datetime | None, form: str = "full") -> Markup:
    """An instant in UTC, which a script rewrites in the reader's own time; `ago` counts from it."""
    if value is None:
        return Markup("–")
    moment = value.astimezone(UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(moment.isoformat(), form, text)


def ago(value: datetime | None) -> Markup:
    return instant(value, "ago")


def words(value: str) -> str:
    """DEAD_LETTERED as people say it, and what is cancelled in one spelling: an alarm's state has the other one."""
    return value.lower().replace("_", " ").replace("cancelled", "cancelled")


def short(value: object) -> Markup:
    """The end of an id, where ids differ; all of it for those who ask."""
    text = str(value)
    return Markup('<abbr title="{}">{}</abbr>').format(text, "…" + text[-8:]) if len(text) > 12 else escape(text)


def length_of(values: Sized, noun: str) -> str:
    return f"{len(values):,} {noun}{'' if len(values) == 1 else 's'}"


FILTERS = {
    "length_of": length_of,
    "ago": ago,
    "cut": cut,
    "cut_short": cut_short,
    "instant": instant,
    "length": length,
    "number": number,
    "pretty": pretty,
    "share": share,
    "short": short,
    "words": words,
}
