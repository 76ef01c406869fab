"""Which metrics does a scrape return? The counts in the database, and the measurements of this process.

A scrape costs a constant number of small statements, at most once a second for all scrapers, and never waits long:
while the database is away, database_up is 0 and only the metrics of the process are returned.
docs/reference/metrics.md has every name.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.errors import PulseError
from pulse.model.jobs import JobStatus
from pulse.model.prometheus_text import Family, Sample, buckets, write
from pulse.model.statistics import BOUNDS, RAN, UNKNOWN, Event
from pulse.store.schedules.lists import count_schedules
from pulse.version import __version__

if TYPE_CHECKING:
    from pulse.engine.duties.loops import LoopHealth
    from pulse.engine.instruments import Histogram, Instruments
    from pulse.engine.statistics import Statistics
    from pulse.model.statistics import Overview, TopicFacts, Total
    from pulse.store.connections.pool import Database

FRESH = 1.0  # seconds for which an answer is cached
PATIENCE = 2.5  # seconds for the database; Prometheus waits for ten
MAX_TOPICS = 200  # with a label of their own
OTHER = "(other)"
MAX_SCHEDULES = 100_000  # that are counted

# The events that end an attempt or a job.
OUTCOMES = (
    Event.COMPLETED,
    Event.RETRIED,
    Event.DEAD_LETTERED,
    Event.CANCELLED,
    Event.SNOOZED,
    Event.RELEASED,
)


class Figures(NamedTuple):
    """The figures that were read from the database."""

    overview: Overview
    totals: Sequence[Total]
    schedules: Mapping[str, int]


class Metrics:
    """The metrics of this process, as scrapers get them."""

    def __init__(
        self, database: Database, statistics: Statistics, instruments: Instruments, healths: Sequence[LoopHealth]
    ) -> None:
        self._database = database
        self._statistics = statistics
        self._instruments = instruments
        self.healths = healths
        self._labels = TopicLabels()
        self._lock = asyncio.Lock()
        self._text = ""
        self._written_at = float("-inf")

    async def scrape(self) -> str:
        async with self._lock:  # scrapes that come meanwhile share the answer
            if time.monotonic() - self._written_at >= FRESH:
                figures = await self._read_figures()
                process = list(self._of_process(is_up=figures is not None))
                # In a thread: two hundred topics make twelve thousand lines.
                self._text = await asyncio.to_thread(self._write, process, figures)
                self._written_at = time.monotonic()
            return self._text

    async def _read_figures(self) -> Figures | None:
        try:
            async with asyncio.timeout(PATIENCE):
                overview, totals = await self._statistics.overview(), await self._statistics.totals()
                schedules = await self._database.run(lambda conn: count_schedules(conn, limit=MAX_SCHEDULES))
        except (TimeoutError, PulseError):
            return None
        return Figures(overview, totals, schedules)

    def _write(self, process: list[Family], figures: Figures | None) -> str:
        if figures is None:
            return write(process)
        self._labels.update(figures)
        return write([*process, *of_jobs(figures, self._labels), *of_everything(figures)])

    def _of_process(self, *, is_up: bool) -> Iterator[Family]:
        measured = self._instruments
        outcomes = sorted(measured.wake_outcomes.items())
        yield _one("build_info", "gauge", "The release that runs here.", 1, version=__version__)
        yield _one("database_up", "gauge", "1 if the database has just answered.", int(is_up))
        yield _one(
            "database_errors_total", "counter", "Connections lost and statements refused.", self._database.errors
        )
        yield _one("loop_lag_seconds", "gauge", "The worst recent lag of the event loop.", measured.loop_lag)
        ages = [(health.name, health.age) for health in self.healths]
        errors = [(health.name, health.errors) for health in self.healths]
        yield _many("duty_age_seconds", "gauge", "Time since a duty last succeeded.", "duty", ages)
        yield _many("duty_errors_total", "counter", "Steps that failed.", "duty", errors)
        yield _histogram("claim_seconds", "How long claim statements took.", measured.claims)
        yield _histogram("schedule_lateness_seconds", "How late schedules fired.", measured.fires)
        yield _histogram("alarm_lateness_seconds", "How late deliveries of alarms began.", measured.wakes)
        yield _many("wakes_total", "counter", "Deliveries of alarms that ended.", "outcome", outcomes)


class TopicLabels:
    """The topics that have a label of their own. The busiest get one, and a topic that has one keeps it.

    Counters must not jump. So a topic is not moved to the others when another one becomes busier, and none of the
    others gets a label when there is room again: what it has counted there would be missing.
    """

    def __init__(self, limit: int = MAX_TOPICS) -> None:
        self._limit = limit
        self._own: set[str] = set()
        self._others: set[str] = set()

    def update(self, figures: Figures) -> None:
        submitted: defaultdict[str, int] = defaultdict(int)
        for facts in figures.overview.topics:
            submitted[facts.topic] += sum(facts.counts.values())
        for total in figures.totals:
            submitted[total.topic] += total.jobs
        self._own &= submitted.keys()
        self._others &= submitted.keys()
        new = sorted(submitted.keys() - self._own - self._others, key=lambda topic: (-submitted[topic], topic))
        room = self._limit - len(self._own)
        self._own |= set(new[:room])
        self._others |= set(new[room:])

    def of(self, topic: str) -> str:
        return topic if topic in self._own else OTHER


# --- jobs, by topic


def of_jobs(figures: Figures, labels: TopicLabels) -> Iterator[Family]:
    counts: defaultdict[tuple[str, str], float] = defaultdict(float)
    oldest: defaultdict[str, float] = defaultdict(float)
    for facts in figures.overview.topics:
        label = labels.of(facts.topic)
        for status in JobStatus:
            counts[label, status.value.lower()] += facts.counts.get(status, 0)
        oldest[label] = max(oldest[label], _waited(facts, figures.overview))
    yield _by_topic("jobs", "gauge", "Jobs by state.", "status", counts)
    yield _many(
        "oldest_pending_seconds", "gauge", "How long the oldest pending job has waited.", "topic", oldest.items()
    )
    yield from _of_totals(figures.totals, labels)


def _waited(facts: TopicFacts, overview: Overview) -> float:
    return 0.0 if facts.oldest_at is None else max(0.0, (overview.at - facts.oldest_at).total_seconds())


def _of_totals(totals: Iterable[Total], labels: TopicLabels) -> Iterator[Family]:
    jobs: defaultdict[tuple[str, Event], int] = defaultdict(int)
    waits, runs = Lengths(), Lengths()
    for total in totals:
        label = labels.of(total.topic)
        jobs[label, total.event] += total.jobs
        if total.event is Event.STARTED:
            waits.add(label, total)
        elif total.event in RAN:
            runs.add(label, total)
    topics = sorted({label for label, _ in jobs})
    submitted, reaped = ([(topic, jobs[topic, event]) for topic in topics] for event in (Event.SUBMITTED, Event.REAPED))
    ended = {(topic, event.value): jobs[topic, event] for topic in topics for event in OUTCOMES}
    yield _many("jobs_submitted_total", "counter", "Jobs submitted.", "topic", submitted)
    yield _by_topic("jobs_ended_total", "counter", "Attempts and jobs that ended, by how.", "outcome", ended)
    yield _many("leases_reaped_total", "counter", "Leases that ran out and were taken away.", "topic", reaped)
    yield waits.family("job_wait_seconds", "From ready to claimed.")
    yield runs.family("job_run_seconds", "From claimed to ended, of attempts.")


class Lengths:
    """Histograms by topic, in the classes that the database counts."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def add(self, label: str, total: Total) -> None:
        if total.took != UNKNOWN:
            self._counts[label][total.took] += total.jobs
            self._seconds[label] += total.seconds

    def family(self, name: str, about: str) -> Family:
        samples = [
            sample
            for label, counts in sorted(self._counts.items())
            for sample in buckets({"topic": label}, BOUNDS, counts, self._seconds[label])
        ]
        return Family(f"pulse_{name}", "histogram", about, samples)


