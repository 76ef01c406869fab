"""How does a worker receive jobs from a server, even if servers and networks fail?

It holds one stream at a time, on any server that accepts it. When the stream breaks, goes silent or its server is about
to stop, it opens another, which lists the jobs that this worker holds, so that the server can give back jobs that got
lost on the way. This goes on until the worker stops. Jobs that have arrived wait here until the worker takes them; it
has free slots for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc

from pulse.links.link import Batch
from pulse.links.remote.errors import read_error
from pulse.links.remote.server_clock import ServerClock
from pulse.links.remote.servers import RETRIED_STATUSES
from pulse.links.repeated_warnings import RepeatedWarning
from pulse.model.errors import AccessDenied, PulseError, Unavailable
from pulse.model.jobs import Lease
from pulse.timing.backoff import Backoff
from pulse.version import __version__
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from pulse.links.link import WorkerState
    from pulse.links.remote.servers import Server, Servers
    from pulse.model.jobs import Claim

log = logging.getLogger("pulse.stream")

CREDIT_EVERY = 4.0  # seconds between two updates of credit, at most
REPLACED_PAUSE = 5.0  # seconds
CLOSE_PATIENCE = 5.0  # seconds to read the jobs that are still on their way when the stream is closed


class _Ended(Exception):
    """The stream has ended, and another one should be opened at once."""


class _Replaced(Exception):
    """A newer stream uses the name of this worker."""


class JobStream:
    """The stream over which a server sends jobs to this worker."""

    def __init__(
        self,
        servers: Servers,
        state: WorkerState,
        mark_ready: Callable[[str], None],
        on_dead_letter: Callable[[UUID], None] | None = None,
        *,
        silence: float,
    ) -> None:
        """Prepare a stream, which `run` opens.

        `silence` is how many seconds a stream may be without a message before it is given up; the server pings more
        often. `on_dead_letter` is called with dead letters; without it, the server sends them to other workers.
        """
        self._on_dead_letter = on_dead_letter
        self._silence = silence
        self._servers = servers
        self._state = state
        self._mark_ready = mark_ready
        self._backoff = Backoff()
        self._refusal = RepeatedWarning()
        self._arrived: dict[str, deque[Batch]] = {}
        self._clock = ServerClock()
        self._stream = ""  # the name of the open stream, or "" if none is open
        self._server: Server | None = None
        self._received = 0
        self._updates = 0
        self._has_connected = False
        self._is_stopping = False
        self._all_read = asyncio.Event()
        self._credit_requested = asyncio.Event()
        self._read_until: int | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._stream)

    @property
    def server(self) -> Server | None:
        """Return the server that holds the open stream, if any."""
        return self._server if self._stream else None

    # --- what the worker takes

    def take(self, topic: str, slots: int) -> Batch:
        """Return jobs of a topic that have arrived, up to this many, and only from one message."""
        waiting = self._arrived.get(topic)
        if not waiting:
            return Batch([], math.inf)
        claims, held_until = waiting.popleft()
        if len(claims) > slots:
            waiting.appendleft(Batch(claims[slots:], held_until))
            claims = claims[:slots]
        return Batch(claims, held_until)

    def credit(self) -> pb.Credit | None:
        """Return the free slots, less the jobs that have arrived and not begun, or None if no stream is open."""
        if not self._stream:
            return None
        free = [0] * len(self._state.slot_pools()) if self._is_stopping else self._free()
        self._updates += 1
        return pb.Credit(stream=self._stream, received=self._received, free=free, number=self._updates)

    def _free(self) -> list[int]:
        waiting = {topic: sum(len(batch.claims) for batch in batches) for topic, batches in self._arrived.items()}
        return [
            max(0, pool.free - sum(waiting.get(topic, 0) for topic in pool.topics)) for pool in self._state.slot_pools()
        ]

    # --- the stream

    async def run(self) -> None:
        """Keep a stream open until it is closed or this is cancelled."""
        failures = 0
        while not self._is_stopping:
            started_at = time.monotonic()
            try:
                await self._hold()
                failures = 0
            except _Replaced:
                log.warning("a newer stream uses the name %s, so this one has ended", self._state.name)
                await asyncio.sleep(REPLACED_PAUSE)  # two workers with one name must not replace each other in a loop
            except AccessDenied as error:  # rights of a token may be taken away and given back
                failures += 1
                if self._refusal.is_due(str(error)):
                    log.log(logging.ERROR, "the server refuses to send jobs, trying again and again: %s", error)
                await asyncio.sleep(self._pause(failures))
            except (PulseError, TimeoutError) as error:
                failures = 1 if time.monotonic() - started_at > self._silence else failures + 1
                log.log(
                    logging.WARNING if isinstance(error, Unavailable | TimeoutError) else logging.ERROR,
                    "the stream of jobs has ended, opening another one: %s",
                    str(error) or f"no message for {self._silence:.0f} s",
                )
                await asyncio.sleep(self._pause(failures))
            except Exception:  # any error is handled, because no job comes without a stream
                failures += 1
                log.exception("the stream of jobs failed with an unexpected error, opening another one")
                await asyncio.sleep(self._backoff.delay(failures).total_seconds())
        self._all_read.set()

    def _pause(self, failures: int) -> float:
        """Return the seconds before the next try: 0 until each server was tried, then longer and longer."""
        rounds = (failures - 1) // len(self._servers)
        return self._backoff.delay(rounds).total_seconds() if rounds else 0.0

    async def _hold(self) -> None:
        """Open one stream and read it to its end."""
        server = self._servers.current
        asked_at = time.monotonic()
        call = server.work.StreamJobs(self._request(), metadata=self._servers.metadata)
        self._has_connected = True
        crediting = asyncio.create_task(self._update_credit_forever(server))
        try:
            while True:
                message = await self._read(call)
                if message is None:
                    return
                self._received = max(self._received, message.sequence)
                self._handle(message, server, asked_at)
                if self._is_all_read():
                    return
        except _Ended:
            return
        except (TimeoutError, PulseError):
            self._servers.give_up(server)
            raise
        finally:
            self._stream = ""
            crediting.cancel()
            call.cancel()

    def _request(self) -> pb.StreamJobsRequest:
        self._received = 0
        pools = self._state.slot_pools()
        request = pb.StreamJobsRequest(worker=self._state.name, version=f"pulse-python/{__version__}")
        request.wants_dead_letters = self._on_dead_letter is not None
        free = self._free()
        for pool, slots in zip(pools, free, strict=True):
            request.pools.add(topics=pool.topics, slots=slots)
        if self._has_connected:
            request.resume.held.extend(convert.write_lease(lease) for lease in self._all_held())
        return request

    def _all_held(self) -> list[Lease]:
        arrived = [
            Lease(claim.id, claim.lease_id)
            for batches in self._arrived.values()
            for batch in batches
            for claim in batch.claims
        ]
        return self._state.held() + arrived

    async def _read(self, call: Any) -> pb.StreamJobsResponse | None:  # noqa: ANN401
        """Return the next message, or None at the end. A server that sends none for too long is given up."""
        try:
            async with asyncio.timeout(self._silence):
                message = await call.read()
        except grpc.aio.AioRpcError as error:
            raise read_error(error) from None
        return None if message is grpc.aio.EOF else message

    def _handle(self, message: pb.StreamJobsResponse, server: Server, asked_at: float) -> None:
        kind = message.WhichOneof("message")
        if kind == "hello":
            self._stream, self._server = message.hello.stream, server
            self._clock.synchronize(asked_at=asked_at, server_time=convert.read_clock(message.hello.server_time))
            self._refusal.reset()
            log.info("jobs come from %s", server.target)
        elif kind == "assignments":
            self._arrive(message.assignments)
        elif kind in ("cancelled", "dead_letters"):
            self._handle_job_notice(message)
        elif kind == "drain":
            log.info("%s is about to stop, so jobs will come from another server", server.target)
            self._servers.give_up(server)
            raise _Ended
        elif kind == "replaced":
            raise _Replaced

    def _handle_job_notice(self, message: pb.StreamJobsResponse) -> None:
        for lease in message.cancelled.jobs:
            self._state.end(convert.read_lease(lease))
        if self._on_dead_letter is not None:
            for job_id in message.dead_letters.job_ids:
                self._on_dead_letter(convert.read_id(job_id))

    def _arrive(self, assignments: pb.Assignments) -> None:
        claimed_at = self._clock.to_local(convert.read_clock(assignments.server_time))
        held_until = claimed_at + convert.read_clock(assignments.lease)
        by_topic: dict[str, list[Claim]] = {}
        for claim in convert.read_assignments(assignments, self._state.name):
            by_topic.setdefault(claim.topic, []).append(claim)
        for topic, claims in by_topic.items():
            self._arrived.setdefault(topic, deque()).append(Batch(claims, held_until))
            self._mark_ready(topic)

    # --- updating credit

    def send_credit(self) -> None:
        """Update the credit now: slots became free without a report, which would have updated it."""
        self._credit_requested.set()

    async def _update_credit_forever(self, server: Server) -> None:
        """Update the credit every few seconds and when `send_credit` is called.

        A failed update needs no handling: if the server is gone, reading the stream fails, too.
        """
        while True:
            self._credit_requested.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CREDIT_EVERY):
                    await self._credit_requested.wait()
            if (credit := self.credit()) is not None:
                with suppress(grpc.aio.AioRpcError):
                    await self._update(server, credit)

    async def _update(self, server: Server, credit: pb.Credit) -> int:
        asked_at = time.monotonic()
        answer = await server.work.UpdateCredit(
            pb.UpdateCreditRequest(credit=credit), timeout=CREDIT_EVERY, metadata=self._servers.metadata
        )
        self._clock.synchronize(asked_at=asked_at, server_time=convert.read_clock(answer.server_time))
        return int(answer.sent)

    # --- stopping

    async def close(self) -> None:
        """Set the credit to zero, and read the jobs that are still on their way."""
        self._is_stopping = True
        if (credit := self.credit()) is None or self._server is None:
            return
        server = self._server
        try:
            async with asyncio.timeout(CLOSE_PATIENCE):
                self._read_until = await self._update(server, credit)
                if not self._is_all_read():
                    await self._all_read.wait()
        except (grpc.aio.AioRpcError, TimeoutError):
            self._servers.give_up(server)

    async def settle(self) -> None:
        """Give back jobs that may be lost on their way, if the stream could not be closed properly.

        This opens a last stream without free slots, which lists the jobs that are held here, so that the server gives
        back all others.
        """
        if self._is_all_read() or not self._has_connected:
            return
        request = self._request()
        for pool in request.pools:
            pool.slots = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_PATIENCE):
                while not await self._is_settled_by(self._servers.current, request):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def _is_settled_by(self, server: Server, request: pb.StreamJobsRequest) -> bool:
        call = server.work.StreamJobs(request, metadata=self._servers.metadata)
        try:
            await call.read()  # the first message comes after the server has given back the jobs
        except grpc.aio.AioRpcError as error:
            self._servers.give_up(server)
            return error.code() not in RETRIED_STATUSES
        finally:
            call.cancel()
        return True

    def take_all(self) -> Sequence[Claim]:
        """Return the jobs that have arrived and were not taken."""
        batches = [batch for waiting in self._arrived.values() for batch in waiting]
        self._arrived.clear()
        return [claim for batch in batches for claim in batch.claims]

    def _is_all_read(self) -> bool:
        is_all_read = self._read_until is not None and self._received >= self._read_until
        if is_all_read:
            self._all_read.set()
        return is_all_read
