"""What can producers and operators do with jobs? Each use case is a call or two of the store.

The use cases of workers are in claims.py.
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

BUSY_TRIES = 8  # these take about two seconds, while a handler has locked the row

J = TypeVar("J")  # a job, or a part of one
Outcomes = dict[UUID, PulseError | None]  # by job id: why it was not done; none: it was done
Act = Callable[["Connection", int, Sequence[UUID]], Awaitable[set[UUID]]]


class Jobs:
    """The use cases of jobs, over one database."""

    def __init__(self, database: Database, notifications: Notifications, mint: Mint, *, buckets: int) -> None:
        self.buckets = buckets
        self._database = database
        self._notifications = notifications
        self._mint = mint
        self._id_secret: bytes | None = None  # read at its first use
        self._redaction = database.settings.redaction
        self._end_listeners: list[Callable[[Iterable[UUID]], None]] = []
        self._cancel_listeners: list[Callable[[Iterable[UUID]], None]] = []

    def on_cancel(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that were cancelled through this process. It must not block."""
        self._cancel_listeners.append(listener)

    def on_end(self, listener: Callable[[Iterable[UUID]], None]) -> None:
        """Call `listener` with jobs that a cancellation of this process may just have finished. It must not block."""
        self._end_listeners.append(listener)

    # --- producers

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit all jobs or, on an error, none. If an id or unique key is taken, its answer is the earlier job."""
        check_size("jobs", jobs)
        if not jobs:
            return []
        placed = await place(jobs, self._mint, buckets=self.buckets, redaction=self._redaction)
        # Without unique keys a single statement does everything, which is a transaction by itself.
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
        """Cancel jobs, and return for each id None or the reason why it was not cancelled."""
        text = f"cancelled: {check_text('reason', reason, 2_000)}" if reason else "cancelled"

        async def cancel(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            return await changes.cancel_jobs(conn, bucket=bucket, ids=ids, reason=text)

        outcomes = await self._act_on_many(job_ids, JobEvent.CANCEL, cancel)
        for listener in self._end_listeners:
            listener(job_ids)
        cancelled = [job_id for job_id, problem in outcomes.items() if problem is None]
        for listener in self._cancel_listeners:
            listener(cancelled)
        return outcomes

    async def replay(self, job_id: UUID) -> Job:
        """Make a dead letter pending again, with new attempts."""
        return await self._act_on_one(job_id, self.replay_many)

    async def replay_many(self, job_ids: Sequence[UUID], *, before: datetime | None = None) -> Outcomes:
        """Replay dead letters, and return for each id None or the reason why it was not replayed.

        Jobs that died after `before`, which is now by default, are left alone: so a job that dies again stays dead,
        even if the statement is repeated because its answer was lost.
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
        """Make a job ready now that waits for its time or for its next attempt."""

        async def make_ready(conn: Connection, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
            moved, ready = await changes.run_jobs_now(conn, bucket=bucket, ids=ids)
            self._notifications.notify_ready(ready)
            return moved

        return await self._act_on_one(job_id, lambda ids: self._act_on_many(ids, JobEvent.RUN_NOW, make_ready))

    async def replay_matching(
        self,
        wanted: JobFilter,
        *,
        after: str | None = None,
        limit: int = BATCH_LIMIT,
        before: datetime | None = None,
        find: ListJobs[JobHead] | None = None,
    ) -> BulkResult:
        """Replay the dead letters that match and had died by `before` (now by default), newest first, at most `limit`.

        To go on, give the `next` of the answer as `after`. Jobs that die meanwhile come before it in the list and are
        left alone, however often this is called.
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
        """Return a job without masking its payload: to compare it, not to show it."""
        found = await self._read([job_id])
        if job_id not in found:
            raise JobNotFound(job_id)
        return found[job_id]

    async def get_finished(self, job_ids: Sequence[UUID]) -> dict[UUID, Job]:
        """Return those of the jobs that are finished. Only they are read in full, so this may be called often with
        thousands of ids."""
        check_size("ids", job_ids)

        async def work(conn: Connection) -> dict[UUID, Job]:
            jobs: dict[UUID, Job] = {}
            for bucket, ids in by_bucket(job_ids):
                if finished := await lookups.finished_ids(conn, bucket=bucket, ids=ids):
                    jobs |= await lookups.get_jobs(conn, bucket=bucket, ids=list(finished))
            return jobs

        finished = await self._database.run(work)
        return {job.id: job for job in await self._shown(finished.values())}

    async def topics_of(self, job_ids: Sequence[UUID]) -> dict[UUID, str]:
        """Return the topics of those of the jobs that exist. A job never changes its topic."""
        check_size("ids", job_ids)
        return await self._database.run(lambda conn: read_each(conn, lookups.read_topics, job_ids))

    async def is_same_payload(self, one: str, other: str) -> bool:
        [is_same] = await self._database.run(lambda conn: submits.compare_payloads(conn, [(one, other)]))
        return is_same

    async def id_of_text(self, text: str) -> UUID:
        """Return the id that stands for a text in this installation. Its bucket is not set yet."""
        if self._id_secret is None:
            self._id_secret = await self._database.run(lambda conn: read_secret(conn, name="ids"))
        return keyed_id(self._id_secret, text)

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        """Return the failed attempts of a job, oldest first."""
        bucket = bucket_of_id(job_id)
        found = await self._database.run(lambda conn: lookups.list_attempts(conn, bucket=bucket, id=job_id))
        if not (self._redaction and found):
            return found
        job = (await self._read([job_id])).get(job_id)
        if job is None:
            return []  # it was pruned meanwhile
        return await off_loop(lambda: mask_attempts(self._redaction, found, job.payload))

    async def list_page(self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50) -> Page:
        """Return one page of jobs. A page reads a limited number of rows, so one of rare matches may be short and not
        the last."""
        jobs, following = await self._list(lookups.get_jobs, wanted or JobFilter(), after, limit)
        return Page(await self._shown(jobs), following)

    async def list_heads(
        self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> HeadPage:
        """Return one page of jobs without the fields that may be large."""
        heads, following = await self._list(lookups.get_job_heads, wanted or JobFilter(), after, limit)
        return HeadPage(await self._shown_heads(heads) if self._redaction else heads, following)

    async def _shown(self, jobs: Iterable[Job]) -> list[Job]:
        if not self._redaction:
            return list(jobs)
        return await mask_each(lambda job: mask_job(self._redaction, job), jobs)

    async def _shown_heads(self, heads: Sequence[JobHead]) -> list[JobHead]:
        """Return the heads with masked errors. The payloads, which this needs, are read for heads with an error."""
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
        """Pause a topic, or all topics for "*". No claim that starts after this returns gets a job of it."""
        name = topic if topic == "*" else check_topic(topic)
        text = check_text("reason", reason, 2_000) if reason else ""
        return await self._database.run(lambda conn: changes.pause_topic(conn, topic=name, reason=text))

    async def resume(self, topic: str = "*") -> bool:
        """Resume a topic, or all topics for "*", and tell whether it was paused."""
        name = topic if topic == "*" else check_topic(topic)
        was_paused = await self._database.run(lambda conn: changes.resume_topic(conn, topic=name))
        self._notifications.notify_ready([ReadyTopic(name, 100)])
        return was_paused

    async def pauses(self) -> list[Pause]:
        return await self._database.run(changes.list_pauses)

    async def counts(self) -> list[TopicCount]:
        """Return the number of jobs by topic and state. It is exact, and costs the same for any number of jobs."""
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
        """Act on all jobs whose state allows it, and try again for a moment where a handler has locked the row."""
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
        return Conflict(f"job {job_id} became {job.status} after this began, so it was left alone")
    if (job.status, event) not in TRANSITIONS:
        return IllegalTransition(job_id, job.status, event)
    if event is JobEvent.REPLAY and job.unique_key:
        return KeyTaken(job_id)
    return JobBusy(job_id)
