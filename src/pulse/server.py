"""What is pulsed made of, and in which order do its parts start and stop?

    engine      the use cases over one database, with the duties that every process shares
    waiters     the calls that wait for the end of a job
    doors       the services, each of which translates calls for the engine
    port        the gRPC port that serves them
    http        the same services as JSON, on a port of their own, if the packages for it are installed

They stop in the reverse order: load balancers are told that it is not ready, workers and waiters move to another
server, calls under way are finished, and only then do the duties end and the connections close.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pulse.doors.access import LOCAL, Caller, Gate, caller
from pulse.doors.grpc.access import Access
from pulse.doors.grpc.admin import AdminDoor
from pulse.doors.grpc.alarms import AlarmsDoor
from pulse.doors.grpc.info import InfoDoor
from pulse.doors.grpc.jobs import Check, JobsDoor, Submit, allow
from pulse.doors.grpc.operate import OperateDoor, Workers, no_workers
from pulse.doors.grpc.port import Port
from pulse.doors.grpc.schedules import SchedulesDoor
from pulse.doors.grpc.work import WorkDoor
from pulse.doors.http import is_installed
from pulse.engine.dispatch.dead_letters import DeadLetters
from pulse.engine.dispatch.dispatcher import Dispatcher
from pulse.engine.dispatch.moved_workers import MovedWorkers
from pulse.engine.duties.loops import Loop, LoopHealth
from pulse.engine.engine import Engine, open_engine
from pulse.engine.jobs.waiters import Waiters
from pulse.model.errors import InvalidSettings
from pulse.model.network.server_url import HTTP_PORT, parse_listen
from pulse.model.tokens import Right
from pulse.telemetry.health import Health

if TYPE_CHECKING:
    from pulse.doors.http.requests.port import HttpPort
    from pulse.engine.metrics import Metrics
    from pulse.model.network.server_url import Address
    from pulse.settings import Settings

STREAMS_GRACE = 3.0  # seconds for workers to read the last message of their stream
CALLS_GRACE = 10.0  # seconds for calls under way; a statement may take 15, but its caller tries again then


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The rules for callers. Without a guard, everybody who can connect may do everything."""

    has_tokens: bool = False  # callers must send a token
    interceptors: Sequence[Any] = ()
    check: Check = allow
    gate: Gate | None = None  # for the HTTP door
    caller: Callable[[], Caller] = lambda: LOCAL  # returns the caller of the current call


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The parts that send jobs to connected workers, as the server uses them."""

    servicers: Sequence[object] = ()  # the Work service
    workers: Workers = no_workers
    submit: Submit | None = None  # submits jobs straight to waiting workers; None: jobs are only stored
    loops: Sequence[Loop] = ()  # duties of a server, beside those of every process
    run: Callable[[], Coroutine[Any, Any, None]] | None = None  # runs until drained
    healths: Sequence[LoopHealth] = ()  # of `run`
    drain: Callable[[], Awaitable[None]] | None = None  # returns when the workers have moved to other servers


OPEN = Guard()
NO_DISPATCH = Dispatch()


class Server:
    """A server over an open engine. It is started once, then drained and closed."""

    def __init__(self, engine: Engine, *, guard: Guard = OPEN, dispatch: Dispatch = NO_DISPATCH) -> None:
        settings = engine.settings
        check_exposure(settings, has_tokens=guard.has_tokens)
        self.has_tokens = guard.has_tokens
        self.name = engine.workers.server  # the name that lists of workers show, too
        self.is_ready = False
        self._engine = engine
        self._dispatch = dispatch
        self._waiters = Waiters(engine)
        servicers = [
            InfoDoor(engine, name=self.name),
            JobsDoor(engine, self._waiters, check=guard.check, submit=dispatch.submit),
            OperateDoor(engine, workers=dispatch.workers, check=guard.check),
            SchedulesDoor(engine, check=guard.check),
            AlarmsDoor(engine, caller=guard.caller),
            *dispatch.servicers,
        ]
        self._port = Port(settings, servicers, guard.interceptors, reflects=not guard.has_tokens)
        self._http = self._make_http(guard) if settings.http_listen and is_installed() else None
        self._stop = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None
        self._dispatching: asyncio.Task[None] | None = None

    def _make_http(self, guard: Guard) -> HttpPort:
        from pulse.doors.http.app import make_app
        from pulse.doors.http.requests.port import HttpPort
        from pulse.doors.http.services import Services

        engine = self._engine
        services = Services(
            engine=engine,
            gate=guard.gate or Gate(None),
            waiters=self._waiters,
            submit=self._dispatch.submit or engine.jobs.submit,
            workers=self._dispatch.workers,
            health=Health(self, self.ask_database, lambda: engine.metrics),
            name=self.name,
        )
        app = make_app(services)
        return HttpPort(engine.settings, app, end_streams=app.state.live.close)

    @property
    def address(self) -> Address:
        return self._port.address

    @property
    def http_address(self) -> Address | None:
        """Return the address of the HTTP port, or None if there is none."""
        return self._http.address if self._http else None

    @property
    def is_exposed(self) -> bool:
        """Tell whether other machines can connect to this server."""
        return not all(found.is_loopback for found in (self.address, self.http_address) if found)

    @property
    def metrics(self) -> Metrics:
        return self._engine.metrics

    async def ask_database(self) -> None:
        """Raise unless the database answers a cheap query and has the right schema."""
        await self._engine.check()

    async def start(self) -> None:
        await self._start_ports()
        self._engine.start(*self._dispatch.loops)
        if self._dispatch.run is not None:
            self._engine.healths += self._dispatch.healths
            self._dispatching = asyncio.create_task(self._dispatch.run(), name="pulse dispatch")
        self._waiting = asyncio.create_task(self._waiters.loop.run(self._stop), name="pulse wait")
        self.is_ready = True

    async def _start_ports(self) -> None:
        """Listen on both ports. If both are taken, one error names both."""
        problems = []
        for port in (self._port, self._http):
            try:
                if port is not None:
                    await port.start()
            except InvalidSettings as problem:
                problems.append(problem)
        if len(problems) > 1:
            raise InvalidSettings("; ".join(map(str, problems)))
        if problems:
            raise problems[0]

    async def drain(self, grace: float = CALLS_GRACE) -> None:
        """Move workers and waiters to other servers and finish the calls under way, so that nothing is lost."""
        self.is_ready = False
        await self._port.drain()
        self._waiters.close()
        await self._drain_dispatch()
        await self._stop_ports(grace)
        await self._engine.workers.leave(self.name)

    async def _stop_ports(self, grace: float) -> None:
        stops = [self._port.stop(grace)] + ([self._http.stop(grace)] if self._http else [])
        await asyncio.gather(*stops)

    async def _drain_dispatch(self) -> None:
        """Send the jobs that are claimed already; each stream ends after its last job."""
        if self._dispatch.drain is not None:
            await self._dispatch.drain()
        if self._dispatching is not None:
            await self._dispatching

    async def close(self) -> None:
        """Stop everything that still runs, at once."""
        self.is_ready = False
        await self._drain_dispatch()
        await self._stop_ports(0)
        await self._engine.workers.leave(self.name)
        self._stop.set()
        if self._waiting is not None:
            await self._waiting


@asynccontextmanager
async def open_server(settings: Settings, *, admitted: bytes | None = None) -> AsyncIterator[Server]:
    """Run a server for the duration of the block; it is closed at the end, whether drained or not.

    If there are no tokens, it admits callers that send the secret whose hash is `admitted`.
    """
    async with open_engine(settings, has_callers=True) as engine:
        has_tokens = await engine.tokens.has_any()
        access = Access(
            engine.tokens if has_tokens else None,
            calls_per_second=settings.calls_per_second,
            streams=settings.streams_per_token,
            admitted=admitted,
        )
        guard = Guard(has_tokens=has_tokens, interceptors=[access], check=check_caller, gate=access, caller=caller.get)
        server = Server(engine, guard=guard, dispatch=make_dispatch(engine, access))
        try:
            await server.start()
            yield server
        finally:
            await server.close()


def make_dispatch(engine: Engine, access: Access) -> Dispatch:
    dispatcher = Dispatcher(engine.jobs, engine.claims, engine.settings)
    engine.notifications.on_ready(lambda ready: dispatcher.mark_ready(ready.topic))
    moves = MovedWorkers(engine.workers, dispatcher)
    engine.notifications.on_moved(moves.mark_moved)
    engine.notifications.add_local_taker(dispatcher.can_take)
    engine.jobs.on_cancel(dispatcher.cancel)
    DeadLetters(engine, dispatcher)
    work = WorkDoor(engine, dispatcher, access)

    async def drain() -> None:
        dispatcher.drain()
        await work.wait_for_streams(STREAMS_GRACE)

    return Dispatch(
        servicers=[work, AdminDoor(engine)],
        workers=engine.workers.list,
        submit=dispatcher.submit,
        loops=[Loop("presence", engine.workers.duty(lambda: dispatcher.streams)), moves.loop],
        run=dispatcher.run,
        healths=[dispatcher.health],
        drain=drain,
    )


def check_caller(scope: str, topic: str) -> None:
    caller.get().check(Right(scope), topic)


def check_exposure(settings: Settings, *, has_tokens: bool) -> None:
    """Refuse to listen on a public address without tokens or client certificates.

    A caller who can submit jobs can make a worker run them.
    """
    addresses = [parse_listen(settings.listen)]
    if settings.http_listen:
        addresses.append(parse_listen(settings.http_listen, HTTP_PORT))
    exposed = next((address for address in addresses if not address.is_loopback), None)
    if exposed is None or has_tokens or settings.tls_client_ca is not None:
        return
    raise InvalidSettings(
        f"listening on {exposed} would let everybody who can reach this machine submit and cancel jobs: "
        "create a token first (`pulse tokens create`), or admit only clients with a certificate (PULSE_TLS_CERT, "
        "PULSE_TLS_KEY and PULSE_TLS_CLIENT_CA), or listen on 127.0.0.1"
    )
