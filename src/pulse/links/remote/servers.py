"""How is a server called, and which one is tried next if it does not answer?

The URL may name several servers. All of them use the same database, so any of them will do: one is used until it fails,
then the next. Every call can be repeated without harm, so it is repeated until PULSE_PATIENCE has passed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from pulse.links.remote.errors import read_error
from pulse.model.errors import LimitReached, ServerUnreachable
from pulse.model.network.server_url import parse_server_url
from pulse.timing.backoff import Backoff
from pulse.wire.v1 import pulse_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from pulse.settings import Settings

log = logging.getLogger("pulse.link")

T = TypeVar("T")

CALL_TIMEOUT = 10.0  # seconds for one try
RETRIED_STATUSES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class Server:
    """One server of the URL: a channel, which opens when it is first used, and the services behind it."""

    def __init__(self, target: str, channel: grpc.aio.Channel) -> None:
        self.target = target
        self.channel = channel
        self.jobs: Any = pulse_pb2_grpc.JobsStub(channel)
        self.work: Any = pulse_pb2_grpc.WorkStub(channel)
        self.operate: Any = pulse_pb2_grpc.OperateStub(channel)
        self.schedules: Any = pulse_pb2_grpc.SchedulesStub(channel)
        self.alarms: Any = pulse_pb2_grpc.AlarmsStub(channel)
        self.admin: Any = pulse_pb2_grpc.AdminStub(channel)
        self.info: Any = pulse_pb2_grpc.InfoStub(channel)


class Servers:
    """The servers of one URL, called from one event loop."""

    def __init__(self, settings: Settings) -> None:
        _refuse_grpc_after_fork()
        url = parse_server_url(settings.server_url or "")
        self._patience = settings.patience.total_seconds()
        self._metadata = (("authorization", f"Bearer {settings.token}"),) if settings.token else ()
        self._servers = [
            Server(str(address), _open_channel(str(address), settings, is_secure=url.is_secure))
            for address in url.addresses
        ]
        random.shuffle(self._servers)  # so that many workers spread over the servers
        self._position = 0
        self._backoff = Backoff()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(server.channel.close() for server in self._servers))

    @property
    def current(self) -> Server:
        return self._servers[self._position]

    @property
    def all(self) -> list[Server]:
        return list(self._servers)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def __len__(self) -> int:
        return len(self._servers)

    def give_up(self, server: Server) -> None:
        """Use the next server from now on, because this one does not answer, unless another is in use already."""
        if server is self.current:
            self._position = (self._position + 1) % len(self._servers)

    async def call(
        self,
        pick: Callable[[Server], Any],
        request: Any,  # noqa: ANN401
        *,
        timeout: float = CALL_TIMEOUT,
        first: Server | None = None,
    ) -> Any:  # noqa: ANN401
        """Return the answer of the first server that gives one; `first` is asked before the others."""
        give_up_at = time.monotonic() + self._patience
        failures = 0
        while True:
            server, first = first or self.current, None
            try:
                return await pick(server)(request, timeout=timeout, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                failures += 1
                delay = self._delay_after(error, server, failures)
                if time.monotonic() + delay > give_up_at:
                    raise self._unreachable(server, error) from None
            await asyncio.sleep(delay)

    def _delay_after(self, error: grpc.aio.AioRpcError, server: Server, failures: int) -> float:
        """Return how many seconds to wait before the next try, or raise an error that is not worth another try.

        It is 0 until every server was asked, then longer and longer. A server that answers that it gets too many
        requests is asked again a little later.
        """
        known = read_error(error)
        if isinstance(known, LimitReached):
            return self._backoff.delay(failures).total_seconds()
        if error.code() not in RETRIED_STATUSES:
            raise known from None
        self.give_up(server)
        rounds = (failures - 1) // len(self._servers)
        return self._backoff.delay(rounds).total_seconds() if rounds else 0.0

    def _unreachable(self, server: Server, error: grpc.aio.AioRpcError) -> Exception:
        known = read_error(error)
        if not isinstance(known, ServerUnreachable):  # the server answered, but its database did not
            return known
        return ServerUnreachable(f"no answer from pulsed at {server.target}: {error.details()}")


_used_by: int | None = None  # the id of the process that first used gRPC


def _refuse_grpc_after_fork() -> None:
    """Refuse to use gRPC in a forked child: its threads stay in the parent, and using it without them crashes."""
    global _used_by
    _used_by = _used_by or os.getpid()
    if _used_by != os.getpid():
        raise ServerUnreachable(
            "this process was forked from one that had used gRPC already, and gRPC does not work after a fork: "
            "fork before the first enqueue, or start processes with spawn or forkserver"
        )


def _open_channel(target: str, settings: Settings, *, is_secure: bool) -> grpc.aio.Channel:
    options = [
        ("grpc.max_send_message_length", settings.message_limit),
        ("grpc.max_receive_message_length", settings.message_limit),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.use_local_subchannel_pool", 1),  # a separate connection, so that a half-open one is not shared
        ("grpc.enable_http_proxy", 0),
    ]
    if not is_secure:
        return grpc.aio.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read(settings.tls_ca),
        private_key=_read(settings.tls_key),
        certificate_chain=_read(settings.tls_cert),
    )
    return grpc.aio.secure_channel(target, credentials, options=options)


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None
