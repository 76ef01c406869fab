"""When should a timetable have come round? Worked out the slow way, by rules written down a second time.

Nothing here knows how `pulse.timing` does it. Instants are whole seconds since 1970 in UTC, and a zone is its offset at
each minute. A wild timetable is every real minute that matches. A fixed one is every wall clock time that matches,
once: at its first pass, or, where the clock leaves it out, at the moment of the jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE, QUARTER, HOUR, DAY = 60, 900, 3600, 86400
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))


class Fields(NamedTuple):
    minutes: list[int]
    hours: list[int]
    days: set[int]
    months: set[int]
    weekdays: set[int]
    is_wild: bool
    both_choose: bool  # day and weekday: either will do

    def has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.both_choose else by_day and by_weekday


class Zone(NamedTuple):
    first: int
    offsets: list[int]  # of each minute from there on

    def offset(self, instant: int) -> int:
        return self.offsets[(instant - self.first) // MINUTE]

    def jumps(self) -> Iterator[tuple[int, int, int]]:
        """When the clock is changed, what it would have shown, and what it shows."""
        for number in range(1, len(self.offsets)):
            before, after = self.offsets[number - 1], self.offsets[number]
            if before != after:
                at = self.first + number * MINUTE
                yield at, at + before, at + after


@cache
def zone_of(name: str, begin: int, end: int) -> Zone:
    place = ZoneInfo(name)
    first = begin - 3 * DAY
    first -= first % DAY
    found: list[int] = []
    for quarter in range(first, end + 3 * DAY, QUARTER):
        offset = _offset(place, quarter)
        is_even = offset == _offset(place, quarter + QUARTER)
        found += [offset if is_even else _offset(place, quarter + minute * MINUTE) for minute in range(15)]
    return Zone(first, found)


def _offset(place: ZoneInfo, instant: int) -> int:
    offset = datetime.fromtimestamp(instant, place).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


@cache
def of_cron(text: str, zone_name: str, begin: int, end: int) -> Sequence[int]:
    """All of them, from one instant and before another."""
    fields, tz = read(text), zone_of(zone_name, begin, end)
    found = set(_real_minutes(fields, tz) if fields.is_wild else _wall_times(fields, tz))
    return sorted(instant for instant in found if begin <= instant < end)


def of_interval(every: int, anchor: int, begin: int, end: int) -> Sequence[int]:
    first = anchor + -(-(begin - anchor) // every) * every
    return range(first, end, every)


def _real_minutes(fields: Fields, tz: Zone) -> Iterator[int]:
    hours, minutes = set(fields.hours), set(fields.minutes)
    for number, offset in enumerate(tz.offsets):
        wall = tz.first + number * MINUTE + offset
        if wall % HOUR // MINUTE in minutes and wall % DAY // HOUR in hours and fields.has(_date(wall - wall % DAY)):
            yield wall - offset


def _wall_times(fields: Fields, tz: Zone) -> Iterator[int]:
    begin, end = tz.first + DAY, tz.first + len(tz.offsets) * MINUTE - DAY
    jumps, offsets = list(tz.jumps()), sorted(set(tz.offsets), reverse=True)
    for day in range(begin - begin % DAY, end, DAY):
        if fields.has(_date(day)):
            for hour in fields.hours:
                for minute in fields.minutes:
                    wall = day + hour * HOUR + minute * MINUTE
                    passes = [wall - offset for offset in offsets if tz.offset(wall - offset) == offset]
                    yield min(passes) if passes else _jump_over(wall, jumps)


def _jump_over(wall: int, jumps: list[tuple[int, int, int]]) -> int:
    [at] = [at for at, before, after in jumps if before <= wall < after]
    return at


@cache
def _date(midnight: int) -> date:
    return datetime.fromtimestamp(midnight, UTC).date()


def read(text: str) -> Fields:
    texts = text.split(" ")
    minutes, hours, days, months, weekdays = (
        _values(field, *limits) for field, limits in zip(texts, RANGES, strict=True)
    )
    is_wild = any(item.startswith("*") for field in texts[:2] for item in field.split(","))
    both_choose = "*" not in texts[2].split(",") and "*" not in texts[4].split(",")
    return Fields(sorted(minutes), sorted(hours), days, months, weekdays, is_wild, both_choose)


def _values(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        first = least if low == "*" else int(low)
        last = int(high) if high else most if step or low == "*" else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found
