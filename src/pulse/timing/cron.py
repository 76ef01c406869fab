"""When is the next instant that "0 9 * * 1-5" names, in a time zone whose clocks change?

The expression names times on a local calendar (`cron_calendar.py`). A time zone is a sequence of periods in which local
time is UTC plus an offset (`zones.py`). From one period to the next, local time jumps:

    forward     some local times do not exist. Fixed times among them occur at the jump, several as a single one.
    back        some local times come twice. A fixed time occurs when it is first reached, so only times after the
                latest local time `reached` so far count.

A wild timetable (`*` in minutes or hours) follows local time in every period. See docs/reference/cron.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from pulse.timing import cron_fields, cron_words
from pulse.timing.cron_calendar import Calendar
from pulse.timing.cron_fields import BadField
from pulse.timing.duration import InvalidDuration, format_duration, parse_duration
from pulse.timing.zones import (
    EPOCH,
    FIRST_YEAR,
    LAST_YEAR,
    SECOND,
    Turn,
    UnknownZone,
    check_zone,
    load_zone,
    offset_at,
    to_datetime,
    turns,
    year_start,
)

DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
HORIZON_YEARS = 5  # a search ends with the fifth year after the one it began in, like that of robfig/cron
LONGEST_EVERY = timedelta(days=3653)  # ten years, with at most three leap days
LONGEST_EXPRESSION = 1000

_PREFIX = re.compile(r"(?:CRON_)?TZ=(?P<tz>[^ \t]*)[ \t]*")
_NEVER = -(10**18)  # before every local time


class InvalidCron(ValueError):
    def __init__(self, expression: str, reason: str) -> None:
        shown = expression if len(expression) <= 100 else expression[:97] + "..."
        super().__init__(f"invalid cron expression {shown!r}: {reason}" if expression else reason)
        self.expression = expression
        self.reason = reason


class NoFutureTime(ValueError):
    def __init__(self, expression: str, after: datetime) -> None:
        super().__init__(f"cron {expression!r} yields no future time after {after.isoformat()}")
        self.expression = expression
        self.after = after


@dataclass(frozen=True, slots=True)
class Occurrence:
    at: datetime  # UTC
    local: datetime
    note: str | None = None  # what a clock change did to it

    @property
    def offset(self) -> timedelta:
        return self.local.utcoffset() or timedelta()


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str
    tz: str  # of the prefix, if the expression has one
    timetable: Calendar | timedelta  # a timedelta is the interval of `@every`

    @staticmethod
    def parse(expression: str, tz: str = "UTC") -> Cron:
        """Parse an expression. A `TZ=` or `CRON_TZ=` in front of it takes precedence over `tz`."""
        return _parse(expression, tz)

    def next_after(self, instant: datetime) -> datetime:
        """Return the first time strictly after an instant, in UTC. `@every` counts from its whole second."""
        if instant.utcoffset() is None:
            raise ValueError(f"instant must have a UTC offset, not {instant.isoformat()}")
        after = max((instant - EPOCH) // SECOND, year_start(FIRST_YEAR))
        if after >= year_start(LAST_YEAR):
            raise NoFutureTime(self.expression, instant)
        if isinstance(self.timetable, timedelta):
            at = after + self.timetable // SECOND
            if at < year_start(LAST_YEAR):
                return to_datetime(at)
        elif (match := self._match_after(self.timetable, after)) is not None:
            return to_datetime(match)
        raise NoFutureTime(self.expression, instant)

    def _match_after(self, calendar: Calendar, after: int) -> int | None:
        offset = offset_at(self.tz, after)
        reached = _NEVER if calendar.is_wild else _reached(self.tz, after)
        begin = after + 1
        for turn in _turns_to_come(self.tz, after):
            match = calendar.first_between(max(begin + offset, reached), turn.at + offset)
            if match is not None:
                return match - offset
            if not calendar.is_wild:
                reached = max(reached, turn.at + offset)
                if calendar.first_between(reached, turn.at + turn.after) is not None:
                    return turn.at
            begin, offset = turn.at, turn.after
        return None

    def count_between(self, after: datetime, until: datetime) -> int:
        """Return how many of its times lie after one instant and up to another, without computing each of them."""
        start, end = ((instant - EPOCH) // SECOND for instant in (after, until))
        if isinstance(self.timetable, timedelta):
            return max(0, end - start) // (self.timetable // SECOND)
        return self._count_between(self.timetable, start, end + 1)

    def _count_between(self, calendar: Calendar, after: int, end: int) -> int:
        """Count the times in the periods that `_match_after` would search."""
        offset = offset_at(self.tz, after)
        reached = _NEVER if calendar.is_wild else _reached(self.tz, after)
        begin, count = after + 1, 0
        for turn in _turns_between(self.tz, after, end):
            count += calendar.count_between(max(begin + offset, reached), turn.at + offset)
            begin, gap = turn.at, max(reached, turn.at + offset)
            if not calendar.is_wild:
                reached = gap
                if calendar.first_between(gap, turn.at + turn.after) is not None:
                    count += 1
                    begin += 1  # a time on the jump itself is the same instant
            offset = turn.after
        return count + calendar.count_between(max(begin + offset, reached), end + offset)

    def explain(self) -> str:
        """Return what it means, as a sentence without a full stop."""
        if isinstance(self.timetable, timedelta):
            return f"every {format_duration(self.timetable)}"
        return f"{cron_words.describe(self.timetable)}, {self.tz}"

    def preview(self, n: int, after: datetime) -> list[Occurrence]:
        """Return the next `n` occurrences, or as many as there are. Each has a note if a clock change affects it."""
        found: list[Occurrence] = []
        tz = load_zone(self.tz)
        while len(found) < n:
            try:
                at = self.next_after(after)
            except NoFutureTime:
                break
            found.append(Occurrence(at, at.astimezone(tz), self._note(after, at)))
            after = at
        return found

    def _note(self, after: datetime, at: datetime) -> str | None:
        if isinstance(self.timetable, timedelta):
            return None
        since, instant = (after - EPOCH) // SECOND, (at - EPOCH) // SECOND
        notes: list[str | None] = []
        day = 86400  # the longest repetition: islands that moved to the other side of the date line
        for year in range(
            to_datetime(max(since - day, year_start(FIRST_YEAR))).year, to_datetime(instant + day).year + 1
        ):
            notes += [cron_words.note(self.timetable, turn, since, instant) for turn in turns(self.tz, year)]
        return "; ".join(note for note in notes if note) or None


def _reached(tz: str, after: int) -> int:
    """Return the latest local time that clocks have shown before a clock change up to this instant."""
    year = to_datetime(after).year
    past = (turn for near in (year - 1, year) for turn in turns(tz, near) if turn.at <= after)
    return max((turn.at + turn.before for turn in past), default=_NEVER)


def _turns_to_come(tz: str, after: int) -> Iterator[Turn]:
    """Yield the clock changes after an instant, and at last one that marks the end of the search."""
    year = to_datetime(after).year
    last_year = min(year + HORIZON_YEARS, LAST_YEAR - 1)
    for each in range(year, last_year + 1):
        for turn in turns(tz, each):
            if turn.at > after:
                yield turn
    yield Turn(year_start(last_year + 1), 0, -86400)  # back by more than any offset, so no times are left out at it


def _turns_between(tz: str, after: int, end: int) -> Iterator[Turn]:
    for year in range(to_datetime(after).year, to_datetime(end).year + 1):
        for turn in turns(tz, year):
            if after < turn.at < end:
                yield turn


@lru_cache(maxsize=8192)
def _parse(expression: str, tz: str) -> Cron:
    if not expression:
        raise InvalidCron(expression, "empty cron expression")
    if len(expression) > LONGEST_EXPRESSION:
        raise InvalidCron(expression, f"it must have at most {LONGEST_EXPRESSION} characters, not {len(expression)}")
    rest = expression
    if prefix := _PREFIX.match(expression):
        tz, rest = prefix["tz"], expression[prefix.end() :]
        if not rest:
            raise InvalidCron(expression, "nothing follows the time zone; write five fields or a descriptor after it")
    try:
        timetable = _parse_every(rest) if rest.startswith("@every") else _parse_calendar(rest)
        return Cron(expression, check_zone(tz), timetable)
    except (BadField, UnknownZone) as error:
        raise InvalidCron(expression, str(error)) from error


def _parse_calendar(text: str) -> Calendar:
    if text.startswith("@"):
        if text not in DESCRIPTORS:
            raise BadField(f"unknown descriptor {text!r} (allowed: {', '.join(DESCRIPTORS)} and @every <duration>)")
        text = DESCRIPTORS[text]
    fields = re.split(r"[ \t]+", stripped) if (stripped := text.strip(" \t")) else []
    kinds = (cron_fields.MINUTE, cron_fields.HOUR, cron_fields.DAY, cron_fields.MONTH, cron_fields.WEEKDAY)
    if len(fields) != len(kinds):
        hint = "; seconds and years are not supported" if len(fields) > len(kinds) else ""
        names = ", ".join(kind.name for kind in kinds)
        raise BadField(f"expected exactly 5 fields ({names}), found {len(fields)}{hint}")
    return Calendar(*(kind.parse(field) for kind, field in zip(kinds, fields, strict=True)))


def _parse_every(text: str) -> timedelta:
    duration = text.removeprefix("@every ")
    # Elsewhere a bare number means seconds. Here half of all readers would take it for minutes.
    if duration == text or duration != duration.strip() or not duration[-1:].isalpha():
        raise BadField(f"{text!r} must be '@every <duration>': one space, then something like 30s, 5m or 1h30m")
    try:
        length = parse_duration(duration)
    except InvalidDuration as error:
        raise BadField(f"@every: {error}") from error
    if length < SECOND or length > LONGEST_EVERY or length % SECOND:
        raise BadField(f"@every must have a whole number of seconds from 1s to {LONGEST_EVERY.days}d, not {duration!r}")
    return length
