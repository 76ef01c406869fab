"""Which connected worker gets which job? One loop claims jobs for all streams of a server.

It asks the database only when there may be work and a worker has a free slot for it: after submits, notifications of
other processes and updates of credit, and at a tick that asks once for all topics. So an idle server costs as much with
one worker as with a thousand. A job is claimed for a certain worker before it is sent, so no two streams can have it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

from pulse.engine.duties.loops import LoopHealth
from pulse.engine.jobs.claims import Claims, HasLease, can_be_claimed
from pulse.model.errors import Conflict, PulseError
from pulse.model.jobs import BATCH_LIMIT, CLAIM_LIMIT, Claim, Lease, NewJob, Submitted
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from pulse.engine.dispatch.worker_stream import WorkerStream
    from pulse.engine.jobs.use_cases import Jobs
    from pulse.settings import Settings

log = logging.getLogger("pulse.dispatch")

GATHER = 0.002  # seconds to wait for more credit if only a few slots are free
RELEASE_TRIES = 6  # these take a few seconds
MIN_CLAIM = 100  # jobs that a claim should be able to get, if there are enough slots


class Dispatcher:
    """Claims waiting jobs and assigns them to the streams."""

    def __init__(self, jobs: Jobs, claims: Claims, settings: Settings) -> None:
        self.health = LoopHealth("dispatch")
        self._jobs = jobs
        self._claims = claims
        self._tick = settings.tick.total_seconds()
        self._streams: dict[str, WorkerStream] = {}
        self._by_topic: dict[str, dict[str, WorkerStream]] = defaultdict(dict)
        self._maybe_ready: dict[str, None] = {}
        self._claiming = ""  # the topic for which a claim is under way
        self._submitting: set[asyncio.Task[Submitted]] = set()
        self._releasing_lost: Sequence[str] = ()  # workers whose lost claims are being released
        self._has_changed = asyncio.Event()
        self._is_draining = False

    # --- the streams

    @property
    def streams(self) -> list[WorkerStream]:
        return list(self._streams.values())

    def has(self, worker: str) -> bool:
        return worker in self._streams

    def connect(self, stream: WorkerStream) -> None:
        """Add the stream of a worker. If the worker has an older stream, that one ends."""
        self.replace(stream.worker)
        if self._is_draining:
            stream.end()
            return
        self._streams[stream.worker] = stream
        for topic in stream.topics:
            self._by_topic[topic][stream.worker] = stream
            self.mark_ready(topic)

    def replace(self, worker: str) -> None:
        """End the stream of a worker that has a newer stream, here or at another server."""
        if older := self._streams.get(worker):
            self._remove(older)
            older.end(is_replaced=True)

    async def disconnect(self, stream: WorkerStream) -> None:
        """Remove a stream that has ended, and release the jobs that were certainly not sent, without a charge."""
        self._remove(stream)
        if unsent := stream.close():
            await self._release(unsent)

    def _remove(self, stream: WorkerStream) -> None:
        if self._streams.get(stream.worker) is not stream:
            return
        del self._streams[stream.worker]
        for topic in stream.topics:
            del self._by_topic[topic][stream.worker]
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def drain(self) -> None:
        """Stop claiming, and end all streams so that the workers connect to other servers."""
        self._is_draining = True
        self._has_changed.set()
        for stream in self.streams:
            self._remove(stream)
            stream.end()

    def update_credit(self, stream: WorkerStream, *, received: int, free: Sequence[int], number: int = 0) -> None:
        """Record how many free slots a worker has."""
        if stream.has_left:
            return
        stream.update(received=received, free=free, number=number)
        self._has_changed.set()

    def held_by(self, worker: str) -> Mapping[UUID, int]:
        """Return the fences of the jobs that a worker got from here and still has, by job id."""
        stream = self._streams.get(worker)
        return stream.held if stream else {}

    def settle(self, worker: str, claims: Iterable[HasLease]) -> None:
        """Forget claims of a worker that were reported, released or lost. If it has claimed the same job again, the
        newer claim stays."""
        if stream := self._streams.get(worker):
            for claim in claims:
                if stream.held.get(claim.id) == claim.lease_id:
                    del stream.held[claim.id]

    def cancel(self, job_ids: Iterable[UUID]) -> None:
        """Notify connected workers that jobs of theirs are cancelled. Other workers learn of it by their heartbeat."""
        cancelled = set(job_ids)
        for stream in self._streams.values():
            for job_id in cancelled & stream.held.keys():
                stream.cancel(Lease(job_id, stream.held.pop(job_id)))

    def notify_dead_letters(self, topics: Mapping[UUID, str]) -> list[UUID]:
        """Notify one worker of each topic that asked for it, and return the jobs for which there is none here."""
        by_topic: dict[str, list[UUID]] = defaultdict(list)
        for job_id, topic in topics.items():
            by_topic[topic].append(job_id)
        left: list[UUID] = []
        for topic, job_ids in by_topic.items():
            streams = [stream for stream in self._by_topic.get(topic, {}).values() if stream.wants_dead_letters]
            if streams:
                random.choice(streams).notify_dead_letters(job_ids)  # noqa: S311
            else:
                left += job_ids
        return left

    def can_take(self, topic: str) -> bool:
        """Tell whether a connected worker has a free slot for a job of the topic."""
        streams = self._by_topic.get(topic)
        return streams is not None and any(stream.credit(topic) > 0 for stream in streams.values())

    # --- submits that claim

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit jobs. A single job that a connected worker could begin is stored as claimed by it already, which saves
        the claim, a third of its way (docs/decisions/0023)."""
        stream = self._stream_for(jobs[0]) if len(jobs) == 1 else None
        if stream is None:
            return await self._jobs.submit(jobs)
        stream.reserve_slot(jobs[0].routed_topic)  # before any other submit can choose the same slot
        submitting = asyncio.create_task(self._submit_to(stream, jobs[0]))
        self._submitting.add(submitting)
        submitting.add_done_callback(self._submitting.discard)
        return [await asyncio.shield(submitting)]  # if the caller hangs up, the claim must still reach its worker

    def _stream_for(self, job: NewJob) -> WorkerStream | None:
        """Return the next stream with a free slot for the job, or None. Streams for which jobs of any topic wait or are
        being claimed are passed over: their slots may be needed for those."""
        if not can_be_claimed(job):
            return None
        topic, others = job.routed_topic, {*self._maybe_ready, self._claiming}
        streams = self._by_topic.get(topic, {})
        for stream in streams.values():
            if stream.credit(topic) > 0 and not stream.serves_any(others) and stream.worker not in self._releasing_lost:
                streams[stream.worker] = streams.pop(stream.worker)
                return stream
        return None

    async def _submit_to(self, stream: WorkerStream, job: NewJob) -> Submitted:
        topic, asked_at = job.routed_topic, time.monotonic()
        try:
            submitted, claim = await self._claims.submit_claimed(job, worker=stream.worker)
        finally:
            stream.free_slot(topic)
        if claim is None:
            return submitted
        if stream.held.get(claim.id) == claim.lease_id:  # assigned before: the caller has given the same id twice
            return submitted
        if self._streams.get(stream.worker) is stream and stream.credit(topic) > 0:
            stream.assign([claim], claimed_at=asked_at)
        else:  # it has disconnected, or takes no more jobs
            await self._release([Lease(claim.id, claim.lease_id)])
        return submitted

    # --- the claiming loop

    def mark_ready(self, topic: str) -> None:
        """Note that a topic may have work; "*" stands for all topics."""
        if topic == "*":
            self._maybe_ready |= dict.fromkeys(self._by_topic)
        elif topic in self._by_topic:
            self._maybe_ready[topic] = None
        self._has_changed.set()

    async def run(self) -> None:
        """Claim and assign jobs until `drain` is called and everything claimed is assigned. Errors of the database end
        no stream."""
        backoff, failures = Backoff(), 0
        while not self._is_draining:
            try:
                await self._step()
                failures = 0
                self.health.succeeded(self._tick)
            except PulseError as error:
                failures += 1
                self.health.failed()
                log.warning("jobs could not be claimed, trying again: %s", error)
                await asyncio.sleep(backoff.delay(failures).total_seconds())
            except Exception:  # go on after any error, since all streams depend on this loop
                failures += 1
                self.health.failed()
                log.exception("dispatching failed unexpectedly, trying again")
                await asyncio.sleep(backoff.delay(failures).total_seconds())
        if self._submitting:
            await asyncio.wait(self._submitting)

    async def _step(self) -> None:
        if workers := self._claims.lost.workers:
            await self._release_lost(workers)
        topic = self._next_topic()
        if topic is None:
            await self._wait_for_change()
            return
        if self._credit(topic) < self._enough_credit(topic):
            await asyncio.sleep(GATHER)
        await self._claim(topic)

    async def _release_lost(self, workers: Sequence[str]) -> None:
        """Release jobs that were leased to workers here by claims whose answers were lost.

        Workers for which a submit is claiming come later. Jobs of a worker that has left are released where it connects
        next, and where not everything that it has is known, its leases end by themselves.
        """
        streams = {
            worker: stream for worker in workers if (stream := self._streams.get(worker)) and stream.is_held_complete
        }
        for worker in workers:
            if worker not in streams:
                self._claims.lost.forget(worker)
        ready = [worker for worker, stream in streams.items() if not stream.is_awaiting_claims]
        if not ready:
            return
        self._releasing_lost = ready
        try:
            await self._claims.release_lost(
                ready, lambda: [Lease(*item) for worker in ready for item in streams[worker].held.items()]
            )
        finally:
            self._releasing_lost = ()

    def _next_topic(self) -> str | None:
        """Return the topic that has waited longest among those with work and a free slot, or None."""
        for topic in list(self._maybe_ready):
            if topic not in self._by_topic:
                del self._maybe_ready[topic]
            elif self.can_take(topic):
                return topic
        return None

    def _credit(self, topic: str) -> int:
        return sum(max(0, stream.credit(topic)) for stream in self._by_topic[topic].values())

    def _enough_credit(self, topic: str) -> int:
        """Return the number of free slots below which it is worth waiting a moment for more: a claim of one job costs
        as much as a claim of many."""
        streams = self._by_topic[topic].values()
        slots = sum(pool.slots for stream in streams for pool in stream.pools if topic in pool.topics)
        return min(MIN_CLAIM, max(1, slots // 2))

    async def _wait_for_change(self) -> None:
        """Wait until something has changed. After a tick without a change, ask which topics have work, all at once."""
        self._has_changed.clear()
        is_tick_over = False

        def end_tick() -> None:
            nonlocal is_tick_over
            is_tick_over = True
            self._has_changed.set()

        timer = asyncio.get_running_loop().call_later(self._tick, end_tick)
        await self._has_changed.wait()
        timer.cancel()
        if is_tick_over and (topics := [topic for topic in self._by_topic if self._credit(topic) > 0]):
            for topic in await self._claims.ready_topics(topics):
                self._maybe_ready[topic] = None

    async def _claim(self, topic: str) -> None:
        names = self._choose_workers(topic)
        if not names:  # the workers with free slots have left while this waited for more
            return
        del self._maybe_ready[topic]  # before the claim, since work that comes meanwhile adds it again
        self._claiming, asked_at = topic, time.monotonic()
        try:
            claims = await self._claims.claim_for(topic, names, slots=len(names))
        except BaseException:
            self._maybe_ready[topic] = None
            raise
        finally:
            self._claiming = ""
        if claims:
            self._pass_turn(topic, names[0])
            self._maybe_ready[topic] = None  # there may be more; it goes to the end, so that topics take turns
            await self._assign_all(claims, asked_at)
        if claims and len(claims) < len(names):
            await asyncio.sleep(0)  # send them before the next claim; with a backlog, the next claim goes first

    def _choose_workers(self, topic: str) -> list[str]:
        """Return the name of a worker for each free slot. Names alternate, so that even a few jobs are spread."""
        streams = self._by_topic.get(topic, {})
        left = {name: credit for name, stream in streams.items() if (credit := stream.credit(topic)) > 0}
        names: list[str] = []
        while left and len(names) < CLAIM_LIMIT:
            names += left
            left = {name: credit - 1 for name, credit in left.items() if credit > 1}
        return names[:CLAIM_LIMIT]

    def _pass_turn(self, topic: str, first: str) -> None:
        """Move the first worker to the end after a claim with jobs, so that it does not always get the odd one."""
        streams = self._by_topic.get(topic, {})
        if first in streams:  # it may have left meanwhile
            streams[first] = streams.pop(first)

    async def _assign_all(self, claims: Sequence[Claim], claimed_at: float) -> None:
        by_worker: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_worker[claim.worker].append(claim)
        unassigned: list[Lease] = []
        for worker, batch in by_worker.items():
            stream = self._streams.get(worker)
            if stream is None or stream.has_left or not all(claim.topic in stream.topics for claim in batch):
                unassigned += [Lease(claim.id, claim.lease_id) for claim in batch]
                continue
            # A worker that meanwhile reported no free slots may have got its last message, and have left.
            room = max(0, stream.credit(batch[0].topic))
            unassigned += [Lease(claim.id, claim.lease_id) for claim in batch[room:]]
            if fitting := batch[:room]:
                stream.assign(fitting, claimed_at=claimed_at)
        if unassigned:
            await self._release(unassigned)

    async def _release(self, leases: Sequence[Lease]) -> None:
        for start in range(0, len(leases), BATCH_LIMIT):
            await self._release_batch(leases[start : start + BATCH_LIMIT])

    async def _release_batch(self, leases: Sequence[Lease]) -> None:
        """Release claims, and try again while a row is locked: otherwise each of these jobs would be charged for a run
        that never began. Outages need no tries here: the database was waited for before the error was raised."""
        for failures in count(1):
            try:
                await self._claims.release(leases)
            except PulseError as error:
                if not isinstance(error, Conflict) or failures == RELEASE_TRIES:
                    log.warning("%d unsent jobs could not be released, so their leases end: %s", len(leases), error)
                    return
                await asyncio.sleep(Backoff().delay(failures).total_seconds())
            else:
                return
