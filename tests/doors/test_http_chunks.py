"""What may somebody cost the others who sends a body in crumbs, or goes on when nobody listens?"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import h11
import pytest

from pulse.doors.http.requests.chunks import CHUNKS_IN_VAIN, MAX_CHUNKS, TURN, TurnedReader
from pulse.engine.engine import Engine
from pulse.settings import Settings
from tests.doors.http_client import Http, served_http

PATIENCE = 20
HEAD = b"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
JOBS = CHUNKED % (b"/v1/jobs", b"localhost")
REFUSED = CHUNKED % (b"/v1/jobs", b"evil.example")
CRUMB = b"1\r\n \r\n"
END = b"0\r\n\r\n"


@pytest.fixture
async def http(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Http]:
    monkeypatch.setattr("pulse.doors.http.requests.protocol.LINGER", 0.2, raising=False)
    async with served_http(settings) as http:
        yield http


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often h11 was asked what comes next: in all, and since the event loop last went round."""
    counts, ask = [0, 0], h11.Connection.next_event

    def count(self: h11.Connection) -> Any:
        counts[0] += 1
        counts[1] += 1
        return ask(self)

    monkeypatch.setattr(h11.Connection, "next_event", count)
    return counts


async def answer_to(http: Http, *sent: bytes) -> bytes:
    """All that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection(*http.server.http_address)  # type: ignore[misc]
    answered = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            writer.write(b"".join(sent))
            while some := await reader.read(1 << 16):
                answered += some
    writer.close()
    return answered


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def test_a_body_of_crumbs_is_refused(http: Http, engine: Engine) -> None:
    job = chunk(b'{"task": "mail"}')

    head, _, body = (await answer_to(http, JOBS, job, CRUMB * 50_000, END)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    error = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["error"]
    assert (error["code"], error["details"]) == ("too_many_chunks", {})
    assert await engine.jobs.counts() == []


async def test_others_have_their_turn_meanwhile(http: Http, steps: list[int]) -> None:
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most, steps[1] = max(most, steps[1]), 0
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await answer_to(http, JOBS, CRUMB * 30_000, END)
    looking.cancel()

    assert steps[0] > MAX_CHUNKS
    assert most < 5 * TURN


async def test_a_refused_request_is_not_read_to_its_end(http: Http, steps: list[int]) -> None:
    answered = await answer_to(http, REFUSED, CRUMB * 9_000, END)

    assert answered.startswith(b"HTTP/1.1 403 ")
    assert steps[0] < 2 * CHUNKS_IN_VAIN


async def test_who_goes_on_behind_a_refusal_is_cut_off(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.http.requests.security_headers.LINGER", 2 * PATIENCE)
    monkeypatch.setattr("pulse.doors.http.requests.protocol.BYTES_IN_VAIN", 1 << 20, raising=False)
    reader, writer = await asyncio.open_connection(*http.server.http_address)  # type: ignore[misc]
    writer.write(HEAD % (b"/v1/jobs", b"evil.example") + b"content-length: 1000000000000\r\n\r\n")

    async with asyncio.timeout(PATIENCE):
        assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
        with pytest.raises(ConnectionError):
            while True:
                writer.write(bytes(1 << 16))
                await writer.drain()
    writer.close()


@pytest.mark.parametrize("line", [b"1;" + b"x" * 12_000 + b"\r\n \r\n", b"0\r\n" + b"a:\r\n" * 3_000 + b"\r\n"])
async def test_a_long_line_between_chunks_is_not_looked_through(http: Http, line: bytes) -> None:
    answered = await answer_to(http, JOBS, chunk(b'{"task": "mail"}'), line, END)

    assert answered.startswith(b"HTTP/1.1 400 ")
    assert b"Invalid HTTP request" in answered


async def test_a_body_in_thousands_of_small_chunks_is_taken(http: Http) -> None:
    crumbs = [chunk(b" " * 100)] * 8_000

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"task": "mail"}'
        for _ in range(8_000):
            yield b" " * 100

    answered = await http.client.post("/v1/jobs", content=pieces(), headers={"content-type": "application/json"})
    assert answered.status_code == 201, answered.text

    close = JOBS[:-2] + b"connection: close\r\n\r\n"
    assert (await answer_to(http, close, chunk(b'{"task": "mail"}'), *crumbs, END)).startswith(b"HTTP/1.1 201 ")


async def test_requests_behind_each_other_are_answered_in_order(http: Http) -> None:
    first = JOBS + chunk(b'{"task": "mail"}') + CRUMB * 2_000 + END
    last = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

    answered = await answer_to(http, first, first, last)

    assert re.findall(rb"HTTP/1\.1 (\d+)", answered) == [b"201", b"201", b"200"]


# --- one reader by itself


def read_all(reader: TurnedReader) -> list[Any]:
    found: list[Any] = []
    reader.is_behind = True
    while reader.is_behind:
        reader.begin_turn()
        before = len(found)
        while (event := reader.next_event()) is not h11.NEED_DATA:
            found.append(event)
        assert len(found) - before <= TURN
    return found


def test_larger_chunks_are_as_many_as_they_need_to_be() -> None:
    reader = TurnedReader()
    reader.receive_data(JOBS + chunk(bytes(1024)) * 2 * MAX_CHUNKS)

    assert sum(len(event.data) for event in read_all(reader) if isinstance(event, h11.Data)) == 2048 * MAX_CHUNKS


def test_a_body_in_one_piece_is_read_in_one_piece_and_not_what_is_behind_it() -> None:
    head = HEAD % (b"/v1/jobs", b"localhost") + b"content-length: 100000\r\n\r\n"
    reader = TurnedReader()
    reader.receive_data(head + bytes(100_000) + b"GET /" + b"x" * 100_000)
    reader.begin_turn()

    events = [reader.next_event() for _ in range(5)]

    assert sum(len(event.data) for event in events if isinstance(event, h11.Data)) == 100_000
    assert events[-1] is h11.PAUSED
    assert len(reader._unparsed) > 90_000
