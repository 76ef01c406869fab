"""How do jobs come from a server to this worker, whatever happens to servers and networks?

One stream at a time, on whichever server takes it. When it breaks, falls silent or is told to go elsewhere, the next
one is opened and says what this worker holds, so that the server can give back what got lost on the way. Only being
told to stop ends that. What arrived and was not yet handed to the worker waits here; the worker has places for it.
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
from pulse.links.remote.servers import WORTH_ANOTHER_TRY
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

SIGN_OF_LIFE = 4.0  # seconds between two updates of credit, at most
REPLACED_PAUSE = 5.0  # seconds
CLOSING = 5.0  # seconds to read what is still on its way when the stream is let go


class _Ended(Exception):
    """The stream is over and another one is to be opened at once."""


class _Replaced(Exception):
    """Another stream has this worker's name."""


class JobStream:
    """The way jobs come."""

    def __init__(
        self,
        servers: Servers,
        state: WorkerState,
        mark_ready: Callable[[str], None],
        on_dead_letter: Callable[[UUID], None] | None = None,
        *,
        silence: float,
    ) -> None:
        """`silence`: seconds without a message, after which a stream is given up. The server pings more often.
        `on_dead_letter` is called with dead letters; without one, other workers are told of them."""
        self._on_dead_letter = on_dead_letter
        self._silence = silence
        self._servers = servers
        self._state = state
        self._mark_ready = mark_ready
        self._backoff = Backoff()
        self._refusal = RepeatedWarning()
        self._arrived: dict[str, deque[Batch]] = {}
        self._clock = ServerClock()
        self._stream = ""  # its name; empty: there is none
        self._server: Server | None = None
        self._received = 0
        self._updates = 0
        self._has_asked = False
        self._is_stopping = False
        self._all_read = asyncio.Event()
        self._wants_credit = asyncio.Event()
        self._read_until: int | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._stream)

    @property
    def server(self) -> Server | None:
        """Where it is open."""
        return self._server if self._stream else None

    # --- what the worker takes

    def take(self, topic: str, slots: int) -> Batch:
        """What has arrived of a topic, as far as there is room: those of one message together."""
        waiting = self._arrived.get(topic)
        if not waiting:
            return Batch([], math.inf)
        claims, held_until = waiting.popleft()
        if len(claims) > slots:
            waiting.appendleft(Batch(claims[slots:], held_until))
            claims = claims[:slots]
        return Batch(claims, held_until)

    def credit(self) -> pb.Credit | None:
        """What is free, less what has arrived and not begun; none while there is no stream to have it."""
        if not self._stream:
            return None
        free = [0] * len(self._state.slot_pools()) if self._is_stopping else self._free()
        self._updates += 1
        return pb.Credit(stream=self._stream, received=self._received, free=free, number=self._updates)

    def _free(self) -> list[int]:
        waiting = {topic: sum(len(batch.claims) for batch in batches) for topic, batches in self._arrived.items()}
        return [
            max(0, places.free - sum(waiting.get(topic, 0) for topic in places.topics))
            for places in self._state.slot_pools()
        ]

    # --- the stream

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while not self._is_stopping:
            started_at = time.monotonic()
            try:
                await self._hold()
                failures = 0
            except _Replaced:
                log.warning("a newer stream has the name %s, so this one has ended", self._state.name)
                await asyncio.sleep(REPLACED_PAUSE)  # two who share a name must not chase each other in a circle
            except AccessDenied as error:  # a token may be revoked, and its right given back
                failures += 1
                if self._refusal.is_due(str(error)):
                    log.log(logging.ERROR, "the server sends no jobs, asking again and again: %s", error)
                await asyncio.sleep(self._pause(failures))
            except (PulseError, TimeoutError) as error:
                failures = 1 if time.monotonic() - started_at > self._silence else failures + 1
                log.log(
                    logging.WARNING if isinstance(error, Unavailable | TimeoutError) else logging.ERROR,
                    "the stream of jobs has ended, another one is opened: %s",
                    str(error) or f"nothing was heard for {self._silence:.0f} s",
                )
                await asyncio.sleep(self._pause(failures))
            except Exception:  # whatever it is, no job comes without a stream
                failures += 1
                log.exception("the stream of jobs failed in a way nobody thought of, another one is opened")
                await asyncio.sleep(self._backoff.delay(failures).total_seconds())
        self._all_read.set()

    def _pause(self, failures: int) -> float:
        """The other servers are asked at once, and then all of them less and less often."""
        rounds = (failures - 1) // len(self._servers)
        return self._backoff.delay(rounds).total_seconds() if rounds else 0.0

    async def _hold(self) -> None:
        """One stream, from its first message to its last."""
        server = self._servers.current
        asked_at = time.monotonic()
        call = server.work.StreamJobs(self._request(), metadata=self._servers.metadata)
        self._has_asked = True
        signs = asyncio.create_task(self._send_credit(server))
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
            signs.cancel()
            call.cancel()

    def _request(self) -> pb.StreamJobsRequest:
        self._received = 0
        places = self._state.slot_pools()
        request = pb.StreamJobsRequest(worker=self._state.name, version=f"pulse-python/{__version__}")
        request.wants_dead_letters = self._on_dead_letter is not None
        free = self._free()
        for place, slots in zip(places, free, strict=True):
            request.pools.add(topics=place.topics, slots=slots)
        if self._has_asked:
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
        """The next message; none at the end. A server that says nothing for too long is as good as gone."""
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
            self._clock.learn(asked_at=asked_at, server_time=convert.read_clock(message.hello.server_time))
            self._refusal.is_over()
            log.info("jobs come from %s", server.target)
        elif kind == "assignments":
            self._arrive(message.assignments)
        elif kind in ("cancelled", "dead_letters"):
            self._handle_job_notice(message)
        elif kind == "drain":
            log.info("%s is about to stop: jobs will come from another server", server.target)
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
        claimed_at = self._clock.local(convert.read_clock(assignments.server_time))
        held_until = claimed_at + convert.read_clock(assignments.lease)
        by_topic: dict[str, list[Claim]] = {}
        for claim in convert.read_assignments(assignments, self._state.name):
            by_topic.setdefault(claim.topic, []).append(claim)
        for topic, claims in by_topic.items():
            self._arrived.setdefault(topic, deque()).append(Batch(claims, held_until))
            self._mark_ready(topic)

    # --- signs of life

    def say_credit(self) -> None:
        """SlotPool became free without a report that would say so."""
        self._wants_credit.set()

    async def _send_credit(self, server: Server) -> None:
        """Every few seconds, and when asked to. A failure is the stream's own to notice."""
        while True:
            self._wants_credit.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(SIGN_OF_LIFE):
                    await self._wants_credit.wait()
            if (credit := self.credit()) is not None:
                with suppress(grpc.aio.AioRpcError):
                    await self._update(server, credit)

    async def _update(self, server: Server, credit: pb.Credit) -> int:
        asked_at = time.monotonic()
        answer = await server.work.UpdateCredit(
            pb.UpdateCreditRequest(credit=credit), timeout=SIGN_OF_LIFE, metadata=self._servers.metadata
        )
        self._clock.learn(asked_at=asked_at, server_time=convert.read_clock(answer.server_time))
        return int(answer.sent)

    # --- stopping

    async def close(self) -> None:
        """Want nothing more, and read what is on its way."""
        self._is_stopping = True
        if (credit := self.credit()) is None or self._server is None:
            return
        server = self._server
        try:
            async with asyncio.timeout(CLOSING):
                self._read_until = await self._update(server, credit)
                if not self._is_all_read():
                    await self._all_read.wait()
        except (grpc.aio.AioRpcError, TimeoutError):
            self._servers.give_up(server)

    async def settle(self) -> None:
        """If it could not be closed so, something may be on its way to nowhere: open a last one, without a place to run
        anything, only to say what is held here, so that the rest is given back."""
        if self._is_all_read() or not self._has_asked:
            return
        request = self._request()
        for pool in request.pools:
            pool.slots = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSING):
                while not await self._is_settled_by(self._servers.current, request):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    async def _is_settled_by(self, server: Server, request: pb.StreamJobsRequest) -> bool:
        call = server.work.StreamJobs(request, metadata=self._servers.metadata)
        try:
            await call.read()  # its first message comes after that
        except grpc.aio.AioRpcError as error:
            self._servers.give_up(server)
            return error.code() not in WORTH_ANOTHER_TRY
        finally:
            call.cancel()
        return True

    def take_all(self) -> Sequence[Claim]:
        """What has arrived and nobody took."""
        batches = [batch for waiting in self._arrived.values() for batch in waiting]
        self._arrived.clear()
        return [claim for batch in batches for claim in batch.claims]

    def _is_all_read(self) -> bool:
        is_it = self._read_until is not None and self._received >= self._read_until
        if is_it:
            self._all_read.set()
        return is_it
