"""When is something due that happens once, at intervals, or by a cron expression?

The instants of a timetable are its occurrences. They lie at or after `starts_at` and before `ends_at`. What happens at
them is decided elsewhere.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pulse.timing.cron import Cron, NoFutureTime, Occurrence
from pulse.timing.duration import format_duration
from pulse.timing.zones import load_zone

if TYPE_CHECKING:
    from collections.abc import Iterator

MOMENT = timedelta(microseconds=1)
_WALK = 64  # occurrences that are computed one by one; more are counted


class Missed(NamedTuple):
    """The number of occurrences up to an instant, and the newest of them in order."""

    total: int
    newest: list[datetime]


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """A timetable with one of `run_at`, `every` and `cron`. Its methods raise InvalidCron if `cron` cannot be read."""

    run_at: datetime | None = None
    every: timedelta | None = None
    anchor: datetime | None = None  # with `every`: each occurrence is whole intervals away from this instant
    cron: str | None = None
    tz: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first occurrence strictly after an instant, or None if there is none."""
        if self.starts_at is not None:
            instant = max(instant, self.starts_at - MOMENT)
        following = self._next_after(instant)
        is_over = following is not None and self.ends_at is not None and following >= self.ends_at
        return None if is_over else following

    def _next_after(self, instant: datetime) -> datetime | None:
        if self.run_at is not None:
            return self.run_at if self.run_at > instant else None
        if self.every is not None:
            assert self.anchor is not None
            try:
                return self.anchor + ((instant - self.anchor) // self.every + 1) * self.every
            except OverflowError:
                return None
        assert self.cron is not None
        return _next_of_cron(self.cron, self.tz, instant)

    def upto(self, first: datetime, until: datetime, *, newest: int = 1) -> Missed:
        """Return the occurrences from `first`, which must be an occurrence, up to `until`."""
        if self.ends_at is not None:
            until = min(until, self.ends_at - MOMENT)
        walk = [first]
        for occurrence in self.after(first):
            if occurrence > until:
                return Missed(len(walk), walk[-newest:])
            walk.append(occurrence)
            if len(walk) > max(_WALK, newest):
                break
        else:
            return Missed(len(walk), walk[-newest:])
        count = 1 + self._count_between(first, until)
        start = self._before_newest(first, until, newest)
        last = [occurrence for occurrence, _ in zip(self.after(start), range(newest), strict=False)]
        return Missed(count, last)

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield all occurrences after an instant, in order."""
        occurrence = self.next_after(instant)
        while occurrence is not None:
            yield occurrence
            occurrence = self.next_after(occurrence)

    def _count_between(self, after: datetime, until: datetime) -> int:
        if self.every is not None:
            return (until - after) // self.every  # `after` is an occurrence
        return self._parsed.count_between(after, until)

    def _before_newest(self, first: datetime, until: datetime, newest: int) -> datetime:
        """Return an instant after which there are exactly `newest` occurrences up to `until`."""
        if self.every is not None:
            return until - (until - first) % self.every - newest * self.every
        low, high = first, until
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) / 2
            if self._count_between(middle, until) >= newest:
                low = middle
            else:
                high = middle
        return low

    def preview(self, n: int, after: datetime) -> list[Occurrence]:
        """Return the next `n` occurrences. Each has a note if a clock change affects it."""
        if self.cron is None:
            instants = zip(self.after(after), range(n), strict=False)
            return [Occurrence(at, at.astimezone(load_zone(self.tz))) for at, _ in instants]
        if self.starts_at is not None:
            after = max(after, self.starts_at - MOMENT)
        occurrences = self._parsed.preview(n, after)
        return [each for each in occurrences if self.ends_at is None or each.at < self.ends_at]

    def explain(self) -> str:
        """Return what it means, in words."""
        if self.run_at is not None:
            return f"once, at {self.run_at.isoformat(timespec='seconds')}"
        if self.every is not None:
            return f"every {format_duration(self.every)}"
        return self._parsed.explain()

    @property
    def _parsed(self) -> Cron:
        assert self.cron is not None
        return Cron.parse(self.cron, self.tz)


@lru_cache(maxsize=8192)  # schedules that are due together often have the same expression
def _next_of_cron(expression: str, tz: str, instant: datetime) -> datetime | None:
    try:
        return Cron.parse(expression, tz).next_after(instant)
    except NoFutureTime:
        return None
