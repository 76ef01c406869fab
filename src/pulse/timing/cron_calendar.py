"""Which minutes of a calendar without clock changes does a cron expression name?

Local times are seconds since 1970 as a clock on the wall shows them. Nothing here steps through minutes or days: a day
is found in the bits of its month, and a time in the bits of hours and minutes, so the longest search (five years
without a match) reads 72 months.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulse.timing.cron_fields import Field

_DAY_ONE = date(1970, 1, 1).toordinal()
_SIX_WEEKS = sum(1 << 7 * week for week in range(6))


@dataclass(frozen=True, slots=True)
class Calendar:
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def is_wild(self) -> bool:
        """Tell whether it follows elapsed time through clock changes; other timetables name fixed times."""
        return self.minute.wild or self.hour.wild

    def first_between(self, start: int, end: int) -> int | None:
        """Return the first match at or after `start` and before `end`."""
        day, minute = divmod(-(-start // 60), 1440)
        if (time := self._time_from(minute)) is None or not self._has_day(day):
            time = self._time_from(0)
            next_day = self._day_after(day, last=(end - 1) // 86400)
            if next_day is None:
                return None
            day = next_day
        assert time is not None  # every day that matches has a time
        match = day * 86400 + time * 60
        return match if match < end else None

    def count_between(self, start: int, end: int) -> int:
        """Return how many matches there are at or after `start` and before `end`."""
        if start >= end:
            return 0
        (first, first_minute), (last, last_minute) = (divmod(-(-instant // 60), 1440) for instant in (start, end))
        count = self._days_between(first, last) * self._times_before(1440)
        count -= self._times_before(first_minute) if self._has_day(first) else 0
        return count + (self._times_before(last_minute) if self._has_day(last) else 0)

    def _times_before(self, minute: int) -> int:
        hour, minute = divmod(minute, 60)
        count = _below(self.hour.values, hour).bit_count() * self.minute.values.bit_count()
        return count + (_below(self.minute.values, minute).bit_count() if self.hour.values >> hour & 1 else 0)

    def _days_between(self, first: int, last: int) -> int:
        """Return how many days match, from the first up to but not including the last."""
        begin, end = (date.fromordinal(day + _DAY_ONE) for day in (first, last))
        count = -_below(self.days_in(begin.year, begin.month), begin.day).bit_count()
        year, month = begin.year, begin.month
        while (year, month) < (end.year, end.month):
            count += self.days_in(year, month).bit_count()
            year, month, _ = self._next_month(year, month)
        if (year, month) == (end.year, end.month):
            count += _below(self.days_in(year, month), end.day).bit_count()
        return count

    def _time_from(self, minute: int) -> int | None:
        hour, minute = divmod(minute, 60)
        if self.hour.values >> hour & 1 and (later := _lowest_from(self.minute.values, minute)) is not None:
            return hour * 60 + later
        if (hours := _lowest_from(self.hour.values, hour + 1)) is None:
            return None
        first = _lowest_from(self.minute.values, 0)
        assert first is not None
        return hours * 60 + first

    def _has_day(self, day: int) -> bool:
        local = date.fromordinal(day + _DAY_ONE)
        return bool(self.days_in(local.year, local.month) >> local.day & 1)

    def _day_after(self, day: int, *, last: int) -> int | None:
        start = date.fromordinal(day + _DAY_ONE)
        end = date.fromordinal(last + _DAY_ONE)
        year, month, day_of_month = start.year, start.month, start.day + 1
        while (year, month) <= (end.year, end.month):
            match = _lowest_from(self.days_in(year, month), day_of_month)
            if match is not None:
                return date(year, month, match).toordinal() - _DAY_ONE
            year, month, day_of_month = self._next_month(year, month)
        return None

    def _next_month(self, year: int, month: int) -> tuple[int, int, int]:
        later = _lowest_from(self.month.values, month + 1)
        if later is not None:
            return year, later, 1
        first = _lowest_from(self.month.values, 1)
        assert first is not None
        return year + 1, first, 1

    def days_in(self, year: int, month: int) -> int:
        """Return the matching days of a month as bits. A day matches one of the day fields, or both if one is a `*`."""
        if not self.month.values >> month & 1:
            return 0
        monday_first, length = monthrange(year, month)
        weekdays = (self.weekday.values * _SIX_WEEKS >> (monday_first + 1) % 7) << 1
        both_choose = not (self.day.star or self.weekday.star)
        days = self.day.values | weekdays if both_choose else self.day.values & weekdays
        return days & ((2 << length) - 2)  # no bit 0, and none beyond the month's last day


def _below(bits: int, limit: int) -> int:
    return bits & ((1 << limit) - 1)


def _lowest_from(bits: int, minimum: int) -> int | None:
    rest = bits >> minimum << minimum
    return (rest & -rest).bit_length() - 1 if rest else None