# --- the whole installation


def of_everything(figures: Figures) -> Iterator[Family]:
    overview, workers = figures.overview, figures.overview.workers
    paused = sum(facts.is_paused for facts in overview.topics)
    late, late_alarms = overview.schedules_overdue.total_seconds(), overview.alarms_overdue.total_seconds()
    yield _one("topics_paused", "gauge", "Topics that are paused.", paused)
    yield _one("workers", "gauge", "Workers connected to servers.", len(workers))
    yield _one("worker_slots", "gauge", "Jobs they can run at a time.", sum(worker.slots for worker in workers))
    yield _one("worker_slots_busy", "gauge", "Jobs they hold.", sum(worker.busy for worker in workers))
    yield _many("schedules", "gauge", "Schedules by state.", "state", figures.schedules.items())
    yield _one("schedule_overdue_seconds", "gauge", "How late the latest schedule is that has not fired.", late)
    yield _one("alarms_overdue_seconds", "gauge", "How late the latest alarm is that is not ready.", late_alarms)


# --- making families


def _one(name: str, kind: str, about: str, value: float, **labels: str) -> Family:
    return Family(f"pulse_{name}", kind, about, [Sample(labels, value)])


def _many(name: str, kind: str, about: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    return Family(f"pulse_{name}", kind, about, [Sample({label: each}, value) for each, value in values])


def _by_topic(name: str, kind: str, about: str, label: str, values: Mapping[tuple[str, str], float]) -> Family:
    samples = [Sample({"topic": topic, label: each}, value) for (topic, each), value in values.items()]
    return Family(f"pulse_{name}", kind, about, samples)


def _histogram(name: str, about: str, histogram: Histogram) -> Family:
    samples = list(buckets({}, histogram.bounds, histogram.counts, histogram.seconds))
    return Family(f"pulse_{name}", "histogram", about, samples)
