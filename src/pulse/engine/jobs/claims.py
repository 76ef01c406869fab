"""How does a worker get jobs, and what can it do with those it has claimed? Each claim in a batch gets its own answer.

A claim is named by id and fence, so a worker that has lost one learns of it and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

from pulse.engine.instruments import Instruments
from pulse.engine.jobs.enqueue import place
from pulse.engine.jobs.lists import read_each
from pulse.engine.jobs.lost_claims import LostClaims
from pulse.engine.jobs.low_water_marks import START, LowWaterMarks
from pulse.engine.masks import mask_each, mask_report
from pulse.model.errors import InvalidOption
from pulse.model.ids import bucket_of_id, bucket_of_topic, by_bucket
from pulse.model.jobs import (
    CLAIM_LIMIT,
    Claim,
    JobStatus,
    Lease,
    NewJob,
    Outcome,
    Progress,
    Report,
    ReportStatus,
    Submitted,
    check_size,
)
from pulse.model.text import check_name, check_topic
from pulse.store.installation import read_clock
from pulse.store.jobs import claims as claims_store
from pulse.store.jobs import lookups, submits
from pulse.store.jobs.rows import ClaimKey, Mark, ReadyTopic

if TYPE_CHECKING:
    from pulse.model.ids import Mint
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.jobs.lookups import ClaimRow

log = logging.getLogger("pulse.claims")

LONG_AGO = datetime.min.replace(tzinfo=UTC)
BUSY_PAUSES = (0.002, 0.01, 0.03)  # seconds: a claim with an older snapshot locks a row for no longer than this


class HasLease(Protocol):
    """Anything that names one claim: a lease, a report, a progress note."""

    @property
    def id(self) -> UUID: ...
    @property
    def lease_id(self) -> int: ...


T = TypeVar("T", bound=HasLease)
Move = Callable[["Connection", int, Sequence[T]], Awaitable[list[ClaimKey]]]


class Claims:
    """The use cases of workers, over one database."""

    def __init__(
        self,
        database: Database,
        notifications: Notifications,
        mint: Mint,
        *,
        buckets: int,
        instruments: Instruments | None = None,
    ) -> None:
        self._database = database
        self._notifications = notifications
        self._mint = mint
        self._buckets = buckets
        self._instruments = instruments or Instruments()
        self._lease = database.settings.lease
        self._redaction = database.settings.redaction
        self._marks = LowWaterMarks()
        self.lost = LostClaims(self._lease)
        notifications.on_ready(lambda ready: self._marks.overtaken(ready.topic, ready.priority))
        self._end_listeners: list[Callable[[Iterable[UUID]], None]] = []

    def on_end(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that a report to this process may just have finished. It must not block."""
        self._end_listeners.append(listener)

    # --- claiming

    async def claim(self, topic: str, *, worker: str, slots: int) -> list[Claim]:
        """Lease up to `slots` jobs of a topic to one worker. Ask for free slots only."""
        return await self.claim_for(topic, [check_name("worker", worker)], slots=slots)

    async def claim_for(self, topic: str, workers: Sequence[str], *, slots: int) -> list[Claim]:
        """Lease jobs to several workers at once, in turn. A name may be given several times.

        There may be more jobs as long as any are found, even if fewer than asked for: ask again until there are none.
        """
        check_topic(topic)
        if not workers:
            raise InvalidOption("workers", workers, "have at least one name")
        if not 1 <= slots <= CLAIM_LIMIT:
            raise InvalidOption("slots", slots, f"be a whole number from 1 to {CLAIM_LIMIT}")
        mark = self._marks.where(topic)
        claims = await self._claim_from(mark, topic, workers, slots)
        if len(claims) == slots or mark is START:
            return claims
        if claims:  # the next claim must look before the mark, but these jobs should begin first
            self._marks.look_back(topic)
            return claims
        mark = self._marks.where(topic, found_too_few=True)
        return await self._claim_from(mark, topic, workers, slots) if mark is START else []

    async def _claim_from(self, mark: Mark, topic: str, workers: Sequence[str], slots: int) -> list[Claim]:
        bucket = bucket_of_topic(topic, self._buckets)

        async def work(conn: Connection) -> list[Claim]:
            started = time.perf_counter()  # time the statement alone: an outage before it is no slow scan
            with self._noting_lost_answer(workers):
                claims = await claims_store.claim_jobs(
                    conn, bucket=bucket, topic=topic, workers=workers, limit=slots, lease=self._lease, mark=mark
                )
            took = time.perf_counter() - started
            self._marks.claimed(topic, mark, took, claims)
            self._instruments.claims.note(took)
            return claims

        return await self._database.run(work)

    async def submit_claimed(self, job: NewJob, *, worker: str) -> tuple[Submitted, Claim | None]:
        """Submit one job, leased to a worker that has a free slot, unless its topic is paused or other jobs wait there.

        Only for jobs that `can_be_claimed`. The caller must assign the claim to the worker, or release it.
        """
        [placed] = await place([job], self._mint, buckets=self._buckets, redaction=self._redaction)
        topic = job.routed_topic
        mark = self._marks.where(topic)

        tries = 0

        async def work(conn: Connection) -> tuple[bool, Claim | None]:
            nonlocal tries
            tries += 1
            started = time.perf_counter()
            with self._noting_lost_answer([worker]):
                is_new, claim = await submits.submit_claimed(conn, placed, worker=worker, lease=self._lease, mark=mark)
                if not is_new and tries > 1:  # an earlier try may have submitted it
                    claim = await submits.find_own_claim(conn, placed, worker=worker)
                    return claim is not None and job.id is None, claim
            if claim is not None:
                self._marks.claimed_own(topic, mark, time.perf_counter() - started, claim)
            return is_new, claim

        is_new, claim = await self._database.run(work)
        if is_new and claim is None:
            self._notifications.notify_ready([ReadyTopic(topic, job.priority)])
        return Submitted(placed.id, is_new), claim

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        """Return those of the topics that have jobs waiting and are not paused."""
        buckets = [bucket_of_topic(check_topic(topic), self._buckets) for topic in topics]
        return await self._database.run(lambda conn: claims_store.ready_topics(conn, buckets=buckets, topics=topics))

    # --- heartbeats, progress, reports and releases

    async def heartbeat(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        """Extend leases, all in one batch. The answers tell which of them are lost or cancelled."""

        async def beat(conn: Connection, bucket: int, items: Sequence[Lease]) -> list[ClaimKey]:
            return await claims_store.heartbeat_jobs(conn, bucket=bucket, leases=items, lease=self._lease)

        return await self._answer_each("leases", leases, beat, reserved=True)

    async def progress(self, progress: Sequence[Progress]) -> list[ReportStatus]:
        async def note(conn: Connection, bucket: int, items: Sequence[Progress]) -> list[ClaimKey]:
            return await claims_store.progress_jobs(conn, bucket=bucket, progress=items)

        return await self._answer_each("progress reports", progress, note)

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]:
        """Complete, fail, snooze or discard jobs. To repeat a report is harmless: the first one stands."""
        firsts = {(each.id, each.lease_id): each for each in reversed(reports)}
        if len(firsts) == len(reports):
            return await self._report_each(reports)
        answers = dict(zip(firsts, await self._report_each([*firsts.values()]), strict=True))
        return [_answer_of(each, firsts, answers) for each in reports]

    async def _report_each(self, reports: Sequence[Report]) -> list[ReportStatus]:
        """Report on claims, with one report for each."""
        waits: list[timedelta] = []
        reports = await self._masked(reports)

        async def report(conn: Connection, bucket: int, items: Sequence[Report]) -> list[ClaimKey]:
            return await _report(conn, bucket, items, waits)

        answers = await self._answer_each("reports", reports, report)
        if self._end_listeners:
            ended = [report.id for report in reports]
            for listener in self._end_listeners:
                listener(ended)
        if waits:
            self._notifications.notify_due_soon(min(waits))
        return answers

    async def _masked(self, reports: Sequence[Report]) -> Sequence[Report]:
        """Return the reports with marked fields masked in their errors: a worker may not know which fields are."""
        failed = [report.id for report in reports if report.error or report.traceback] if self._redaction else []
        if not failed:
            return reports
        jobs = await self._database.run(lambda conn: read_each(conn, lookups.get_jobs, failed))
        return await mask_each(
            lambda report: (
                mask_report(self._redaction, report, jobs[report.id].payload) if report.id in jobs else report
            ),
            reports,
        )

    async def release(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        """Release claims whose jobs were never started. They are not charged."""

        async def release(conn: Connection, bucket: int, items: Sequence[Lease]) -> list[ClaimKey]:
            moved, ready = await claims_store.release_jobs(conn, bucket=bucket, leases=items)
            self._notifications.notify_ready(ready)
            return moved

        return await self._answer_each("leases", leases, release)

    async def release_lost(self, workers: Sequence[str], held: Callable[[], Sequence[Lease]]) -> int:
        """Release jobs that were leased to these workers by claims whose answers were lost, and return how many.

        No claim for these workers may be under way or begin before this returns. `held` is called after the time is
        read, so that it has everything that they got until then.
        """
        before = await self._database.run(read_clock)
        after = before - self.lost.since(workers)
        count = await self.release_unheld(workers, held(), after=after, before=before)
        self.lost.released(workers)
        if count:
            log.info("%d jobs were released because the answers to their claims were lost", count)
        return count

    @contextmanager
    def _noting_lost_answer(self, workers: Sequence[str]) -> Iterator[None]:
        asked_at = time.monotonic()
        try:
            yield
        except BaseException:  # any error may have come after the commit
            self.lost.note(workers, asked_at)
            raise

    async def release_unheld(
        self, workers: Sequence[str], held: Sequence[Lease], *, after: datetime = LONG_AGO, before: datetime
    ) -> int:
        """Release the jobs leased to workers between `after` and `before` that they do not hold, and return how many.

        These never reached the workers. Jobs that they got later, perhaps from another server, are not in `held` and
        stay theirs.
        """

        async def work(conn: Connection) -> list[ReadyTopic]:
            released: list[ReadyTopic] = []
            for bucket in range(self._buckets):
                held_here = [lease for lease in held if bucket_of_id(lease.id) == bucket]
                _, ready = await claims_store.release_unheld(
                    conn, bucket=bucket, workers=workers, held=held_here, after=after, before=before
                )
                released += ready
            return released

        ready = await self._database.run(work)
        self._notifications.notify_ready(ready)
        return len(ready)

    async def claims_of(self, leases: Sequence[Lease], *, reserved: bool = False) -> dict[UUID, ClaimRow]:
        """Return the newest claim of each of these jobs, with its worker."""

        async def work(conn: Connection) -> list[ClaimRow]:
            found: list[ClaimRow] = []
            for bucket, ids in by_bucket([lease.id for lease in leases]):
                found += await lookups.read_claims(conn, bucket=bucket, ids=ids)
            return found

        return {row.id: row for row in await self._database.run(work, reserved=reserved)}

    # --- shared

    async def _answer_each(
        self, what: str, items: Sequence[T], move: Move[T], *, reserved: bool = False
    ) -> list[ReportStatus]:
        """Move the items, and return an answer for each. Those whose row is locked are tried again for a moment."""
        check_size(what, items)
        answers = await self._move(items, move, reserved=reserved)
        for pause in BUSY_PAUSES:
            if ReportStatus.BUSY not in answers:
                break
            await asyncio.sleep(pause)
            busy = [number for number, answer in enumerate(answers) if answer is ReportStatus.BUSY]
            again = await self._move([items[number] for number in busy], move, reserved=reserved)
            for number, answer in zip(busy, again, strict=True):
                answers[number] = answer
        return answers

    async def _move(self, items: Sequence[T], move: Move[T], *, reserved: bool) -> list[ReportStatus]:
        """Move the items that can be moved, and find the answers for the others in their rows."""

        async def work(conn: Connection) -> dict[ClaimKey, ReportStatus]:
            answers: dict[ClaimKey, ReportStatus] = {}
            for bucket, group in self._group(items):
                moved = await move(conn, bucket, group)
                if len(moved) < len(group):
                    answers |= await _explain(conn, bucket, group, set(moved))
            return answers

        exceptions = await self._database.run(work, reserved=reserved, of_many=True)
        if not exceptions:
            return [ReportStatus.ACCEPTED] * len(items)
        return [exceptions.get((item.id, item.lease_id), ReportStatus.ACCEPTED) for item in items]

    def _group(self, items: Sequence[T]) -> list[tuple[int, Sequence[T]]]:
        """Return the items by bucket. Nearly always there is only one."""
        if self._buckets == 1:
            return [(0, items)] if items else []
        groups: dict[int, list[T]] = defaultdict(list)
        for item in items:
            groups[bucket_of_id(item.id)].append(item)
        return sorted(groups.items())


def can_be_claimed(job: NewJob) -> bool:
    """Tell whether `submit_claimed` takes a job: a unique key must be checked first, and a later job has to wait."""
    return job.unique_key is None and job.run_at is None and not job.delay


async def _report(conn: Connection, bucket: int, reports: Sequence[Report], waits: list[timedelta]) -> list[ClaimKey]:
    """Record reports, and return the claims that were moved. The waits of jobs to be retried are added to `waits`."""
    completed = [report for report in reports if report.outcome is Outcome.COMPLETE]
    moved = await claims_store.complete_jobs(conn, bucket=bucket, reports=completed) if completed else []
    if len(completed) < len(reports):
        others = [report for report in reports if report.outcome is not Outcome.COMPLETE]
        failed, wait = await claims_store.fail_jobs(conn, bucket=bucket, reports=others)
        moved += failed
        waits += wait
    return moved


def _answer_of(report: Report, firsts: dict[ClaimKey, Report], answers: dict[ClaimKey, ReportStatus]) -> ReportStatus:
    """Return the answer for a report. The second report of one claim finds it moved by the first."""
    claim = (report.id, report.lease_id)
    is_late = report is not firsts[claim] and answers[claim] is ReportStatus.ACCEPTED
    return ReportStatus.ALREADY if is_late else answers[claim]


async def _explain(
    conn: Connection, bucket: int, items: Sequence[HasLease], moved: set[ClaimKey]
) -> dict[ClaimKey, ReportStatus]:
    """Return the answers for claims that were not moved, from the present state of their rows."""
    rest = [claim for item in items if (claim := (item.id, item.lease_id)) not in moved]
    rows = await lookups.read_leases(conn, bucket=bucket, ids=[job_id for job_id, _ in rest])
    return {claim: _answer_to(claim, rows.get(claim[0])) for claim in rest}


def _answer_to(claim: ClaimKey, row: tuple[JobStatus, int] | None) -> ReportStatus:
    if row is None:
        return ReportStatus.LOST
    status, newest = row
    if newest == claim[1]:  # still the newest claim: held by its own handler, or reported before
        return ReportStatus.BUSY if status is JobStatus.RUNNING else ReportStatus.ALREADY
    was_cancelled = status is JobStatus.CANCELLED and newest == claim[1] + 1
    return ReportStatus.CANCELLED if was_cancelled else ReportStatus.LOST
