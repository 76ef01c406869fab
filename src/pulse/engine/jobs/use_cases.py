"""What can producers and operators do with jobs? Each use case is one sentence to the store.

What workers do with those they have claimed is in claims.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

import msgspec

from pulse.engine.jobs.bulk import BulkResult, ListJobs, act_on_all, existed_before
from pulse.engine.jobs.enqueue import hints, place, submit_placed
from pulse.engine.jobs.lists import Read, list_ids, read_each, read_in_order
from pulse.engine.masks import mask_attempts, mask_each, mask_error, mask_job, mask_one, off_loop
from pulse.model.errors import Conflict, IllegalTransition, JobBusy, JobNotFound, KeyTaken, PulseError
from pulse.model.ids import bucket_of_id, by_bucket, keyed_id
from pulse.model.jobs import (
    BATCH_LIMIT,
    TRANSITIONS,
    Attempt,
    HeadPage,
    Job,
    JobEvent,
    JobFilter,
    JobHead,
    JobStatus,
    NewJob,
    Page,
    Pause,
    Submitted,
    TopicCount,
    check_size,
)
from pulse.model.text import check_text, check_topic
from pulse.store.installation import read_clock
from pulse.store.jobs import changes, lookups, submits
from pulse.store.jobs.rows import ReadyTopic
from pulse.store.statistics.counts import count_jobs
from pulse.store.tokens import read_secret

if TYPE_CHECKING:
    from pulse.model.ids import Mint
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database

BUSY_TRIES = 8  # about two seconds of coming back to a row that a handler holds

J = TypeVar("J")  # a job, or as much of it as is read
Outcomes = dict[UUID, PulseError | None]  # none: it was done
Act = Callable[["Connection", int, Sequence[UUID]], Awaitable[set[UUID]]]


class Jobs:
    """The use cases of jobs, over one database."""

    def __init__(self, database: Database, notifications: Notifications, mint: Mint, *, buckets: int) -> None:
        self.buckets = buckets
        self._database = database
        self._notifications = notifications
        self._mint = mint
        self._id_secret: bytes | None = None  # read when it is needed
        self._redaction = database.settings.redaction
        self._enders: list[Callable[[Iterable[UUID]], None]] = []
        self._cancelers: list[Callable[[Iterable[UUID]], None]] = []

    def on_cancel(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that were cancelled through this process. It must not block."""
        self._cancelers.append(listener)

    def on_end(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that a cancellation of this process may just have finished. It must not block."""
        self._enders.append(listener)

    # --- producers

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit all of them or, on an error, none. A repeated id or held key answers with the first job."""
        check_size("jobs", jobs)
        if not jobs:
            return []
        placed = await place(jobs, self._mint, buckets=self.buckets, redaction=self._redaction)
        # Without keys one statement does it all, and is a transaction by itself.
        run = self._database.run_together if any(job.unique_key for job in jobs) else self._database.run
        ready, later = hints(jobs)
        is_taken = len(jobs) == 1 and all(self._notifications.has_local_taker(item.topic) for item in ready)
        message = None if is_taken else self._notifications.payload_for_commit(ready)
        answers = await run(lambda conn: submit_placed(conn, placed, self._notifications.channel, message))
        if message is None and not is_taken:
            self._notifications.notify_ready(ready)
        else:
            self._notifications.notify_here(ready)
        if later is not None:
            self._notifications.notify_due_soon(later)
        return answers

    async def cancel(self, job_id: UUID, *, reason: str = "") -> Job:
        """Cancel one job, waiting or running. A running handler learns of it at its next heartbeat."""
        return await self._act_on_one(job_id, lambda ids: self.cancel_many(ids, reason=reason))

    async def cancel_many(self, job_ids: Sequence[UUID], *, reason: str = "") -> Outcomes:
        """For each id: None if it was cancelled, else why not."""
        text = f"cancelled: {check_text('reason', reason, 2_000)}" if reason else "cancelled"

        async def cancel(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            return await changes.cancel_jobs(conn, bucket=bucket, ids=ids, reason=text)

        outcomes = await self._act_on_many(job_ids, JobEvent.CANCEL, cancel)
        for listener in self._enders:
            listener(job_ids)
        cancelled = [job_id for job_id, problem in outcomes.items() if problem is None]
        for listener in self._cancelers:
            listener(cancelled)
        return outcomes

    async def replay(self, job_id: UUID) -> Job:
        """Give a dead letter a fresh budget of attempts and send it back to work."""
        return await self._act_on_one(job_id, self.replay_many)

    async def replay_many(self, job_ids: Sequence[UUID], *, before: datetime | None = None) -> Outcomes:
        """For each id: None if it was replayed, else why not.

        Only those that died by `before`, which is now if it is not given: one that dies again stays dead, also where
        the statement is repeated because its answer was lost.
        """
        check_size("ids", job_ids)
        began_at = before if before is not None else await self._database.run(read_clock)

        async def replay(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            await changes.free_replayed_keys(conn, bucket=bucket, ids=ids)
            moved, ready = await changes.replay_jobs(conn, bucket=bucket, ids=ids, before=began_at)
            self._notifications.notify_ready(ready)
            return moved

        return await self._act_on_many(job_ids, JobEvent.REPLAY, replay, before=began_at)

    async def run_now(self, job_id: UUID) -> Job:
        """Have a job that waits for its time, or for its next attempt, claimed as soon as there is a place for it."""

        async def hasten(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            moved, ready = await changes.run_jobs_now(conn, bucket=bucket, ids=ids)
            self._notifications.notify_ready(ready)
            return moved

        return await self._act_on_one(job_id, lambda ids: self._act_on_many(ids, JobEvent.RUN_NOW, hasten))

    async def replay_matching(
        self,
        wanted: JobFilter,
        *,
        after: str | None = None,
        limit: int = BATCH_LIMIT,
        before: datetime | None = None,
        find: ListJobs[JobHead] | None = None,
    ) -> BulkResult:
        """Replay the dead letters that match and had died by `before` (now), newest first, `limit` at most.

        To go on, give the `next` of the answer as `after`. What dies meanwhile comes before it in the list, and so is
        left alone, whoever asks and however often.
        """
        dead = msgspec.structs.replace(wanted, status=JobStatus.DEAD_LETTERED)
        now = await self._database.run(read_clock)
        before = now if before is None else min(before, now)
        act = partial(self.replay_many, before=before)
        return await act_on_all(find or self.list_heads, act, dead, before=before, after=after, limit=limit)

    # --- operators

    async def get(self, job_id: UUID) -> Job:
        return await mask_one(self._redaction, mask_job, await self.get_unmasked(job_id))

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
            for bucket, ids in by_bucket(job_ids):
                if over := await lookups.finished_ids(conn, bucket=bucket, ids=ids):
                    found |= await lookups.get_jobs(conn, bucket=bucket, ids=list(over))
            return found

        finished = await self._database.run(work)
        return {job.id: job for job in await self._shown(finished.values())}

    async def topics_of(self, job_ids: Sequence[UUID]) -> dict[UUID, str]:
        """The topics of those that are there. A job never changes its topic."""
        check_size("ids", job_ids)
        return await self._database.run(lambda conn: read_each(conn, lookups.read_topics, job_ids))

    async def is_same_payload(self, one: str, other: str) -> bool:
        [is_same] = await self._database.run(lambda conn: submits.compare_payloads(conn, [(one, other)]))
        return is_same

    async def id_of_text(self, text: str) -> UUID:
        """Return the id that stands for a text in this installation. Its bucket is yet to be set."""
        if self._id_secret is None:
            self._id_secret = await self._database.run(lambda conn: read_secret(conn, name="ids"))
        return keyed_id(self._id_secret, text)

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        """The failed attempts of a job, oldest first."""
        bucket = bucket_of_id(job_id)
        found = await self._database.run(lambda conn: lookups.list_attempts(conn, bucket=bucket, id=job_id))
        if not (self._redaction and found):
            return found
        job = (await self._read([job_id])).get(job_id)
        if job is None:
            return []  # it was pruned in between
        return await off_loop(lambda: mask_attempts(self._redaction, found, job.payload))

    async def list_page(self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50) -> Page:
        """One page. Looks at a bounded number of rows, so a page of a rare match may be short and have a next."""
        jobs, following = await self._list(lookups.get_jobs, wanted or JobFilter(), after, limit)
        return Page(await self._shown(jobs), following)

    async def list_heads(
        self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> HeadPage:
        """As `find`, without what may be large."""
        heads, following = await self._list(lookups.get_job_heads, wanted or JobFilter(), after, limit)
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
        return await self._database.run(lambda conn: changes.pause_topic(conn, topic=name, reason=text))

    async def resume(self, topic: str = "*") -> bool:
        """Answers whether it was paused."""
        name = topic if topic == "*" else check_topic(topic)
        was_paused = await self._database.run(lambda conn: changes.resume_topic(conn, topic=name))
        self._notifications.notify_ready([ReadyTopic(name, 100)])
        return was_paused

    async def pauses(self) -> list[Pause]:
        return await self._database.run(changes.list_pauses)

    async def counts(self) -> list[TopicCount]:
        """Jobs per topic and state, exact, and as cheap with ten million rows as with ten."""
        counts = await self._database.run(count_jobs)
        paused = {pause.topic for pause in await self.pauses()}
        topics = sorted(counts.keys() | paused - {"*"})
        return [TopicCount(topic, counts.get(topic, {}), bool(paused & {topic, "*"})) for topic in topics]

    # --- shared

    async def _read(self, job_ids: Sequence[UUID]) -> dict[UUID, Job]:
        return await self._database.run(lambda conn: read_each(conn, lookups.get_jobs, job_ids))

    async def _act_on_one(self, job_id: UUID, act: Callable[[Sequence[UUID]], Awaitable[Outcomes]]) -> Job:
        if problem := (await act([job_id]))[job_id]:
            raise problem
        return await self.get(job_id)

    async def _act_on_many(
        self, job_ids: Sequence[UUID], event: JobEvent, act: Act, *, before: datetime | None = None
    ) -> Outcomes:
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
            outcomes |= {job_id: _why_not(job_id, found.get(job_id), event, before) for job_id in left}
            if not (left := [job_id for job_id in left if isinstance(outcomes[job_id], JobBusy)]):
                break
            await asyncio.sleep(0.01 * 2**tries)
        return outcomes


async def _act(conn: Connection, job_ids: Sequence[UUID], act: Act) -> set[UUID]:
    moved: set[UUID] = set()
    for bucket, ids in by_bucket(job_ids):
        moved |= await act(conn, bucket, ids)
    return moved


def _why_not(job_id: UUID, job: Job | None, event: JobEvent, before: datetime | None) -> PulseError:
    if job is None:
        return JobNotFound(job_id)
    if before is not None and not existed_before(job, before):
        return Conflict(f"job {job_id} has become {job.status} since this began, so it was left alone")
    if (job.status, event) not in TRANSITIONS:
        return IllegalTransition(job_id, job.status, event)
    if event is JobEvent.REPLAY and job.unique_key:
        return KeyTaken(job_id)
    return JobBusy(job_id)
