"""Which statistics are there about jobs: how many, how fast, and how long they took?"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from pulse.model.jobs import JobStatus  # noqa: TC001  msgspec reads annotations
from pulse.model.workers import WorkerSeen  # noqa: TC001

ALL_TOPICS = "*"
UNKNOWN = -1  # the class of a length of time that is not known, or that an event does not have

# In seconds. A length of time is in class n if it has reached n of these; pulse.took_class in SQL has the same bounds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21600, 86400)


def took_class(seconds: float) -> int:
    return bisect_right(BOUNDS, seconds)


class Span(StrEnum):
    """The length of time that one point of a chart stands for."""

    MINUTE = "minute"
    QUARTER = "quarter"
    HOUR = "hour"

    @property
    def length(self) -> timedelta:
        return timedelta(minutes={"minute": 1, "quarter": 15, "hour": 60}[self.value])


class Range(StrEnum):
    """The length of time that a chart shows."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"

    @property
    def length(self) -> timedelta:
        return {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}[self.value]

    @property
    def span(self) -> Span:
        return {"hour": Span.MINUTE, "day": Span.QUARTER, "week": Span.HOUR}[self.value]


class Event(StrEnum):
    """An event in the life of a job that is counted."""

    SUBMITTED = "submitted"
    STARTED = "started"
    COMPLETED = "completed"
    RETRIED = "retried"
    DEAD_LETTERED = "dead_lettered"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "released"
    REPLAYED = "replayed"
    REAPED = "reaped"  # retried or dead-lettered because the lease ran out; also counted as one of those


ENDED_WELL = Event.COMPLETED
ENDED_BADLY = (Event.RETRIED, Event.DEAD_LETTERED)
RAN = (Event.COMPLETED, Event.RETRIED, Event.DEAD_LETTERED, Event.SNOOZED)  # their `took` is how long they ran


class Total(msgspec.Struct, frozen=True):
    """The count of one event in a topic since the beginning. It is exact, and never falls while the topic has jobs."""

    topic: str
    event: Event
    took: int
    jobs: int
    seconds: float


class Sample(msgspec.Struct, frozen=True):
    """The count of one event in one span of time, for jobs of one class of lengths."""

    at: datetime
    event: Event
    took: int
    jobs: int
    seconds: float


class Point(msgspec.Struct, frozen=True):
    """One point of a chart: the counts of the span that begins at `at`, and the median and 95 % of its times."""

    at: datetime
    submitted: int
    completed: int
    failed: int  # attempts: retried and dead-lettered
    wait_p50: float | None  # seconds; none: nothing was measured
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None


class TopicFacts(msgspec.Struct, frozen=True):
    topic: str
    counts: dict[JobStatus, int]
    is_paused: bool
    oldest_at: datetime | None  # when the wait of the oldest pending job began
    rate_in: float  # jobs a second, over the last minute or two
    rate_out: float
    failing: float | None  # the share of attempts that failed in the last 15 to 30 minutes; none: there were none


class ConcernKind(StrEnum):
    DEAD_LETTERS = "dead_letters"
    WAITING = "waiting"  # too long
    NO_WORKERS = "no_workers"
    BROKEN_SCHEDULES = "broken_schedules"
    LATE_SCHEDULES = "late_schedules"
    FAILING_ALARMS = "failing_alarms"
    FAILED_ALARMS = "failed_alarms"
    LATE_ALARMS = "late_alarms"
    PINNED_HORIZON = "pinned_horizon"
    PAUSED = "paused"
    OTHER = "other"  # a kind that only a newer release knows


class Concern(msgspec.Struct, frozen=True):
    """A sentence about something that needs attention. Urgent concerns come first."""

    kind: ConcernKind
    text: str
    is_urgent: bool = True
    topic: str | None = None


class Overview(msgspec.Struct, frozen=True):
    """The state of the whole installation at one instant."""

    at: datetime  # by the database's clock
    topics: list[TopicFacts]
    workers: list[WorkerSeen]
    concerns: list[Concern]
    rate_in: float
    rate_out: float
    failing: float | None
    broken_schedules: int  # counted up to a thousand, like those of alarms
    failing_alarms: int
    schedules_overdue: timedelta  # how late the latest is
    alarms_overdue: timedelta

    def count(self, status: JobStatus) -> int:
        return sum(topic.counts.get(status, 0) for topic in self.topics)


# --- from samples to points


def draw(samples: Sequence[Sample], start: datetime, end: datetime, step: timedelta) -> list[Point]:
    """Return a point for every span from `start` up to `end`, also for those without samples."""
    by_time: dict[datetime, list[Sample]] = {}
    for sample in samples:
        by_time.setdefault(sample.at, []).append(sample)
    number = max(0, (end - start) // step + 1)
    return [_point(start + step * place, by_time.get(start + step * place, ())) for place in range(number)]


def _point(at: datetime, samples: Iterable[Sample]) -> Point:
    jobs: dict[Event, int] = {}
    waits: dict[int, int] = {}
    runs: dict[int, int] = {}
    for sample in samples:
        jobs[sample.event] = jobs.get(sample.event, 0) + sample.jobs
        lengths = waits if sample.event is Event.STARTED else runs if sample.event in RAN else None
        if lengths is not None and sample.took != UNKNOWN:
            lengths[sample.took] = lengths.get(sample.took, 0) + sample.jobs
    return Point(
        at,
        jobs.get(Event.SUBMITTED, 0),
        jobs.get(ENDED_WELL, 0),
        sum(jobs.get(event, 0) for event in ENDED_BADLY),
        quantile(waits, 0.5),
        quantile(waits, 0.95),
        quantile(runs, 0.5),
        quantile(runs, 0.95),
    )


def quantile(classes: Mapping[int, int], share: float) -> float | None:
    """Return the seconds within which that share was done, interpolated within its class; None if nothing was."""
    wanted = share * sum(classes.values())
    if not wanted:
        return None
    passed = 0
    for took in sorted(classes):
        if passed + classes[took] >= wanted:
            low = BOUNDS[took - 1] if took else 0.0
            high = BOUNDS[took] if took < len(BOUNDS) else BOUNDS[-1]
            return low + (high - low) * (wanted - passed) / classes[took]
        passed += classes[took]
    return None


def failing_share(jobs: Mapping[Event, int]) -> float | None:
    """Return the share of the ended attempts that failed."""
    bad = sum(jobs.get(event, 0) for event in ENDED_BADLY)
    ended = bad + jobs.get(ENDED_WELL, 0)
    return bad / ended if ended else None
