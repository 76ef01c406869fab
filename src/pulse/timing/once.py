"""Which instant does a delay or an RFC 3339 text name?"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

# RFC 3339 allows t and z in lower case. It also lets applications use a space instead of the T; Pulse does not.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


class InvalidOnce(ValueError):
    pass


class FieldNames(NamedTuple):
    """The names of the fields for messages: an alarm has delay_seconds and fire_at, a schedule has delay and run_at."""

    noun: str
    delay: str
    instant: str


def resolve_once(names: FieldNames, *, delay: timedelta | None, at: datetime | None, now: datetime) -> datetime:
    """Return the instant that either a delay or an instant names. Refuse both, neither, and one not in the future."""
    if delay is not None and at is not None:
        raise InvalidOnce(f"once {names.noun} takes either {names.delay} or {names.instant}, not both")
    if at is None and delay is None:
        raise InvalidOnce(f"once {names.noun} requires {names.delay} or {names.instant}")
    if delay is not None:
        at, name, shown = now + delay, names.delay, str(delay)
    else:
        assert at is not None
        name, shown = names.instant, at.isoformat()
    if at <= now:
        raise InvalidOnce(f"{name} {shown} is not in the future")
    return at


def parse_instant(names: FieldNames, text: str) -> datetime:
    """Return the instant of an RFC 3339 text, which must have seconds and an offset."""
    advice = ""
    if match := _RFC_3339.fullmatch(text):
        with suppress(ValueError):
            when = datetime.fromisoformat(text.upper())
            if match[2]:
                return when
            advice = f": it has no time zone; add one, such as {text}Z"
    raise InvalidOnce(f"invalid {names.instant} {text[:64]!r} (want RFC3339){advice}")
