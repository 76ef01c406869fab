"""What can be done with jobs? Each use case is one sentence to the store, and an answer for every item."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import UUID

import msgspec

from pulse.engine.instruments import Instruments
from pulse.engine.lists import Read, list_ids, read_in_order
from pulse.engine.marks import START, Marks
from pulse.engine.masks import mask_attempts, mask_each, mask_error, mask_job, mask_report
from pulse.engine.sweeps import sweep
from pulse.model.errors import (
    BatchTooLarge,
    Conflict,
    IllegalTransition,
    InvalidOption,
    JobBusy,
    JobNotFound,
    KeyTaken,
    PulseError,
)
from pulse.model.ids import Mint, bucket_of_id, bucket_of_topic
from pulse.model.jobs import (
    TRANSITIONS,
    Answer,
    Attempt,
    Claim,
    HeadPage,
    Job,
    JobEvent,
    JobFilter,
    JobHead,
    JobStatus,
    Lease,
    NewJob,
    Outcome,
    Page,
    Pause,
    Progress,
    Report,
    Submitted,
    TopicCount,
)
from pulse.model.text import PAYLOAD_WARNING, check_name, check_text, check_topic
from pulse.store import jobs as store
from pulse.store.jobs import ClaimKey, ClaimRow, Placed, Woken

if TYPE_CHECKING:
    from pulse.store.pool import Connection, Database
    from pulse.store.wakeups import Wakeups

log = logging.getLogger("pulse.jobs")

BATCH_LIMIT = 10_000  # items of one call
CLAIM_LIMIT = 500  # jobs of one claim
SUBMIT_TRIES = 3
BUSY_TRIES = 8  # about two seconds of coming back to a row that a handler holds
BUSY_PAUSES = (0.002, 0.01, 0.03)  # a claim with an older snapshot holds a row for no longer than this


class Claimed(Protocol):
    """Anything that names one claim: a lease, a report, a progress note."""

    @property
    def id(self) -> UUID: ...
    @property
    def lease_id(self) -> int: ...


T = TypeVar("T", bound=Claimed)
J = TypeVar("J")  # a job, or as much of it as is read
Move = Callable[["Connection", int, Sequence[T]], Awaitable[list[ClaimKey]]]
Outcomes = dict[UUID, PulseError | None]  # none: it was done
Act = Callable[["Connection", int, Sequence[UUID]], Awaitable[set[UUID]]]


class Jobs:
    """The use cases of jobs, over one database."""

    def __init__(
        self, database: Database, wakeups: Wakeups, *, buckets: int, instruments: Instruments | None = None
    ) -> None:
        self.buckets = buckets
        self._instruments = instruments or Instruments()
        self._database = database
        self._wakeups = wakeups
        self._settings = database.settings
        self._redaction = database.settings.redaction
        self._mint = Mint()
        self._marks = Marks()
        wakeups.on_wake(lambda woken: self._marks.overtaken(woken.topic, woken.priority))
        self._enders: list[Callable[[Iterable[UUID]], None]] = []
        self._cancelers: list[Callable[[Iterable[UUID]], None]] = []

    def on_cancel(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that were canceled through this process. It must not block."""
        self._cancelers.append(listener)

    def on_end(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that a use case of this process may just have finished. It must not block."""
        self._enders.append(listener)

    def _tell_of_ends(self, job_ids: Iterable[UUID]) -> None:
        for listener in self._enders:
            listener(job_ids)

    # --- producers

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit all of them or, on an error, none. A repeated id or held key answers with the first job."""
        check_size("jobs", jobs)
        if not jobs:
            return []
        placed = self._place(jobs)
        # Without keys one statement does it all, and is a transaction by itself.
        run = self._database.run_together if any(job.unique_key for job in jobs) else self._database.run
        ready, later = _hints(jobs)
        is_taken = len(jobs) == 1 and all(self._wakeups.is_taken(item.topic) for item in ready)
        message = None if is_taken else self._wakeups.take_along(ready)
        answers = await run(lambda conn: _submit(conn, placed, self._wakeups.channel, message))
        if message is None and not is_taken:
            self._wakeups.wake(ready)
        else:
            self._wakeups.tell(ready)
        if later is not None:
            self._wakeups.wake_later(later)
        return answers

    async def submit_claimed(self, job: NewJob, *, worker: str) -> tuple[Submitted, Claim | None]:
        """Submit one job, leased to a worker that has a place for it, unless its topic is paused or others wait there.

        To be used where `can_be_claimed` says so. Whoever got the claim must see that it is handed out or released.
        """
        [placed] = self._place([job])
        topic, lease = job.routed_topic, self._settings.lease
        mark = self._marks.where(topic)

        async def work(conn: Connection) -> tuple[bool, Claim | None]:
            started = time.perf_counter()
            is_new, claim = await store.submit_claimed(conn, placed, worker=worker, lease=lease, mark=mark)
            if claim is not None:
                self._marks.nobody_waited(topic, mark, time.perf_counter() - started, claim)
            return is_new, claim

        is_new, claim = await self._database.run(work)
        if is_new and claim is None:
            self._wake([Woken(topic, job.priority)])
        return Submitted(placed.id, is_new), claim

    def _place(self, jobs: Sequence[NewJob]) -> list[Placed]:
        for job in jobs:
            self._redaction.check_whole(job.payload)
            if len(job.payload) > PAYLOAD_WARNING:
                log.warning(
                    "payload of a %s job is %d KiB; large ones belong elsewhere", job.task, len(job.payload) >> 10
                )
        buckets = [bucket_of_topic(job.routed_topic, self.buckets) for job in jobs]
        minted = self._mint.ids(buckets)
        placed = [Placed(*each) for each in zip(buckets, minted, jobs, strict=True)]
        return [_with_own_id(item) if item.job.id else item for item in placed]

    async def cancel(self, job_id: UUID, *, reason: str = "") -> Job:
        """Cancel one job, waiting or running. A running handler learns of it at its next heartbeat."""
        return await self._act_on_one(job_id, lambda ids: self.cancel_many(ids, reason=reason))

    async def cancel_many(self, job_ids: Sequence[UUID], *, reason: str = "") -> Outcomes:
        """For each id: None if it was canceled, else why not."""
        text = f"canceled: {check_text('reason', reason, 2_000)}" if reason else "canceled"

        async def cancel(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            return await store.cancel_jobs(conn, bucket=bucket, ids=ids, reason=text)

        outcomes = await self._act_on_many(job_ids, JobEvent.CANCEL, cancel)
        self._tell_of_ends(job_ids)
        canceled = [job_id for job_id, problem in outcomes.items() if problem is None]
        for listener in self._cancelers:
            listener(canceled)
        return outcomes

    async def replay(self, job_id: UUID) -> Job:
        """Give a dead letter a fresh budget of attempts and send it back to work."""
        return await self._act_on_one(job_id, self.replay_many)

    async def replay_many(self, job_ids: Sequence[UUID]) -> Outcomes:
        """For each id: None if it was replayed, else why not."""

        async def replay(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            await store.free_replayed_keys(conn, bucket=bucket, ids=ids)
            moved, woken = await store.replay_jobs(conn, bucket=bucket, ids=ids)
            self._wake(woken)
            return moved

        return await self._act_on_many(job_ids, JobEvent.REPLAY, replay)

    async def run_now(self, job_id: UUID) -> Job:
        """Have a job that waits for its time, or for its next attempt, claimed as soon as there is a place for it."""

        async def hasten(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            moved, woken = await store.hasten_jobs(conn, bucket=bucket, ids=ids)
            self._wake(woken)
            return moved

        return await self._act_on_one(job_id, lambda ids: self._act_on_many(ids, JobEvent.RUN_NOW, hasten))

    async def replay_matching(self, wanted: JobFilter, *, limit: int = BATCH_LIMIT) -> int:
        """Replay the dead letters that match, newest first, `limit` at most; answers with how many."""
        dead = msgspec.structs.replace(wanted, status=JobStatus.DEAD_LETTERED)
        return (await sweep(self.find_heads, self.replay_many, dead, limit=limit)).done

    # --- workers

    async def claim(self, topic: str, *, worker: str, slots: int) -> list[Claim]:
        """Lease up to `slots` jobs of a topic to one worker. Ask for free slots only."""
        return await self.claim_for(topic, [check_name("worker", worker)], slots=slots)

    async def claim_for(self, topic: str, seats: Sequence[str], *, slots: int) -> list[Claim]:
        """Lease jobs to several workers at once, dealt to the seats in turn: a worker may have several.

        There may be more as long as any are found, even if fewer than asked for: ask again until there are none.
        """
        check_topic(topic)
        if not seats:
            raise InvalidOption("seats", seats, "it is a list of at least one worker")
        if not 1 <= slots <= CLAIM_LIMIT:
            raise InvalidOption("slots", slots, f"it is a whole number from 1 to {CLAIM_LIMIT}")
        mark = self._marks.where(topic)
        claims = await self._claim_from(mark, topic, seats, slots)
        if len(claims) == slots or mark is START:
            return claims
        if claims:  # a look behind the mark is due, but not before these have begun
            self._marks.look_back(topic)
            return claims
        mark = self._marks.where(topic, found_too_few=True)
        return await self._claim_from(mark, topic, seats, slots) if mark is START else []

    async def _claim_from(self, mark: store.Mark, topic: str, seats: Sequence[str], slots: int) -> list[Claim]:
        bucket, lease = bucket_of_topic(topic, self.buckets), self._settings.lease

        async def work(conn: Connection) -> list[Claim]:
            started = time.perf_counter()  # the statement alone: an outage before it says nothing about the scan
            claims = await store.claim_jobs(
                conn, bucket=bucket, topic=topic, seats=seats, limit=slots, lease=lease, mark=mark
            )
            took = time.perf_counter() - started
            self._marks.claimed(topic, mark, took, claims)
            self._instruments.claims.note(took)
            return claims

        return await self._database.run(work)

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        """Which of the topics have work waiting and are not paused."""
        buckets = [bucket_of_topic(check_topic(topic), self.buckets) for topic in topics]
        return await self._database.run(lambda conn: store.ready_topics(conn, buckets=buckets, topics=topics))

    async def heartbeat(self, leases: Sequence[Lease]) -> list[Answer]:
        """Extend the leases, all in one batch; the answer names those that are lost or canceled."""
        length = self._settings.lease

        async def beat(conn: Connection, bucket: int, items: Sequence[Lease]) -> list[ClaimKey]:
            return await store.heartbeat_jobs(conn, bucket=bucket, leases=items, lease=length)

        return await self._answer("leases", leases, beat, reserved=True)

    async def progress(self, progress: Sequence[Progress]) -> list[Answer]:
        async def note(conn: Connection, bucket: int, items: Sequence[Progress]) -> list[ClaimKey]:
            return await store.progress_jobs(conn, bucket=bucket, progress=items)

        return await self._answer("progress reports", progress, note)

    async def report(self, reports: Sequence[Report]) -> list[Answer]:
        """Finish, fail, snooze or discard. Repeating a report is harmless: the first one stands."""
        waits: list[timedelta] = []
        reports = await self._masked(reports)

        async def report(conn: Connection, bucket: int, items: Sequence[Report]) -> list[ClaimKey]:
            return await _report(conn, bucket, items, waits)

        answers = await self._answer("reports", reports, report)
        if self._enders:
            self._tell_of_ends([report.id for report in reports])
        if waits:
            self._wakeups.wake_later(min(waits))
        return answers

    async def _masked(self, reports: Sequence[Report]) -> Sequence[Report]:
        """Without what their errors quote of marked fields: a worker may not know which these are."""
        failed = [report.id for report in reports if report.error or report.traceback] if self._redaction else []
        if not failed:
            return reports
        jobs = await self._read(failed)
        return await mask_each(
            lambda report: (
                mask_report(self._redaction, report, jobs[report.id].payload) if report.id in jobs else report
            ),
            reports,
        )

    async def release(self, leases: Sequence[Lease]) -> list[Answer]:
        """Give back claims that were never started; they are not charged."""

        async def release(conn: Connection, bucket: int, items: Sequence[Lease]) -> list[ClaimKey]:
            moved, woken = await store.release_jobs(conn, bucket=bucket, leases=items)
            self._wake(woken)
            return moved

        return await self._answer("leases", leases, release)

    async def read_clock(self) -> datetime:
        """The database's time."""
        return await self._database.run(store.read_clock)

    async def release_unheld(self, worker: str, held: Sequence[Lease], *, before: datetime) -> int:
        """Give back what was leased before then to a worker that says it holds only this: the rest never reached it.

        What it was given later, by whoever it turned to, is not in its list and yet its own.
        """

        async def work(conn: Connection) -> list[Woken]:
            found: list[Woken] = []
            for bucket in range(self.buckets):
                theirs = [lease for lease in held if bucket_of_id(lease.id) == bucket]
                found += (await store.release_unheld(conn, bucket=bucket, worker=worker, held=theirs, before=before))[1]
            return found

        woken = await self._database.run(work)
        self._wake(woken)
        return len(woken)

    async def claims_of(self, leases: Sequence[Lease], *, reserved: bool = False) -> dict[UUID, ClaimRow]:
        """The newest claim of each of these jobs, and whose it is."""

        async def work(conn: Connection) -> list[ClaimRow]:
            found: list[ClaimRow] = []
            for bucket, ids in _ids_by_bucket([lease.id for lease in leases]):
                found += await store.read_claims(conn, bucket=bucket, ids=ids)
            return found

        return {row.id: row for row in await self._database.run(work, reserved=reserved)}

    # --- operators

    async def get(self, job_id: UUID) -> Job:
        return mask_job(self._redaction, await self.get_unmasked(job_id))

    async def get_unmasked(self, job_id: UUID) -> Job:
        """With its payload as it is: to be compared, and not to be shown."""
        found = await self._read([job_id])
        if job_id not in found:
            raise JobNotFound(job_id)
        return found[job_id]

    async def get_finished(self, job_ids: Sequence[UUID]) -> dict[UUID, Job]:
        """Those of many that are over. Only they are read in full, so it may be asked of thousands often."""
        check_size("ids", job_ids)

        async def work(conn: Connection) -> dict[UUID, Job]:
            found: dict[UUID, Job] = {}
            for bucket, ids in _ids_by_bucket(job_ids):
                if over := await store.finished_ids(conn, bucket=bucket, ids=ids):
                    found |= await store.get_jobs(conn, bucket=bucket, ids=list(over))
            return found

        finished = await self._database.run(work)
        return {job.id: job for job in await self._shown(finished.values())}

    async def topics_of(self, job_ids: Sequence[UUID]) -> dict[UUID, str]:
        """The topics of those that are there. A job never changes its topic."""
        check_size("ids", job_ids)

        async def work(conn: Connection) -> dict[UUID, str]:
            found: dict[UUID, str] = {}
            for bucket, ids in _ids_by_bucket(job_ids):
                found |= await store.read_topics(conn, bucket=bucket, ids=ids)
            return found

        return await self._database.run(work)

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        """The failed attempts of a job, oldest first."""
        bucket = bucket_of_id(job_id)
        found = await self._database.run(lambda conn: store.list_attempts(conn, bucket=bucket, id=job_id))
        if not (self._redaction and found):
            return found
        job = (await self._read([job_id])).get(job_id)
        return mask_attempts(self._redaction, found, job.payload) if job else []  # it was pruned in between

    async def find(self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50) -> Page:
        """One page. Looks at a bounded number of rows, so a page of a rare match may be short and have a next."""
        jobs, following = await self._list(store.get_jobs, wanted or JobFilter(), after, limit)
        return Page(await self._shown(jobs), following)

    async def find_heads(
        self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> HeadPage:
        """As `find`, without what may be large."""
        heads, following = await self._list(store.get_job_heads, wanted or JobFilter(), after, limit)
        return HeadPage(await self._shown_heads(heads) if self._redaction else heads, following)

    async def _shown(self, jobs: Iterable[Job]) -> list[Job]:
        if not self._redaction:
            return list(jobs)
        return await mask_each(lambda job: mask_job(self._redaction, job), jobs)

    async def _shown_heads(self, heads: Sequence[JobHead]) -> list[JobHead]:
        """An error is masked by what its job's payload says, which is read for those that have one."""
        failed = (await self._read([head.id for head in heads if head.last_error is not None])).values()
        errors = dict(await mask_each(lambda job: (job.id, mask_error(self._redaction, job)), failed))
        return [msgspec.structs.replace(head, last_error=(errors.get(head.id) or "")[:500] or None) for head in heads]

    async def _list(
        self, read: Read[J], wanted: JobFilter, after: str | None, limit: int
    ) -> tuple[list[J], str | None]:
        async def work(conn: Connection) -> tuple[list[J], str | None]:
            ids, following = await list_ids(conn, wanted, after=after, limit=limit, buckets=self.buckets)
            return await read_in_order(conn, read, ids), following

        return await self._database.run(work)

    async def pause(self, topic: str = "*", *, reason: str = "") -> Pause:
        """No claim that starts after this returns gets a job of the topic ("*": of any topic)."""
        name = topic if topic == "*" else check_topic(topic)
        text = check_text("reason", reason, 2_000) if reason else ""
        return await self._database.run(lambda conn: store.pause_topic(conn, topic=name, reason=text))

    async def resume(self, topic: str = "*") -> bool:
        """Answers whether it was paused."""
        name = topic if topic == "*" else check_topic(topic)
        was_paused = await self._database.run(lambda conn: store.resume_topic(conn, topic=name))
        self._wake([Woken(name, 100)])
        return was_paused

    async def pauses(self) -> list[Pause]:
        return await self._database.run(store.list_pauses)

    async def counts(self) -> list[TopicCount]:
        """Jobs per topic and state, exact, and as cheap with ten million rows as with ten."""
        counts = await self._database.run(store.count_jobs)
        paused = {pause.topic for pause in await self.pauses()}
        topics = sorted(counts.keys() | paused - {"*"})
        return [TopicCount(topic, counts.get(topic, {}), bool(paused & {topic, "*"})) for topic in topics]

    # --- shared

    def _wake(self, woken: Iterable[Woken]) -> None:
        self._wakeups.wake(_most_urgent(woken))

    async def _answer(self, what: str, items: Sequence[T], move: Move[T], *, reserved: bool = False) -> list[Answer]:
        """An answer for each item; those that find their row locked for a moment are tried again."""
        check_size(what, items)
        answers = await self._move(items, move, reserved=reserved)
        for pause in BUSY_PAUSES:
            if Answer.BUSY not in answers:
                break
            await asyncio.sleep(pause)
            busy = [number for number, answer in enumerate(answers) if answer is Answer.BUSY]
            again = await self._move([items[number] for number in busy], move, reserved=reserved)
            for number, answer in zip(busy, again, strict=True):
                answers[number] = answer
        return answers

    async def _move(self, items: Sequence[T], move: Move[T], *, reserved: bool) -> list[Answer]:
        """Move what can be moved; then find out about the rest from the rows as they are now."""

        async def work(conn: Connection) -> dict[ClaimKey, Answer]:
            answers: dict[ClaimKey, Answer] = {}
            for bucket, group in self._group(items):
                moved = await move(conn, bucket, group)
                if len(moved) < len(group):
                    answers |= await _explain(conn, bucket, group, set(moved))
            return answers

        exceptions = await self._database.run(work, reserved=reserved)
        if not exceptions:
            return [Answer.ACCEPTED] * len(items)
        return [exceptions.get((item.id, item.lease_id), Answer.ACCEPTED) for item in items]

    def _group(self, items: Sequence[T]) -> list[tuple[int, Sequence[T]]]:
        """The items by bucket; with one bucket, which is nearly always, as they are."""
        if self.buckets == 1:
            return [(0, items)] if items else []
        groups: dict[int, list[T]] = defaultdict(list)
        for item in items:
            groups[bucket_of_id(item.id)].append(item)
        return sorted(groups.items())

    async def _read(self, job_ids: Sequence[UUID]) -> dict[UUID, Job]:
        async def work(conn: Connection) -> dict[UUID, Job]:
            found: dict[UUID, Job] = {}
            for bucket, ids in _ids_by_bucket(job_ids):
                found |= await store.get_jobs(conn, bucket=bucket, ids=ids)
            return found

        return await self._database.run(work)

    async def _act_on_one(self, job_id: UUID, act: Callable[[Sequence[UUID]], Awaitable[Outcomes]]) -> Job:
        if problem := (await act([job_id]))[job_id]:
            raise problem
        return await self.get(job_id)

    async def _act_on_many(self, job_ids: Sequence[UUID], event: JobEvent, act: Act) -> Outcomes:
        """Act on all that are in a state for it, and come back to rows that a handler holds for a moment."""
        check_size("ids", job_ids)
        outcomes: Outcomes = dict.fromkeys(job_ids)
        left = list(outcomes)
        for tries in range(BUSY_TRIES):
            moved = await self._database.run(lambda conn, ids=left: _act(conn, ids, act))  # type: ignore[misc]
            outcomes |= dict.fromkeys(moved)
            if not (left := [job_id for job_id in left if job_id not in moved]):
                break
            found = await self._read(left)
            outcomes |= {job_id: _why_not(job_id, found.get(job_id), event) for job_id in left}
            if not (left := [job_id for job_id in left if isinstance(outcomes[job_id], JobBusy)]):
                break
            await asyncio.sleep(0.01 * 2**tries)
        return outcomes


def can_be_claimed(job: NewJob) -> bool:
    """Whether `submit_claimed` takes it: a key has to be looked for first, and what is not due has to wait."""
    return job.unique_key is None and job.run_at is None and not job.delay


def _hints(jobs: Sequence[NewJob]) -> tuple[list[Woken], timedelta | None]:
    """What is ready, and how soon more will be, by this process's clock: the database decides, and polling covers
    the rest."""
    if not any(job.delay or job.run_at for job in jobs):
        return _most_urgent({(job.topic or job.task, job.priority) for job in jobs}), None
    waits = [_wait_of(job) for job in jobs]
    ready = (job for job, wait in zip(jobs, waits, strict=True) if wait <= timedelta())
    later = min((wait for wait in waits if wait > timedelta()), default=None)
    return _most_urgent((job.routed_topic, job.priority) for job in ready), later


def _most_urgent(woken: Iterable[tuple[str, int]]) -> list[Woken]:
    found: dict[str, int] = {}
    for topic, priority in woken:
        found[topic] = max(priority, found.get(topic, -100))
    return [Woken(*item) for item in found.items()]


async def _submit(
    conn: Connection, placed: Sequence[Placed], channel: str = "", message: str | None = None
) -> list[Submitted]:
    """Insert; for what was there already, find the job that stands for it. A holder may finish in between."""
    created: set[UUID] = set()
    stands: dict[UUID, UUID] = {}
    left: Sequence[Placed] = placed
    if any(item.job.unique_key for item in placed):
        left = sorted(placed, key=lambda item: (item.job.unique_key or "", item.id))  # one order, no deadlock
    for _ in range(SUBMIT_TRIES):
        if keyed := [item for item in left if item.job.unique_key]:
            await store.free_keys(conn, keyed)
        new = await store.submit_jobs(conn, left, channel=channel, message=message)
        if new is None and left is placed:
            return [Submitted(item.id, created=True) for item in placed]
        created |= {item.id for item in left} if new is None else new
        if not (left := [item for item in left if item.id not in created]):
            break
        stands |= await store.find_submitted(conn, left)
        if not (left := [item for item in left if item.id not in stands]):
            break
    else:
        raise Conflict(f"the holder of unique key {left[0].job.unique_key!r} keeps changing; try again")
    answers = []
    for item in placed:
        answers.append(Submitted(stands.get(item.id, item.id), item.id in created))
        created.discard(item.id)  # the same id twice in one batch: the first is new, the second is not
    return answers


async def _report(conn: Connection, bucket: int, reports: Sequence[Report], waits: list[timedelta]) -> list[ClaimKey]:
    """Those that were moved; how long those to be tried again wait is added to `waits`."""
    completed = [report for report in reports if report.outcome is Outcome.COMPLETE]
    moved = await store.complete_jobs(conn, bucket=bucket, reports=completed) if completed else []
    if len(completed) < len(reports):
        others = [report for report in reports if report.outcome is not Outcome.COMPLETE]
        failed, wait = await store.fail_jobs(conn, bucket=bucket, reports=others)
        moved += failed
        waits += wait
    return moved


async def _explain(
    conn: Connection, bucket: int, items: Sequence[Claimed], moved: set[ClaimKey]
) -> dict[ClaimKey, Answer]:
    """Why claims were not moved, by what their rows say now."""
    rest = [claim for item in items if (claim := (item.id, item.lease_id)) not in moved]
    rows = await store.read_leases(conn, bucket=bucket, ids=[job_id for job_id, _ in rest])
    return {claim: _answer_to(claim, rows.get(claim[0])) for claim in rest}


def _answer_to(claim: ClaimKey, row: tuple[JobStatus, int] | None) -> Answer:
    if row is None:
        return Answer.LOST
    status, newest = row
    if newest == claim[1]:  # still the newest claim: held by its own handler, or reported before
        return Answer.BUSY if status is JobStatus.RUNNING else Answer.ALREADY
    was_canceled = status is JobStatus.CANCELED and newest == claim[1] + 1
    return Answer.CANCELED if was_canceled else Answer.LOST


async def _act(conn: Connection, job_ids: Sequence[UUID], act: Act) -> set[UUID]:
    moved: set[UUID] = set()
    for bucket, ids in _ids_by_bucket(job_ids):
        moved |= await act(conn, bucket, ids)
    return moved


def _why_not(job_id: UUID, job: Job | None, event: JobEvent) -> PulseError:
    if job is None:
        return JobNotFound(job_id)
    if (job.status, event) not in TRANSITIONS:
        return IllegalTransition(job_id, job.status, event)
    if event is JobEvent.REPLAY and job.unique_key:
        return KeyTaken(job_id)
    return JobBusy(job_id)


def _wait_of(job: NewJob) -> timedelta:
    if job.run_at is not None:
        return job.run_at - datetime.now(UTC)
    return job.delay or timedelta()


def _with_own_id(item: Placed) -> Placed:
    job_id = item.job.id
    if not isinstance(job_id, UUID) or bucket_of_id(job_id) != item.bucket:
        raise InvalidOption(
            "id", str(job_id), f"it is a uuid whose last twelve bits are {item.bucket}, the bucket of its topic"
        )
    return item._replace(id=job_id)


def check_size(what: str, items: Sequence[object]) -> None:
    if len(items) > BATCH_LIMIT:
        raise BatchTooLarge(what, len(items), BATCH_LIMIT)


def _ids_by_bucket(ids: Sequence[UUID]) -> list[tuple[int, list[UUID]]]:
    groups: dict[int, list[UUID]] = defaultdict(list)
    for job_id in ids:
        groups[bucket_of_id(job_id)].append(job_id)
    return sorted(groups.items())
