"""How are values written for people to read?

Every value on a page passes through `visible`: templates do that by themselves. Names, errors and payloads come from
anywhere, and characters that control a terminal or change the direction of text must be shown and not take effect.
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

# Control characters except tab and newline, characters that change the direction of text, and invisible characters.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def visible(value: Any) -> Any:  # noqa: ANN401
    """Make hidden characters visible. Every expression of a template passes through here."""
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
    """Shorten a text for one line of a list, without saying how much is missing."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[:longest]}…"


def pretty(text: str | None) -> str:
    """Indent JSON, if it is not too long for that."""
    if text is None:
        return ""
    if len(text) > LONGEST_TEXT:
        return cut(text)
    try:
        return cut(msgspec.json.format(text, indent=2))  # keeps every digit of numbers
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
    """Write a length of time, short enough to compare at a glance."""
    if value is None:
        return "–"
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return format_duration(timedelta(seconds=round(seconds, 1 if seconds < 10 else 0)))


def instant(value: datetime | None, form: str = "full") -> Markup:
    """Write an instant in UTC. A script rewrites it as local time, or for the form `ago` as the time since then."""
    if value is None:
        return Markup("–")
    moment = value.astimezone(UTC)
    text = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" data-form="{}">{}</time>').format(moment.isoformat(), form, text)


def ago(value: datetime | None) -> Markup:
    return instant(value, "ago")


def readable(value: str) -> str:
    """Write a name such as DEAD_LETTERED as people would: dead lettered."""
    return value.lower().replace("_", " ")


def short(value: object) -> Markup:
    """Write the end of an id, where ids differ, with the whole id in its tooltip."""
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
    "readable": readable,
}
