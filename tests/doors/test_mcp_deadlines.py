"""How long may somebody take to ask, over MCP? No longer than at the other doors."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pulse.doors.mcp.door import McpDoor
from pulse.doors.mcp.http import GateMiddleware, HttpServer, McpGate, make_app
from pulse.engine.engine import Engine
from pulse.links.direct import DirectLink

DEADLINE = 0.3  # seconds
PATIENCE = 20.0
HEAD = b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
HEAD += b"accept: application/json, text/event-stream\r\n"


@pytest.fixture
async def port(engine: Engine) -> AsyncIterator[int]:
    door = McpDoor(DirectLink(engine), owner="local")
    app = make_app(door.server, McpGate(None, calls_per_second=1e9), host="127.0.0.1", deadline=DEADLINE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = HttpServer(app, deadline=DEADLINE)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


async def answer_to(port: int, sent: bytes) -> bytes:
    """All that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HT", HEAD])
async def test_a_head_that_does_not_come_is_not_waited_for(port: int, sent: bytes) -> None:
    assert await answer_to(port, sent) == b""


async def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    answer = await answer_to(port, HEAD + b'content-length: 100\r\n\r\n{"jsonrpc"')

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body took longer than 0.3 s" in answer


@pytest.mark.parametrize(("values", "status"), [(40_000, 200), (60_000, 413)])
async def test_a_call_has_as_many_values_as_can_be_built(port: int, values: int, status: int) -> None:
    arguments = {"task": "t", "payload": {"list": [0] * values, "text": "a,b" * values}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "job_submit", "arguments": arguments}}
    body = json.dumps(call).encode()

    answer = await answer_to(port, HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:300]


async def test_a_body_over_the_limit_is_refused(port: int) -> None:
    size = (2 << 20) + 1

    answer = await answer_to(port, HEAD + b"connection: close\r\ncontent-length: %d\r\n\r\n" % size + b" " * size)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"the request is larger than 2 MiB" in answer


CALL = json.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "job_submit", "arguments": {"task": "mail"}},
}).encode()  # fmt: skip
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(CALL), CALL)


async def test_a_body_of_crumbs_is_refused(port: int, engine: Engine) -> None:
    answer = await answer_to(port, CHUNKED + b"1\r\n \r\n" * 20_000 + b"0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"too_many_chunks" in answer
    assert await engine.jobs.counts() == []


async def test_a_call_that_breaks_off_is_not_made(port: int, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though what came of it is JSON."""
    broke_off = asyncio.Event()

    async def see(self: GateMiddleware, *given: Any) -> None:
        await come_in(self, *given)
        broke_off.set()

    come_in = GateMiddleware.__call__
    monkeypatch.setattr(GateMiddleware, "__call__", see)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED)
    await writer.drain()
    writer.close()
    async with asyncio.timeout(PATIENCE):
        await broke_off.wait()

    assert await engine.jobs.counts() == []
