"""Which connected worker gets which job? One claimer for all of a server's streams.

It asks the database only when there may be work and someone who can begin it: ready by submits, by other processes, by
credit, and by a tick that asks once for all topics. So an idle server costs as much with one worker as with a
thousand. A job is claimed for a named worker before anything is sent, so no two streams can have it.
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

GATHER = 0.002  # seconds to wait for more credit, where little is free
RELEASE_TRIES = 6  # a few seconds in all
WORTH = 100  # jobs a claim should be able to get, where so many places exist


class Dispatcher:
    """Deals waiting jobs to the streams."""

    def __init__(self, jobs: Jobs, claims: Claims, settings: Settings) -> None:
        self.health = LoopHealth("dispatch")
        self._jobs = jobs
        self._claims = claims
        self._tick = settings.tick.total_seconds()
        self._streams: dict[str, WorkerStream] = {}
        self._by_topic: dict[str, dict[str, WorkerStream]] = defaultdict(dict)
        self._maybe_ready: dict[str, None] = {}
        self._claiming = ""  # the topic a claim is under way for
        self._submitting: set[asyncio.Task[Submitted]] = set()
        self._sorting_out: Sequence[str] = ()  # workers whose lost claims are being given back
        self._something_changed = asyncio.Event()
        self._is_draining = False

    # --- who is there

    @property
    def streams(self) -> list[WorkerStream]:
        return list(self._streams.values())

    def has(self, worker: str) -> bool:
        return worker in self._streams

    def connect(self, stream: WorkerStream) -> None:
        """A worker takes its stream. One that has a stream already loses it: the newer stream wins."""
        self.replace(stream.worker)
        if self._is_draining:
            stream.end()
            return
        self._streams[stream.worker] = stream
        for topic in stream.topics:
            self._by_topic[topic][stream.worker] = stream
            self.mark_ready(topic)

    def replace(self, worker: str) -> None:
        """Another stream has this worker's name now, here or at another server."""
        if older := self._streams.get(worker):
            self._remove(older)
            older.end(is_replaced=True)

    async def disconnect(self, stream: WorkerStream) -> None:
        """Its stream has ended. What surely never left goes back to the others, uncharged."""
        self._remove(stream)
        if unsent := stream.close():
            await self._give_back(unsent)

    def _remove(self, stream: WorkerStream) -> None:
        if self._streams.get(stream.worker) is not stream:
            return
        del self._streams[stream.worker]
        for topic in stream.topics:
            del self._by_topic[topic][stream.worker]
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def drain(self) -> None:
        """Claim nothing more, and send everyone elsewhere."""
        self._is_draining = True
        self._something_changed.set()
        for stream in self.streams:
            self._remove(stream)
            stream.end()

    def update_credit(self, stream: WorkerStream, *, received: int, free: Sequence[int], number: int = 0) -> None:
        """A worker says what it can take."""
        if stream.has_left:
            return
        stream.update(received=received, free=free, number=number)
        self._something_changed.set()

    def held_by(self, worker: str) -> Mapping[UUID, int]:
        """What a worker was given here and has not settled: fences by job."""
        stream = self._streams.get(worker)
        return stream.held if stream else {}

    def settle(self, worker: str, claims: Iterable[HasLease]) -> None:
        """These were reported, given back or lost; of a job that it has claimed again, it holds the newer claim."""
        if stream := self._streams.get(worker):
            for claim in claims:
                if stream.held.get(claim.id) == claim.lease_id:
                    del stream.held[claim.id]

    def cancel(self, job_ids: Iterable[UUID]) -> None:
        """Tell the handlers of cancelled jobs whose workers sit here; others learn of it by their heartbeat."""
        wanted = set(job_ids)
        for stream in self._streams.values():
            for job_id in wanted & stream.held.keys():
                stream.cancel(Lease(job_id, stream.held.pop(job_id)))

    def notify_dead_letters(self, topics: Mapping[UUID, str]) -> list[UUID]:
        """Tell one worker of each topic, of those who want to know; answers with the jobs nobody here wants."""
        by_topic: dict[str, list[UUID]] = defaultdict(list)
        for job_id, topic in topics.items():
            by_topic[topic].append(job_id)
        untold: list[UUID] = []
        for topic, job_ids in by_topic.items():
            willing = [stream for stream in self._by_topic.get(topic, {}).values() if stream.wants_dead_letters]
            if willing:
                random.choice(willing).notify_dead_letters(job_ids)  # noqa: S311
            else:
                untold += job_ids
        return untold

    def can_take(self, topic: str) -> bool:
        """Whether someone who sits here has room for a job of the topic."""
        streams = self._by_topic.get(topic)
        return streams is not None and any(stream.credit(topic) > 0 for stream in streams.values())

    # --- the short way

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """As the use case. A single job that someone here could begin is stored as theirs already, which saves it the
        claim: a third of its way (docs/decisions/0023)."""
        stream = self._stream_for(jobs[0]) if len(jobs) == 1 else None
        if stream is None:
            return await self._jobs.submit(jobs)
        stream.reserve_slot(jobs[0].routed_topic)  # before anyone else looks
        submitting = asyncio.create_task(self._submit_to(stream, jobs[0]))
        self._submitting.add(submitting)
        submitting.add_done_callback(self._submitting.discard)
        return [await asyncio.shield(submitting)]  # a caller who hangs up must not leave a claim to nobody

    def _stream_for(self, job: NewJob) -> WorkerStream | None:
        """Whose turn it is among those with room. Not theirs for whom jobs of any topic wait or are being claimed: the
        place may be meant for one of those."""
        if not can_be_claimed(job):
            return None
        topic, others = job.routed_topic, {*self._maybe_ready, self._claiming}
        streams = self._by_topic.get(topic, {})
        for stream in streams.values():
            if stream.credit(topic) > 0 and not stream.serves_any(others) and stream.worker not in self._sorting_out:
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
        if stream.held.get(claim.id) == claim.lease_id:  # handed over before: its id is the caller's, and given twice
            return submitted
        if self._streams.get(stream.worker) is stream and stream.credit(topic) > 0:
            stream.assign([claim], claimed_at=asked_at)
        else:  # it left, or wants nothing more
            await self._give_back([Lease(claim.id, claim.lease_id)])
        return submitted

    # --- the claimer

    def mark_ready(self, topic: str) -> None:
        """Work may have come."""
        if topic == "*":
            self._maybe_ready |= dict.fromkeys(self._by_topic)
        elif topic in self._by_topic:
            self._maybe_ready[topic] = None
        self._something_changed.set()

    async def run(self) -> None:
        """Until drained, and then not before what was claimed is handed out. No error of the database ends a stream."""
        backoff, failures = Backoff(), 0
        while not self._is_draining:
            try:
                await self._step()
                failures = 0
                self.health.succeeded(self._tick)
            except PulseError as error:
                failures += 1
                self.health.failed()
                log.warning("could not claim, trying again: %s", error)
                await asyncio.sleep(backoff.delay(failures).total_seconds())
            except Exception:  # whatever it is, the streams of everybody depend on the next step
                failures += 1
                self.health.failed()
                log.exception("dispatching failed in a way nobody thought of, trying again")
                await asyncio.sleep(backoff.delay(failures).total_seconds())
        if self._submitting:
            await asyncio.wait(self._submitting)

    async def _step(self) -> None:
        if workers := self._claims.lost.workers:
            await self._release_lost(workers)
        topic = self._next_topic()
        if topic is None:
            await self._wait_or_look()
            return
        if self._credit(topic) < self._worth_asking(topic):
            await asyncio.sleep(GATHER)
        await self._claim(topic)

    async def _release_lost(self, workers: Sequence[str]) -> None:
        """Give back what was leased to workers here by claims whose answers were lost.

        Not while a submit claims for one of them. Of one that is not here it is given back where it goes on, and where
        not all is known that it holds, its leases end.
        """
        streams = {
            worker: stream for worker in workers if (stream := self._streams.get(worker)) and stream.knows_all_it_holds
        }
        for worker in workers:
            if worker not in streams:
                self._claims.lost.forget(worker)
        ready = [worker for worker, stream in streams.items() if not stream.is_awaiting_claims]
        if not ready:
            return
        self._sorting_out = ready
        try:
            await self._claims.release_lost(
                ready, lambda: [Lease(*item) for worker in ready for item in streams[worker].held.items()]
            )
        finally:
            self._sorting_out = ()

    def _next_topic(self) -> str | None:
        """The topic that has waited longest among those with work and someone to do it."""
        for topic in list(self._maybe_ready):
            if topic not in self._by_topic:
                del self._maybe_ready[topic]
            elif self.can_take(topic):
                return topic
        return None

    def _credit(self, topic: str) -> int:
        return sum(max(0, stream.credit(topic)) for stream in self._by_topic[topic].values())

    def _worth_asking(self, topic: str) -> int:
        """Fewer places than this, and it pays to wait a moment for more: a claim costs as much for one."""
        streams = self._by_topic[topic].values()
        slots = sum(pool.slots for stream in streams for pool in stream.pools if topic in pool.topics)
        return min(WORTH, max(1, slots // 2))

    async def _wait_or_look(self) -> None:
        """Until something changed; after a tick without, ask what waits, once for all topics."""
        self._something_changed.clear()
        is_time_up = False

        def ring() -> None:
            nonlocal is_time_up
            is_time_up = True
            self._something_changed.set()

        timer = asyncio.get_running_loop().call_later(self._tick, ring)
        await self._something_changed.wait()
        timer.cancel()
        if is_time_up and (topics := [topic for topic in self._by_topic if self._credit(topic) > 0]):
            for topic in await self._claims.ready_topics(topics):
                self._maybe_ready[topic] = None

    async def _claim(self, topic: str) -> None:
        names = self._share_out(topic)
        if not names:  # whoever was free while we gathered is gone
            return
        del self._maybe_ready[topic]  # before asking: what comes meanwhile puts it back
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
            self._maybe_ready[topic] = None  # there may be more; at the end, so that topics take turns
            await self._assign_all(claims, asked_at)
        if claims and len(claims) < len(names):
            await asyncio.sleep(0)  # let them be sent before the next question; with a backlog, the question goes first

    def _share_out(self, topic: str) -> list[str]:
        """A name for each free place, in turn: those with equal credit get equal shares, of few jobs too."""
        streams = self._by_topic.get(topic, {})
        left = {name: credit for name, stream in streams.items() if (credit := stream.credit(topic)) > 0}
        names: list[str] = []
        while left and len(names) < CLAIM_LIMIT:
            names += left
            left = {name: credit - 1 for name, credit in left.items() if credit > 1}
        return names[:CLAIM_LIMIT]

    def _pass_turn(self, topic: str, first: str) -> None:
        """Whoever was first goes to the end, so that the odd job is not always theirs. A look that found nothing was
        nobody's turn."""
        streams = self._by_topic.get(topic, {})
        if first in streams:  # unless they left meanwhile
            streams[first] = streams.pop(first)

    async def _assign_all(self, claims: Sequence[Claim], claimed_at: float) -> None:
        by_worker: dict[str, list[Claim]] = defaultdict(list)
        for claim in claims:
            by_worker[claim.worker].append(claim)
        homeless: list[Lease] = []
        for worker, theirs in by_worker.items():
            stream = self._streams.get(worker)
            if stream is None or stream.has_left or not all(claim.topic in stream.topics for claim in theirs):
                homeless += [Lease(claim.id, claim.lease_id) for claim in theirs]
                continue
            # Who said meanwhile that no place is free may have been told that nothing more comes, and have gone.
            room = max(0, stream.credit(theirs[0].topic))
            homeless += [Lease(claim.id, claim.lease_id) for claim in theirs[room:]]
            if fitting := theirs[:room]:
                stream.assign(fitting, claimed_at=claimed_at)
        if homeless:
            await self._give_back(homeless)

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        for start in range(0, len(leases), BATCH_LIMIT):
            await self._release(leases[start : start + BATCH_LIMIT])

    async def _release(self, leases: Sequence[Lease]) -> None:
        """A lock is waited out, or each of them would be charged for a run that never began. An outage was waited for
        already, by whoever says that there is one."""
        for failures in count(1):
            try:
                await self._claims.release(leases)
            except PulseError as error:
                if not isinstance(error, Conflict) or failures == RELEASE_TRIES:
                    log.warning("%d unsent jobs could not be given back, so their leases end: %s", len(leases), error)
                    return
                await asyncio.sleep(Backoff().delay(failures).total_seconds())
            else:
                return
