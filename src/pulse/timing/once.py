"""Which instant do "in ten minutes" and "at 15:00 tomorrow" name?"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

# T and Z may be small, as RFC 3339 has it. It also lets applications agree on a space for the T; we do not.
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)?", re.ASCII)


class InvalidOnce(ValueError):
    pass


class Words(NamedTuple):
    """How the caller calls what he gives: an alarm has delay_seconds and fire_at, a schedule has delay and run_at."""

    noun: str
    delay: str
    instant: str


def resolve_once(words: Words, *, delay: timedelta | None, at: datetime | None, now: datetime) -> datetime:
    """The instant, from exactly one of a delay and an instant. It lies in the future."""
    if delay is not None and at is not None:
        raise InvalidOnce(f"once {words.noun} takes either {words.delay} or {words.instant}, not both")
    if at is None and delay is None:
        raise InvalidOnce(f"once {words.noun} requires {words.delay} or {words.instant}")
    if delay is not None:
        at, name, shown = now + delay, words.delay, str(delay)
    else:
        assert at is not None
        name, shown = words.instant, at.isoformat()
    if at <= now:
        raise InvalidOnce(f"{name} {shown} is not in the future")
    return at


def parse_instant(words: Words, text: str) -> datetime:
    """An instant as RFC 3339 writes it: with seconds, and with an offset."""
    advice = ""
    if found := _RFC_3339.fullmatch(text):
        with suppress(ValueError):
            when = datetime.fromisoformat(text.upper())
            if found[2]:
                return when
            advice = f": it has no time zone; add one, such as {text}Z"
    raise InvalidOnce(f"invalid {words.instant} {text[:64]!r} (want RFC3339){advice}")
