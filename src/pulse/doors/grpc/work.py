"""How do jobs reach workers over gRPC, and how do their results come back?

A stream only brings jobs. Everything else is a call of its own, which any server can answer, because a claim is a row
in the database. In the rows, a worker's name consists of its token's name and its own, so nobody can report for the
worker of another token.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from pulse.doors.access import caller
from pulse.doors.grpc.errors import Context, end, handle_errors
from pulse.doors.grpc.items import Items
from pulse.engine.dispatch.worker_stream import (
    HELD_LIMIT,
    POOLS_LIMIT,
    SILENCE,
    AssignmentBatch,
    CancelNotice,
    DeadLetterNotice,
    DrainNotice,
    Message,
    Pool,
    ReplacedNotice,
    WorkerStream,
    check_pool_count,
)
from pulse.engine.jobs.claims import HasLease
from pulse.model.errors import BatchTooLarge, StreamNotFound, StreamSilent, Unauthenticated
from pulse.model.jobs import BATCH_LIMIT, JobStatus, Lease, ReportStatus, check_size
from pulse.model.text import check_name
from pulse.model.tokens import Right
from pulse.telemetry.tracing import note_dispatch
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from pulse.doors.grpc.access import Access
    from pulse.engine.dispatch.dispatcher import Dispatcher
    from pulse.engine.engine import Engine
    from pulse.store.jobs.lookups import ClaimRow

log = logging.getLogger("pulse.stream")

T = TypeVar("T", bound=HasLease)

VERSION_LIMIT = 100  # characters; the rest is cut off
PING_EVERY = 5.0  # seconds of silence
MOVE_DELAY = 0.1  # seconds in which other servers learn that a worker has moved
WARNED_LIMIT = 1_000  # workers that the server remembers to have warned about
SHOWN_JOBS = 5  # in a warning
MAX_CONNECT_TIME = 5.0  # seconds after which a worker that waits for its stream may have gone to another server


class WorkDoor(pulse_pb2_grpc.WorkServicer):
    def __init__(self, engine: Engine, dispatcher: Dispatcher, access: Access) -> None:
        self._engine = engine
        self._access = access
        self._claims = engine.claims
        self._dispatcher = dispatcher
        self._lease: timedelta = engine.settings.lease
        self._traces_as_child = engine.settings.trace_as_child
        self._open_streams: dict[str, WorkerStream] = {}
        self._warned_workers: set[str] = set()

    async def wait_for_streams(self, seconds: float) -> None:
        """Wait until all streams have ended, but at most for this time."""
        give_up_at = time.monotonic() + seconds
        while self._open_streams and time.monotonic() < give_up_at:  # noqa: ASYNC110  rare, and soon over
            await asyncio.sleep(0.01)

    # --- the stream

    @handle_errors
    async def StreamJobs(self, request: pb.StreamJobsRequest, context: Context) -> AsyncIterator[pb.StreamJobsResponse]:
        worker, pools = _worker_of(request), _read_pools(request)
        for topic in {topic for pool in pools for topic in pool.topics}:
            caller.get().check(Right.WORK, topic)
        stream = WorkerStream(
            worker, pools, version=_read_version(request), wants_dead_letters=request.wants_dead_letters
        )
        await self._connect(stream, request)
        name = secrets.token_hex(8)
        self._open_streams[name] = stream
        watchdog = asyncio.create_task(self._end_if_stuck(stream, context, asyncio.current_task()))
        try:
            hello = pb.Hello(stream=name, worker=worker, server_time=convert.write_clock(time.monotonic()))
            yield pb.StreamJobsResponse(hello=hello)
            async for message in self._messages(stream):
                yield message
        finally:
            del self._open_streams[name]
            watchdog.cancel()
            await asyncio.shield(self._dispatcher.disconnect(stream))

    async def _end_if_stuck(self, stream: WorkerStream, context: Context, call: asyncio.Task[Any] | None) -> None:
        """End the stream of a worker that neither reads nor sends.

        Such a stream hangs within a write, where nothing else checks the time. And where a call is cut within a write,
        Python closes its generator at some later time, so the stream is disconnected here.
        """
        patience = SILENCE + 2 * PING_EVERY
        while not context.done() and time.monotonic() - stream.last_heard_at <= patience:  # noqa: ASYNC110
            await asyncio.sleep(PING_EVERY)
        await asyncio.shield(self._dispatcher.disconnect(stream))
        if context.done():
            return
        log.warning("ending the stream of %s, which reads nothing and sends nothing", stream.worker)
        with suppress(grpc.aio.AbortError, TimeoutError):
            # The end of the stream is queued behind the messages that the worker did not read.
            async with asyncio.timeout(PING_EVERY):
                await end(context, StreamSilent(stream.worker, SILENCE), "StreamJobs")
        if call is not None:
            call.cancel()

    async def _connect(self, stream: WorkerStream, request: pb.StreamJobsRequest) -> None:
        """Connect the stream to the dispatcher.

        If the worker resumes after its stream broke, the server that had that stream, this one or another, gives it up
        first; then the jobs that were sent to the worker but never reached it are released.
        """
        if request.HasField("resume"):
            _check_held(request)
            await self._resume(stream, [convert.read_lease(lease) for lease in request.resume.held])
        if time.monotonic() - stream.connected_at > MAX_CONNECT_TIME:  # the worker may be at another server by now
            raise StreamSilent(stream.worker, MAX_CONNECT_TIME)
        self._dispatcher.connect(stream)

    async def _resume(self, stream: WorkerStream, held: Sequence[Lease]) -> None:
        asked_at = await self._engine.read_clock()
        self._dispatcher.replace(stream.worker)
        await self._engine.workers.record_stream(stream)
        await self._engine.notifications.notify_moved(stream.worker)
        await asyncio.sleep(MOVE_DELAY)
        before = asked_at + timedelta(seconds=2 * MOVE_DELAY)
        if released := await self._claims.release_unheld([stream.worker], held, before=before):
            log.info("%s is back: released %d jobs that never reached it", stream.worker, released)
        claims = await self._claims.claims_of(held)
        for lease in held:
            claim = claims.get(lease.id)
            if claim and (claim.worker, claim.lease_id) == (stream.worker, lease.lease_id):
                stream.held[lease.id] = lease.lease_id

    async def _messages(self, stream: WorkerStream) -> AsyncIterator[pb.StreamJobsResponse]:
        checked_at = time.monotonic()
        while True:
            now = time.monotonic()
            if now - stream.last_heard_at > SILENCE:
                raise StreamSilent(stream.worker, SILENCE)
            if now - checked_at > PING_EVERY / 2:
                checked_at = now
                if not await self._access.still_allowed(caller.get()):
                    raise Unauthenticated("the token of this stream was revoked or has expired")
            message = await stream.next(within=PING_EVERY)
            yield self._write(message, stream)
            if isinstance(message, DrainNotice | ReplacedNotice):
                return

    def _write(self, message: Message | None, stream: WorkerStream) -> pb.StreamJobsResponse:
        match message:
            case AssignmentBatch(sequence, claims, claimed_at):
                note_dispatch(claims, worker=stream.worker, claimed_at=claimed_at, as_child=self._traces_as_child)
                jobs = convert.write_assignments(claims, server_time=claimed_at, lease=self._lease)
                return pb.StreamJobsResponse(sequence=sequence, assignments=jobs)
            case CancelNotice(sequence, leases):
                written = [convert.write_lease(lease) for lease in leases]
                return pb.StreamJobsResponse(sequence=sequence, cancelled=pb.Cancellations(jobs=written))
            case DeadLetterNotice(sequence, job_ids):
                dead_letters = pb.DeadLetters(job_ids=[str(job_id) for job_id in job_ids])
                return pb.StreamJobsResponse(sequence=sequence, dead_letters=dead_letters)
            case DrainNotice(sequence):
                return pb.StreamJobsResponse(sequence=sequence, drain=pb.Drain())
            case ReplacedNotice(sequence):
                return pb.StreamJobsResponse(sequence=sequence, replaced=pb.Replaced())
        return pb.StreamJobsResponse(sequence=stream.taken, ping=pb.Ping())

    @handle_errors
    async def UpdateCredit(self, request: pb.UpdateCreditRequest, _context: Context) -> pb.UpdateCreditResponse:
        stream = self._stream_of(request.credit.stream)
        self._take_credit(request.credit, stream)
        return pb.UpdateCreditResponse(server_time=convert.write_clock(time.monotonic()), sent=stream.sent)

    def _stream_of(self, name: str) -> WorkerStream:
        stream = self._open_streams.get(name)
        if stream is None or not stream.worker.startswith(f"{caller.get().name}/"):
            raise StreamNotFound(name)
        return stream

    def _take_credit(self, credit: pb.Credit, stream: WorkerStream) -> None:
        free = list(credit.free[: POOLS_LIMIT + 1])  # one too many is enough to be refused
        self._dispatcher.update_credit(stream, received=credit.received, free=free, number=credit.number)

    # --- calls of workers

    @handle_errors
    async def Heartbeat(self, request: pb.HeartbeatRequest, _context: Context) -> pb.HeartbeatResponse:
        check_size("leases", request.leases)
        check_size("topics", request.topics)
        caller.get().check_topics(request.topics)
        worker, leases = _worker_of(request), Items(request.leases, convert.read_lease)
        answers = await self._act(worker, leases.values, self._claims.heartbeat, reserved=True)
        endings = (ReportStatus.LOST, ReportStatus.CANCELLED)
        ended = (lease for lease, answer in zip(leases.values, answers, strict=True) if answer in endings)
        self._dispatcher.settle(worker, ended)
        return pb.HeartbeatResponse(answers=leases.write_answers(answers), refusals=leases.refusals)

    @handle_errors
    async def ReportResults(self, request: pb.ReportResultsRequest, _context: Context) -> pb.ReportResultsResponse:
        check_size("reports", request.reports)
        worker, reports = _worker_of(request), Items(request.reports, convert.read_report)
        if request.credit.stream in self._open_streams:  # before the reports: jobs may be waiting for the free slots
            self._take_credit(request.credit, self._stream_of(request.credit.stream))
        answers = await self._act(worker, reports.values, self._claims.report)
        self._settle(worker, reports.values, answers)
        return pb.ReportResultsResponse(answers=reports.write_answers(answers), refusals=reports.refusals)

    @handle_errors
    async def ReportProgress(self, request: pb.ReportProgressRequest, _context: Context) -> pb.ReportProgressResponse:
        check_size("progress", request.progress)
        worker, progress = _worker_of(request), Items(request.progress, convert.read_progress)
        answers = await self._act(worker, progress.values, self._claims.progress)
        return pb.ReportProgressResponse(answers=progress.write_answers(answers), refusals=progress.refusals)

    @handle_errors
    async def ReleaseJobs(self, request: pb.ReleaseJobsRequest, _context: Context) -> pb.ReleaseJobsResponse:
        check_size("leases", request.leases)
        worker, leases = _worker_of(request), Items(request.leases, convert.read_lease)
        answers = await self._act(worker, leases.values, self._claims.release)
        self._settle(worker, leases.values, answers)
        return pb.ReleaseJobsResponse(answers=leases.write_answers(answers), refusals=leases.refusals)

    @handle_errors
    async def GetDeadLetter(self, request: pb.GetDeadLetterRequest, _context: Context) -> pb.GetDeadLetterResponse:
        job = await self._engine.jobs.get(convert.read_id(request.id))
        caller.get().check(Right.WORK, job.topic)
        is_dead = job.status is JobStatus.DEAD_LETTERED
        return pb.GetDeadLetterResponse(job=convert.write_job(job) if is_dead else None)

    def _settle(self, worker: str, items: Sequence[HasLease], answers: Sequence[ReportStatus]) -> None:
        done = (item for item, answer in zip(items, answers, strict=True) if answer is not ReportStatus.BUSY)
        self._dispatcher.settle(worker, done)

    async def _act(
        self,
        worker: str,
        items: Sequence[T],
        act: Callable[[Sequence[T]], Awaitable[list[ReportStatus]]],
        *,
        reserved: bool = False,
    ) -> list[ReportStatus]:
        """Act on the claims that this worker holds, and answer LOST for each of the others.

        Nobody may act on the claim of another worker. The others are answered one by one, because a claim that was lost
        in a failover must not take the rest of its batch with it.
        """
        foreign = await self._find_foreign(worker, items, reserved=reserved)
        if not foreign:
            return await act(items)
        self._warn_of_foreign(worker, foreign)
        own = [item for item in items if Lease(item.id, item.lease_id) not in foreign]
        answers = iter(await act(own) if own else [])
        return [ReportStatus.LOST if Lease(item.id, item.lease_id) in foreign else next(answers) for item in items]

    async def _find_foreign(self, worker: str, items: Sequence[HasLease], *, reserved: bool) -> set[Lease]:
        """Return the leases that this worker does not hold.

        The server knows the claims that it has sent itself; it reads the rows of the others.
        """
        known = self._dispatcher.held_by(worker)
        unknown = [Lease(item.id, item.lease_id) for item in items if known.get(item.id) != item.lease_id]
        if not unknown:
            return set()
        claims = await self._claims.claims_of(unknown, reserved=reserved)
        return {lease for lease in unknown if (claim := claims.get(lease.id)) and _is_foreign(lease, claim, worker)}

    def _warn_of_foreign(self, worker: str, foreign: set[Lease]) -> None:
        """Warn once for each worker. After a failover this is expected; otherwise it is a mistake, or an attack."""
        if worker in self._warned_workers:
            return
        if len(self._warned_workers) >= WARNED_LIMIT:
            self._warned_workers.clear()
        self._warned_workers.add(worker)
        log.warning(
            "%s reports on jobs that it has not claimed, so it is answered LOST: %s%s. Logged once for each worker",
            worker,
            ", ".join(str(lease.id) for lease in islice(foreign, SHOWN_JOBS)),
            " …" if len(foreign) > SHOWN_JOBS else "",
        )


def _is_foreign(lease: Lease, claim: ClaimRow, worker: str) -> bool:
    """Tell whether this worker does not hold the claim it shows.

    An older claim is not foreign: the worker has lost it, and the engine will say so. A newer one is: the claim does
    not exist yet, and might be made for another worker before the batch is written.
    """
    if lease.lease_id != claim.lease_id:
        return lease.lease_id > claim.lease_id
    return claim.worker not in (None, worker) or not caller.get().may(Right.WORK, claim.topic)


def _read_pools(request: pb.StreamJobsRequest) -> list[Pool]:
    check_pool_count(len(request.pools), sum(len(pool.topics) for pool in request.pools[: POOLS_LIMIT + 1]))
    return [Pool(tuple(pool.topics), pool.slots) for pool in request.pools]


def _check_held(request: pb.StreamJobsRequest) -> None:
    """Check the number of held claims: a worker holds no more than the jobs it runs and those it has yet to report."""
    limit = min(HELD_LIMIT, 2 * sum(pool.slots for pool in request.pools) + BATCH_LIMIT)
    if len(request.resume.held) > limit:
        raise BatchTooLarge("held claims", len(request.resume.held), limit)


def _read_version(request: pb.StreamJobsRequest) -> str:
    """Return the version of the worker, which is shown to people. A worker need not send one."""
    return check_name("version", request.version[:VERSION_LIMIT]) if request.version else ""


def _worker_of(request: Any) -> str:  # noqa: ANN401  any request with the field `worker`
    return caller.get().worker_named(request.worker)
