"""How is the installation doing, now and over time? This is read from counts in the database, without counting jobs.

A caller that shows this to several people at once should read it once for all of them: see `doors/dashboard/live.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pulse.model.ids import bucket_of_topic
from pulse.model.jobs import JobStatus
from pulse.model.statistics import (
    ALL_TOPICS,
    ENDED_BADLY,
    ENDED_WELL,
    Concern,
    ConcernKind,
    Event,
    Overview,
    Point,
    Range,
    TopicFacts,
    Total,
    draw,
    failing_share,
)
from pulse.model.text import check_topic
from pulse.store import workers as workers_store
from pulse.store.installation import read_clock
from pulse.store.jobs import changes
from pulse.store.statistics import overview, series
from pulse.store.statistics.counts import count_jobs
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pulse.model.workers import WorkerSeen
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.statistics.overview import Concerns, Snapshot
    from pulse.store.statistics.series import RecentEvents

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONG_WAIT = timedelta(minutes=5)  # a job that has waited longer is a concern
MAX_ALIKE = 3  # concerns of one kind that are listed one by one
LATE = timedelta(seconds=10)  # a schedule or an alarm that is later is a concern
FEW_JOBS = 20  # of a topic and a state, from which the tasks of a topic are read
ENDED = (ENDED_WELL, *ENDED_BADLY)

Events = dict[str, dict[Event, int]]  # by topic


class Statistics:
    """The statistics of one database."""

    def __init__(self, database: Database, *, buckets: int) -> None:
        self._database = database
        self._buckets = list(range(buckets))

    async def overview(self) -> Overview:
        """Return the current state of the installation, by a few small reads, the same for any number of jobs."""
        return await self._database.run(self._overview)

    async def points(self, shown: Range, topic: str | None = None) -> list[Point]:
        """Return the points of a chart of the last hour, day or week, for one topic or for all together."""
        name = ALL_TOPICS if topic is None else check_topic(topic)
        buckets = self._buckets if topic is None else [self._home(name)]
        step = shown.span.length

        async def work(conn: Connection) -> list[Point]:
            now = await read_clock(conn)
            end = now - (now - EPOCH) % step
            start = end - shown.length
            samples = await series.read_series(conn, buckets=buckets, span=shown.span, topic=name, since=start)
            return draw(samples, start, end, step)

        return await self._database.run(work)

    async def totals(self) -> list[Total]:
        """Return the counts of all events since the beginning, by topic. They are exact."""
        return await self._database.run(lambda conn: series.read_totals(conn, buckets=self._buckets))

    async def recent_tasks(self, topics: Sequence[str]) -> list[tuple[str, str]]:
        """Return pairs of a topic and a task in it, as found in a few jobs of each topic."""
        homes = [self._home(topic) for topic in topics]
        return await self._database.run(
            lambda conn: overview.recent_tasks(conn, buckets=homes, topics=topics, limit=FEW_JOBS)
        )

    def _home(self, topic: str) -> int:
        return bucket_of_topic(topic, len(self._buckets))

    async def _overview(self, conn: Connection) -> Overview:
        counts = await count_jobs(conn)
        pauses = {pause.topic for pause in await changes.list_pauses(conn)}
        recent = await series.read_recent(conn, buckets=self._buckets)
        concerns = await overview.read_concerns(conn)
        waiting = sorted(topic for topic, states in counts.items() if states.get(JobStatus.PENDING))
        oldest = await overview.oldest_pending(conn, buckets=[self._home(topic) for topic in waiting], topics=waiting)
        workers = await workers_store.list_workers(conn)
        snapshot = await overview.oldest_snapshot(conn)

        window = _window(concerns.now)
        minute, quarter = _by_topic(recent, "minute"), _by_topic(recent, "quarter")
        topics = [
            TopicFacts(
                topic,
                counts.get(topic, {}),
                bool(pauses & {topic, ALL_TOPICS}),
                oldest.get(topic),
                _rate(minute, topic, [Event.SUBMITTED], window),
                _rate(minute, topic, ENDED, window),
                failing_share(quarter.get(topic, {})),
            )
            for topic in sorted(counts.keys() | pauses - {ALL_TOPICS})
        ]
        return Overview(
            at=concerns.now,
            topics=topics,
            workers=workers,
            concerns=find_concerns(topics, workers, concerns, snapshot),
            rate_in=_rate(minute, ALL_TOPICS, [Event.SUBMITTED], window),
            rate_out=_rate(minute, ALL_TOPICS, ENDED, window),
            failing=failing_share(quarter.get(ALL_TOPICS, {})),
            broken_schedules=concerns.broken_schedules,
            failing_alarms=concerns.failing_alarms,
            schedules_overdue=concerns.schedules_overdue or timedelta(),
            alarms_overdue=concerns.alarms_overdue or timedelta(),
        )


def _window(now: datetime) -> float:
    """Return the seconds since the beginning of the minute before this one."""
    return ((now - EPOCH) % timedelta(minutes=1)).total_seconds() + 60


def _by_topic(recent: Iterable[RecentEvents], span: str) -> Events:
    by_topic: Events = {}
    for each in recent:
        if each.span == span:
            events = by_topic.setdefault(each.topic, {})
            events[each.event] = events.get(each.event, 0) + each.jobs
    return by_topic


def _rate(minute: Mapping[str, Mapping[Event, int]], topic: str, events: Iterable[Event], window: float) -> float:
    counts = minute.get(topic, {})
    return sum(counts.get(event, 0) for event in events) / window


# --- what needs attention


def find_concerns(
    topics: Sequence[TopicFacts], workers: Sequence[WorkerSeen], concerns: Concerns, snapshot: Snapshot | None
) -> list[Concern]:
    found = [*_of_dead_letters(topics), *_of_waiting(topics, workers, concerns.now), *_of_pauses(topics)]
    found += _of_schedules(concerns) + _of_alarms(concerns)
    if snapshot is not None:
        found.append(_of_horizon(snapshot))
    return sorted(found, key=lambda concern: not concern.is_urgent)


def _of_dead_letters(topics: Sequence[TopicFacts]) -> list[Concern]:
    dead = {topic.topic: topic.counts.get(JobStatus.DEAD_LETTERED, 0) for topic in topics}
    names = sorted((name for name, jobs in dead.items() if jobs), key=lambda name: -dead[name])
    return _each_or_all(
        ConcernKind.DEAD_LETTERS,
        names,
        lambda name: f"{_many(dead[name], 'dead letter')} in {name}",
        f"{_many(sum(dead.values()), 'dead letter')} in",
    )


def _of_waiting(topics: Sequence[TopicFacts], workers: Sequence[WorkerSeen], now: datetime) -> list[Concern]:
    waits = {
        topic.topic: now - topic.oldest_at for topic in topics if topic.oldest_at is not None and not topic.is_paused
    }
    served = {topic for worker in workers for topic in worker.topics}
    unserved = [name for name in waits if name not in served]
    late = sorted((name for name in waits if waits[name] > LONG_WAIT), key=lambda name: -waits[name])
    return _each_or_all(
        ConcernKind.NO_WORKERS,
        unserved,
        lambda name: f"no worker is connected for {name}, where jobs wait",
        "no worker is connected, though jobs wait, for",
    ) + _each_or_all(
        ConcernKind.WAITING,
        late,
        lambda name: f"the oldest job of {name} has waited {_length(waits[name])}",
        f"jobs have waited up to {_length(max(waits.values(), default=LONG_WAIT))} in",
    )


def _of_pauses(topics: Sequence[TopicFacts]) -> list[Concern]:
    waiting = {topic.topic: topic.counts.get(JobStatus.PENDING, 0) for topic in topics if topic.is_paused}
    return _each_or_all(
        ConcernKind.PAUSED,
        list(waiting),
        lambda name: f"{name} is paused, {_many(waiting[name], 'job')} waiting",
        f"{_many(sum(waiting.values()), 'job')} waiting, because paused, in",
        is_urgent=False,
    )


def _each_or_all(
    kind: ConcernKind, names: Sequence[str], of_one: Callable[[str], str], of_all: str, *, is_urgent: bool = True
) -> list[Concern]:
    """Return a concern for each topic or, if there are many topics, a single one that can be read at a glance."""
    if len(names) <= MAX_ALIKE:
        return [Concern(kind, of_one(name), is_urgent=is_urgent, topic=name) for name in names]
    text = f"{of_all} {len(names):,} topics: {', '.join(names[:MAX_ALIKE])} and {len(names) - MAX_ALIKE:,} more"
    return [Concern(kind, text, is_urgent=is_urgent)]


def _of_schedules(concerns: Concerns) -> list[Concern]:
    found = []
    if concerns.broken_schedules:
        found.append(
            Concern(ConcernKind.BROKEN_SCHEDULES, _broken(concerns.broken_schedules, "schedule is", "schedules are"))
        )
    if (late := concerns.schedules_overdue) is not None and late > LATE:
        found.append(Concern(ConcernKind.LATE_SCHEDULES, f"a schedule is {_length(late)} late and was not fired"))
    return found


def _of_alarms(concerns: Concerns) -> list[Concern]:
    found = []
    if concerns.failed_alarms:
        found.append(
            Concern(ConcernKind.FAILED_ALARMS, f"{_many(concerns.failed_alarms, 'alarm')} failed for good today")
        )
    if (late := concerns.alarms_overdue) is not None and late > LATE:
        found.append(Concern(ConcernKind.LATE_ALARMS, f"an alarm is {_length(late)} late and was not delivered"))
    if concerns.failing_alarms:
        text = f"{_many(concerns.failing_alarms, 'alarm')} could not be delivered yet and will be tried again"
        found.append(Concern(ConcernKind.FAILING_ALARMS, text, is_urgent=False))
    return found


def _of_horizon(snapshot: Snapshot) -> Concern:
    name = f" ({snapshot.application})" if snapshot.application else ""
    text = (
        f"process {snapshot.pid}{name} of Postgres has a transaction open for {_length(snapshot.age)}: "
        "nothing finished since can be vacuumed, and claims get slower"
    )
    return Concern(ConcernKind.PINNED_HORIZON, text)


def _broken(number: int, one: str, several: str) -> str:
    return f"{_counted(number)} {one if number == 1 else several} broken and will not fire"


def _many(number: int, noun: str) -> str:
    return f"{_counted(number)} {noun}{'' if number == 1 else 's'}"


def _counted(number: int) -> str:
    return f"{number:,}"


def _length(length: timedelta) -> str:
    """Return a length of time, rounded down if it is long, so that a page with it need not change every second."""
    step = 1 if length < LONG_WAIT else 60 if length < timedelta(days=1) else 3600
    return format_duration(timedelta(seconds=int(length.total_seconds() // step * step)))
