"""Which endpoints receive the alarms of a benchmark? `python -m pulse.bench.endpoints`, one process with many ports.

Its first line has its URLs by behaviour. Then it reads commands: `count` returns how many requests each behaviour has
received, `forget` clears the requests, and `report PATH` writes all of them to a file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pulse.event_loop import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PORTS = {"good": 100, "other": 40, "hang": 5, "refuse": 5, "reset": 5}
FAILING = ("hang", "refuse", "reset")
ANSWERS = {
    "good": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "other": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "refuse": b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 4\r\n\r\noops",
}


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    behaviour: str
    at: float  # seconds since 1970, by the clock that a database on this machine uses
    wake_id: str
    body: msgspec.Raw


class Receiver(asyncio.Protocol):
    """A connection. Requests come one after the other, so the received bytes are of one request at most."""

    def __init__(self, behaviour: str, arrived: list[tuple[str, float, bytes]]) -> None:
        self._behaviour, self._arrived = behaviour, arrived
        self._answer = ANSWERS.get(behaviour)
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not is_whole(self._received):
            return
        self._arrived.append((self._behaviour, time.time(), self._received))
        self._received = b""
        if self._answer is not None:
            self._transport.write(self._answer)
        elif self._behaviour == "reset":
            self._transport.abort()


def is_whole(request: bytes) -> bool:
    head, blank, body = request.partition(b"\r\n\r\n")
    return bool(blank) and len(body) >= int(header(head, b"content-length") or 0)


def header(head: bytes, name: bytes) -> bytes:
    start = head.lower().find(b"\r\n" + name + b":")
    if start < 0:
        return b""
    return head[start + len(name) + 3 :].split(b"\r\n", 1)[0].strip()


def read_arrival(behaviour: str, at: float, request: bytes) -> Arrival:
    head, _, body = request.partition(b"\r\n\r\n")
    return Arrival(behaviour, at, header(head, b"webhook-id").decode(), msgspec.Raw(body or b"null"))


async def listen() -> None:
    loop = asyncio.get_running_loop()
    arrived: list[tuple[str, float, bytes]] = []
    urls: dict[str, list[str]] = {}
    for behaviour, ports in PORTS.items():
        for _ in range(ports):
            server = await loop.create_server(lambda behaviour=behaviour: Receiver(behaviour, arrived), "127.0.0.1", 0)  # type: ignore[misc]
            port = server.sockets[0].getsockname()[1]
            urls.setdefault(behaviour, []).append(f"http://127.0.0.1:{port}")
    print_json(urls)
    while order := (await asyncio.to_thread(sys.stdin.readline)).split():
        match order:
            case ["count"]:
                print_json(Counter(behaviour for behaviour, *_ in arrived))
            case ["forget"]:
                arrived.clear()
                print_json({})
            case ["report", path]:
                write(path, [read_arrival(*each) for each in arrived])
                print_json({})


def write(path: str, found: list[Arrival]) -> None:
    Path(path).write_bytes(msgspec.json.encode(found))


def print_json(answer: object) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)  # noqa: T201  the protocol


class Endpoints:
    """The process of endpoints, seen from the process that measures."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.urls: dict[str, list[str]] = {}

    async def count(self) -> dict[str, int]:
        return await self._ask("count")

    async def forget(self) -> None:
        await self._ask("forget")

    async def report(self) -> list[Arrival]:
        with NamedTemporaryFile(prefix="pulse-bench-") as file:
            await self._ask(f"report {file.name}")
            return msgspec.json.decode(file.read(), type=list[Arrival])

    async def _ask(self, order: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{order}\n".encode())
        return await self.answer()

    async def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the endpoints of the benchmark have ended; their error is above")
        return msgspec.json.decode(line, type=dict[str, Any])


@asynccontextmanager
async def run_endpoints() -> AsyncIterator[Endpoints]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pulse.bench.endpoints"), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        found = Endpoints(process)
        found.urls = await found.answer()
        yield found
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


if __name__ == "__main__":
    run(listen())
