"""Does the health server tell what is so, and survive whatever a client does?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import DatabaseUnreachable, InvalidOption
from pulse.telemetry import health
from pulse.telemetry.health import Health, serve_health


class Reply(NamedTuple):
    status: int
    body: Any


class StandIn:
    """A worker and its database, as far as health looks at them."""

    is_ready = True

    def __init__(self) -> None:
        self.asked = 0
        self.trouble: Exception | None = None

    async def ask(self) -> None:
        self.asked += 1
        await asyncio.sleep(0)
        if self.trouble:
            raise self.trouble


@pytest.fixture
def worker() -> StandIn:
    return StandIn()


@asynccontextmanager
async def serving(worker: StandIn) -> AsyncIterator[int]:
    async with serve_health(Health(worker, worker.ask), host="127.0.0.1", port=0) as port:
        yield port


@pytest.fixture
async def port(worker: StandIn) -> AsyncIterator[int]:
    async with serving(worker) as port:
        yield port


async def send(port: int, request: bytes, *, then_close: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if then_close:
        writer.write_eof()
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def get(port: int, path: str) -> Reply:
    head, _, body = (await send(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    return Reply(int(head.split()[1]), json.loads(body))


async def test_it_lives_and_is_ready(port: int) -> None:
    for path in ("/livez", "/healthz", "/readyz", "/readyz?verbose"):
        assert await get(port, path) == (200, {"status": "ok"})


async def test_other_paths_are_not_found(port: int) -> None:
    assert [(await get(port, path)).status for path in ("/", "/nope", "/livez/x")] == [404, 404, 404]


async def test_a_worker_that_takes_no_jobs_lives_but_is_not_ready(port: int, worker: StandIn) -> None:
    worker.is_ready = False

    assert (await get(port, "/livez")).status == 200
    reply = await get(port, "/readyz")
    assert reply.status == 503
    assert "starting or stopping" in reply.body["why"]
    assert worker.asked == 0


async def test_a_database_that_does_not_answer_makes_it_unready_with_the_reason(port: int, worker: StandIn) -> None:
    worker.trouble = DatabaseUnreachable("cannot reach the database: refused")

    reply = await get(port, "/readyz")

    assert reply.status == 503
    assert "refused" in reply.body["why"]


async def test_a_short_outage_is_forgiven(port: int, worker: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ASK_EVERY", 0)
    assert (await get(port, "/readyz")).status == 200
    worker.trouble = DatabaseUnreachable("refused")

    assert (await get(port, "/readyz")).status == 200
    monkeypatch.setattr(health, "FRESH", 0)
    assert (await get(port, "/readyz")).status == 503


async def test_the_database_is_not_asked_more_often_than_it_must(port: int, worker: StandIn) -> None:
    replies = await asyncio.gather(*(get(port, "/readyz") for _ in range(20)))

    assert {reply.status for reply in replies} == {200}
    assert worker.asked == 1


async def test_a_database_that_hangs_is_not_waited_for(worker: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "ASK_PATIENCE", 0.01)
    monkeypatch.setattr(worker, "ask", asyncio.Event().wait)

    async with serving(worker) as port:
        assert "no answer" in (await get(port, "/readyz")).body["why"]


async def test_head_is_get_without_a_body(port: int) -> None:
    answer = await send(port, b"HEAD /livez HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


async def test_other_methods_are_not_allowed(port: int) -> None:
    assert (await send(port, b"POST /livez HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405 ")


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\xff\r\n\r\n",  # what a TLS client says first
        b"GET livez HTTP/1.1\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/2\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n",
        b"",
    ],
)
async def test_what_is_no_request_gets_400_and_harms_nobody(port: int, request_: bytes) -> None:
    answer = await send(port, request_, then_close=True)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (await get(port, "/livez")).status == 200


async def test_a_head_without_end_is_cut(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 10_000)

    async with asyncio.timeout(10):
        line = await reader.readline()
    writer.close()

    assert line.startswith(b"HTTP/1.1 400 ")
    assert (await get(port, "/livez")).status == 200


async def test_a_slow_client_is_left_alone(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CLIENT_PATIENCE", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /li")

    with pytest.raises(ConnectionResetError):
        assert await reader.read() == b""
        raise ConnectionResetError  # closed without a reset, which is as good
    writer.close()


async def test_a_client_that_went_away_harms_nobody(port: int) -> None:
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\n\r\n")
        writer.transport.abort()

    assert (await get(port, "/livez")).status == 200


async def test_a_port_that_is_taken_is_refused_by_its_name(port: int, worker: StandIn) -> None:
    with pytest.raises(InvalidOption, match=f"127.0.0.1:{port}"):
        async with serve_health(Health(worker, worker.ask), host="127.0.0.1", port=port):
            pass


async def test_metrics_are_shown_by_who_has_some_unless_they_are_not_for_everybody(
    engine: Engine, worker: StandIn
) -> None:
    shown = Health(worker, worker.ask, lambda: engine.metrics)
    hidden = Health(worker, worker.ask, lambda: engine.metrics, is_open=lambda: False)
    answers = []
    for each in (shown, hidden):
        async with serve_health(each, host="127.0.0.1", port=0) as port:
            answers.append(await send(port, b"GET /metrics HTTP/1.1\r\n\r\n"))

    assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in answers[0]
    assert b"\npulse_database_up 1\n" in answers[0]
    assert answers[1].startswith(b"HTTP/1.1 404 ")
