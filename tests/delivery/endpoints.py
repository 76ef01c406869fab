"""Endpoints on real sockets that answer as a test wants, and a watch over every address that is dialled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pulse.delivery.wake import WakeRequest
from pulse.delivery.webhook import Deliverer
from pulse.settings import Settings

PUBLIC = "93.184.216.34"
SMALL = 64 << 10  # what the kernel may take from a sender whose receiver does not read
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@dataclass
class Request:
    line: str
    headers: list[tuple[str, str]]
    body: bytes

    def __getitem__(self, name: str) -> str:
        (value,) = self.all(name)
        return value

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found == name.lower()]


Behaviour = Callable[["Endpoint", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Endpoint:
    behave: Behaviour
    connections: int = 0
    requests: list[Request] = field(default_factory=list)
    sent: int = 0
    port: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/wake"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL)
        try:
            await self.behave(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            writer.transport.abort()

    async def read_request(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        pairs = [line.partition(": ")[::2] for line in head[1:] if line]
        headers = [(name.lower(), value) for name, value in pairs]
        size = int(dict(headers)["content-length"])
        request = Request(head[0], headers, await reader.readexactly(size))
        self.requests.append(request)
        return request

    async def send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self.sent += len(data)


def answering(*answers: bytes) -> Behaviour:
    """Answers each request in turn, the last one for ever, on connections that stay open."""

    async def behave(endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await endpoint.read_request(reader)
            await endpoint.send(writer, answers[min(len(endpoint.requests), len(answers)) - 1])

    return behave


@asynccontextmanager
async def endpoint(behave: Behaviour, **options: Any) -> AsyncIterator[Endpoint]:
    made = Endpoint(behave)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, **options)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for task in [*made.tasks]:
            task.cancel()
        await asyncio.gather(*made.tasks, return_exceptions=True)
        await asyncio.sleep(0)


def some_settings(**given: Any) -> Settings:
    """Loopback may be called, unless a test says otherwise."""
    usual: dict[str, Any] = {"alarm_networks": "127.0.0.0/8,::1", "alarm_deadline": timedelta(seconds=3)}
    return Settings(**(usual | given))


def a_wake(url: str | None, **given: Any) -> WakeRequest:
    usual: dict[str, Any] = {"id": "wake_1", "body": b'{"attempt":1}', "headers": {}}
    return WakeRequest(url=url, **(usual | given))


def a_deliverer(*, resolve: Callable[[str], Sequence[str]] | None = None, **given: Any) -> Deliverer:
    settings = some_settings(**given)
    return Deliverer(settings) if resolve is None else Deliverer(settings, resolve=resolve)


class Dials:
    """Every address that this loop connects to. Those beyond this machine are noted and then refused."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        loop: Any = asyncio.get_running_loop()
        self._connect = loop.sock_connect
        loop.sock_connect = self._dial

    async def _dial(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        self.addresses.append(address[0])
        if address[0] not in ("127.0.0.1", "::1"):
            raise ConnectionRefusedError(111, "Connection refused")
        await self._connect(sock, address)


async def until(is_so: Callable[[], bool], within: float = 3.0) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while not is_so():
                await asyncio.sleep(0.005)
    assert is_so()
