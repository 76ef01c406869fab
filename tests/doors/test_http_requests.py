"""Is every request answered in one shape, whatever is wrong with it, and are strangers kept out?"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest

from pulse.model.errors import DatabaseUnreachable
from pulse.settings import Settings
from tests.doors.http_client import Http, read_refusal, served_http

JSON = {"content-type": "application/json"}
LIMIT = 4 << 20
PATIENCE = 20


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings, message_limit=LIMIT) as http:
        yield http


async def raw(http: Http, request: bytes, *, then_close: bool = False) -> bytes:
    """What the server sends back to these very bytes until it closes, or has answered once."""
    address = http.server.http_address
    assert address
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(request)
        await writer.drain()
        if then_close:
            writer.write_eof()
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            return head + await reader.readexactly(length)
    finally:
        writer.close()


def read_raw(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


# --- every answer


async def test_every_answer_has_its_headers(http: Http) -> None:
    for path in ("/v1/info", "/v1/nowhere", "/v1/jobs?limit=0"):
        headers = (await http.ask("GET", path)).headers

        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "strict-transport-security" not in headers, "which over plain HTTP means nothing"
        assert parsedate_to_datetime(headers["date"]).tzinfo is not None
        assert "server" not in headers
        assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/jobs/", "/v2/jobs", "/docs", "/redoc", "/openapi.json"])
async def test_there_is_nothing_elsewhere(http: Http, path: str) -> None:
    assert (await http.refused("GET", path))[:2] == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/jobs", "GET, POST"),
        ("DELETE", "/v1/topics", "GET"),
        ("POST", "/v1/schedules/x", "DELETE, GET, PATCH"),
        ("GET", "/v1/topics/x/pause", "POST"),
        ("OPTIONS", "/v1/jobs", "GET, POST"),
        ("TRACE", "/v1/info", "GET"),
    ],
)
async def test_a_path_tells_which_methods_it_takes(http: Http, method: str, path: str, allowed: str) -> None:
    response = await http.ask(method, path)

    assert read_refusal(response)[:2] == (405, "method_not_allowed")
    assert response.headers["allow"] == allowed


async def test_a_mistake_of_ours_is_told_to_the_log_alone(
    http: Http, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("the secret is 42")

    monkeypatch.setattr(http.server._engine.jobs, "list_page", fail)
    with caplog.at_level(logging.ERROR):
        response = await http.ask("GET", "/v1/jobs")

    assert read_refusal(response)[:2] == (500, "internal")
    assert "42" not in response.text
    [record] = [record for record in caplog.records if record.name == "pulse.server"]
    assert record.exc_info is not None
    assert "GET /v1/jobs" in record.getMessage()


async def test_without_a_database_it_says_so_and_when_to_come_back(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise DatabaseUnreachable("cannot reach the database")

    monkeypatch.setattr(http.server._engine.jobs, "list_page", fail)
    response = await http.ask("GET", "/v1/jobs")

    assert read_refusal(response)[:2] == (503, "database_unreachable")
    assert int(response.headers["retry-after"]) > 0


# --- bodies


BROKEN = [b"{", b"{'task': 'a'}", b'{"task": "a"} x', b'{"task": NaN}', b'{"task": "\xff"}', b'{"task": "\\ud800"}']
BROKEN += [b"[" * 100_000, b'{"task": "a", "payload": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", b"\xef\xbb\xbf{}"]
NO_OBJECT = [b"", b'"text"', b"[]", b"null", b"17"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [*((body, "invalid_json") for body in BROKEN), *((body, "invalid_input") for body in NO_OBJECT)],
    ids=lambda value: repr(value[:30]),
)
async def test_a_body_that_is_no_job_is_refused(http: Http, body: bytes, expected: str) -> None:
    response = await http.ask("POST", "/v1/jobs", content=body, headers=JSON)

    status, code, _ = read_refusal(response)
    assert (status, code) == (400, expected)
    assert (await http.done("GET", "/v1/jobs"))["jobs"] == []


@pytest.mark.parametrize("depth", [100, 200, 500, 900, 990, 1_000])
async def test_a_payload_may_be_deep_or_is_refused(http: Http, depth: int) -> None:
    body = b'{"task": "a", "payload": ' + b"[" * depth + b"]" * depth + b"}"

    response = await http.ask("POST", "/v1/jobs", content=body, headers=JSON)

    assert response.status_code in (201, 400), response.text
    assert depth > 100 or response.status_code == 201


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/json5", "json"])
async def test_a_body_must_say_that_it_is_json(http: Http, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}

    response = await http.ask("POST", "/v1/jobs", content=b'{"task": "a"}', headers=headers)

    assert read_refusal(response)[:2] == (415, "unsupported_media_type")


async def test_json_may_say_its_charset(http: Http) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}

    response = await http.ask("POST", "/v1/jobs", content='{"task": "grüße 🐘"}'.encode(), headers=headers)

    assert (response.status_code, response.json()["task"]) == (201, "grüße 🐘")


async def test_what_takes_no_body_says_so(http: Http) -> None:
    assert (await http.refused("POST", "/v1/topics/a/resume", {"reason": "x"}))[:2] == (400, "invalid_input")
    await http.done("POST", "/v1/topics/a/resume", {})


async def test_a_body_over_the_limit_is_refused_before_it_comes(http: Http) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {LIMIT + 1}"

    answer = await raw(http, f"{head}\r\n\r\n".encode())  # and not a byte of it

    assert read_raw(answer) == (413, "body_too_large")


async def test_a_body_about_one_thing_is_smaller_than_one_about_many(settings: Settings) -> None:
    body = b" " * ((4 << 20) + 1)

    async with served_http(settings) as http:
        one = await http.client.post("/v1/jobs", content=body, headers=JSON)
        many = await http.client.post("/v1/jobs/batch", content=body, headers=JSON)

    assert (one.status_code, many.status_code) == (413, 400)


async def test_a_query_of_many_parameters_is_refused_unread(http: Http) -> None:
    refused = await http.refused("GET", "/v1/jobs?" + "&".join(["limit=1"] * 101))

    assert refused == (400, "invalid_input", "the query must have at most 100 parameters")


async def test_a_body_in_chunks_is_refused_at_the_limit(http: Http) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(2 * LIMIT >> 16):
            yield b" " * (1 << 16)

    response = await http.client.post("/v1/jobs", content=chunks(), headers=JSON)

    assert read_refusal(response)[:2] == (413, "body_too_large")
    assert response.headers["connection"] == "close"


async def test_whoever_goes_on_sending_is_hung_up_on(http: Http) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0)
            yield b" " * (1 << 16)

    async with asyncio.timeout(PATIENCE):
        with suppress(httpx.TransportError):  # or there was just time to read the answer
            await http.client.post("/v1/jobs", content=endless(), headers=JSON)
    await http.done("GET", "/v1/info")


async def test_a_large_body_within_the_limit_is_taken(http: Http) -> None:
    jobs = [{"task": "mail", "payload": "x" * 900_000} for _ in range(4)]

    assert len((await http.done("POST", "/v1/jobs/batch", {"jobs": jobs}))["jobs"]) == 4


async def test_a_body_shorter_than_it_said_does_nothing(http: Http) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"

    with pytest.raises(asyncio.IncompleteReadError):
        await raw(http, head + b'{"task": "mail"}', then_close=True)

    assert (await http.done("GET", "/v1/jobs"))["jobs"] == []


async def test_a_body_longer_than_it_said_is_cut_there(http: Http) -> None:
    body = b'{"task": "mail"}'
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"

    answer = await raw(http, f"{head}\r\n\r\n".encode() + body + b'{"task": "other"}')

    assert answer.startswith(b"HTTP/1.1 201")
    assert [job["task"] for job in (await http.done("GET", "/v1/jobs"))["jobs"]] == ["mail"]


@pytest.mark.parametrize("length", ["x", "-1", "1e3", "5, 6"])
async def test_a_length_that_is_none_is_refused(http: Http, length: str) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}"

    answer = await raw(http, f"{head}\r\n\r\n{{}}".encode(), then_close=True)

    assert answer.startswith(b"HTTP/1.1 400")
