"""Who is kept out where there are no tokens, where is it served, and how does it end?"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response

from pulse.cli.server.mcp_process import _bind
from pulse.doors.http.requests.port import HttpPort
from pulse.doors.http.requests.security_headers import SecurityMiddleware
from pulse.engine.engine import Engine
from pulse.engine.tokens import Tokens
from pulse.model.errors import InvalidSettings
from pulse.model.network.server_url import parse_listen
from pulse.server import check_exposure, open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.doors.http_client import ANYWHERE, Http, read_refusal, served_http
from tests.waiting import until

JSON = {"content-type": "application/json"}
LIMIT = 4 << 20
PATIENCE = 20


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings, message_limit=LIMIT) as http:
        yield http


# --- other sites' pages


@pytest.mark.parametrize("host", ["localhost", "localhost:99", "LOCALHOST", "127.0.0.1", "127.0.0.1:1", "[::1]:8700"])
async def test_this_machine_is_served_by_any_of_its_names(http: Http, host: str) -> None:
    await http.done("GET", "/v1/info", headers={"host": host})


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "10.0.0.1",
        "[",
        "a@b",
        "127.0.0.1/.evil.example",
        "evil@127.0.0.1",
        "127.0.0.1?.evil.example",
        "127.0.0.1:80:80",
    ],
)
async def test_a_name_that_leads_here_is_not_enough(http: Http, host: str) -> None:
    for method, path in (("GET", "/v1/jobs"), ("GET", "/v1/info"), ("POST", "/v1/topics/a/pause"), ("GET", "/v1/no")):
        assert (await http.refused(method, path, headers={"host": host}))[:2] == (403, "forbidden_host")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://127.0.0.1", ""])
async def test_a_page_of_another_site_is_refused(http: Http, engine: Engine, origin: str) -> None:
    refused = await http.refused("POST", "/v1/topics/a/pause", headers={"origin": origin})

    assert refused[:2] == (403, "forbidden_origin")
    assert await engine.jobs.pauses() == []


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_call_that_the_browser_says_comes_from_another_site_is_refused(
    http: Http, engine: Engine, site: str
) -> None:
    """Also without an Origin, which some requests lack."""
    refused = await http.refused("POST", "/v1/topics/a/pause", headers={"sec-fetch-site": site})

    assert refused[:2] == (403, "forbidden_origin")
    assert await engine.jobs.pauses() == []
    await http.done("GET", "/v1/info", headers={"sec-fetch-site": site})  # a link on another site may lead here


@pytest.mark.parametrize(("scheme", "told"), [("http", None), ("https", "max-age=31536000")])
async def test_browsers_that_came_over_tls_are_told_to_stay_with_it(scheme: str, told: str | None) -> None:
    middleware = SecurityMiddleware(
        PlainTextResponse("well"), has_tokens=False, has_certificates=scheme == "https", deadline=PATIENCE
    )

    async with httpx.AsyncClient(transport=httpx.ASGITransport(middleware), base_url=f"{scheme}://localhost") as client:
        answers = [await client.get("/"), await client.get("/", headers={"origin": "https://evil.example"})]

    assert [answer.status_code for answer in answers] == [200, 403]
    assert [answer.headers.get("strict-transport-security") for answer in answers] == [told, told]


async def test_a_page_of_this_very_host_is_served(http: Http) -> None:
    origin = str(http.client.base_url).rstrip("/")

    await http.done("POST", "/v1/topics/a/pause", headers={"origin": origin})


async def test_with_tokens_it_has_any_name(settings: Settings, database: Database) -> None:
    _, secret = await Tokens(database).create("web", ["operate"])

    async with served_http(settings, token=secret) as http:
        await http.done("GET", "/v1/jobs", headers={"host": "jobs.example", "origin": "https://shop.example"})


# --- where it listens


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "10.0.0.1:8700", "[::]:8700", "jobs.example"])
def test_it_does_not_listen_to_strangers_without_tokens(settings: Settings, listen: str) -> None:
    exposed = replace(settings, http_listen=listen)

    with pytest.raises(InvalidSettings, match="create a token first"):
        check_exposure(exposed, has_tokens=False)
    check_exposure(exposed, has_tokens=True)


async def test_the_two_packets_of_an_answer_do_not_wait_for_each_other(http: Http) -> None:
    """Which took a keep-alive client 40 ms for each call, on an event loop that is not uvloop's."""
    assert (await http.client.get("/v1/topics")).status_code == 200

    port: Any = http.server._http
    connections = port._server.server_state.connections
    sockets = [connection.transport.get_extra_info("socket") for connection in connections]

    assert sockets
    assert all(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets)


def test_those_of_mcp_do_not_either() -> None:
    with _bind(parse_listen("127.0.0.1:0")) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_port_that_is_taken_is_told_with_its_setting(http: Http, settings: Settings) -> None:
    taken = replace(settings, listen=ANYWHERE, http_listen=str(http.server.http_address))

    with pytest.raises(InvalidSettings, match="PULSE_HTTP_LISTEN"):
        async with open_server(taken):
            pass


# --- who takes their time

HASTE = timedelta(milliseconds=300)
SLOW_HEAD = b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"


@pytest.fixture
async def hasty(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings, http_deadline=HASTE) as http:
        yield http


async def drip(http: Http, sent: bytes, drop: bytes) -> bytes:
    """All that is answered to one who sends this and then a byte now and then, until the connection is closed."""
    reader, writer = await asyncio.open_connection(*http.server.http_address)  # type: ignore[misc]
    writer.write(sent)

    async def go_on() -> None:
        while drop:
            writer.write(drop)
            await asyncio.sleep(0.05)

    dripping, answered = asyncio.create_task(go_on()), b""
    with suppress(ConnectionResetError):  # by one more byte after the end
        async with asyncio.timeout(PATIENCE):
            while some := await reader.read(1 << 16):
                answered += some
    dripping.cancel()
    writer.close()
    return answered


@pytest.mark.parametrize("drop", [b"", b" "])
@pytest.mark.parametrize("path", [b"/v1/jobs", b"/sign-in"])
async def test_a_body_that_comes_too_slowly_is_not_waited_for(
    hasty: Http, monkeypatch: pytest.MonkeyPatch, path: bytes, drop: bytes
) -> None:
    monkeypatch.setattr("pulse.doors.http.requests.security_headers.LINGER", 0.1)

    head, _, body = (await drip(hasty, SLOW_HEAD % path, drop)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    if path == b"/v1/jobs":
        told = "the body took longer than 0.3 s: send it faster"
        assert body_of(body) == {"error": {"code": "too_slow", "message": told, "details": {}}}
    else:
        assert b"the body took longer than" in body


def body_of(body: bytes) -> Any:
    return json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])


@pytest.mark.parametrize(
    ("sent", "drop"),
    [(b"", b""), (b"GET / HT", b""), (b"GET /livez HTTP/1.1\r\nhost: localhost\r\n", b"x")],
)
async def test_a_head_that_comes_too_slowly_is_not_waited_for_either(hasty: Http, sent: bytes, drop: bytes) -> None:
    assert await drip(hasty, sent, drop) == b""


async def test_the_second_head_of_a_connection_has_the_same_time(hasty: Http) -> None:
    first = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"

    answered = await drip(hasty, first, b"G")  # it begins the next one, and never ends it

    assert answered.startswith(b"HTTP/1.1 200")


async def test_who_has_asked_in_time_may_be_answered_later(hasty: Http) -> None:
    job = await hasty.done("POST", "/v1/jobs", {"task": "mail"}, status=201)

    waited = await hasty.done("GET", f"/v1/jobs/{job['id']}/wait?seconds=0.6")

    assert waited["status"] == "PENDING"


async def test_a_stream_goes_on_though_its_viewer_promised_a_body(hasty: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.live.KEEPALIVE_INTERVAL", 2 * HASTE.total_seconds())
    reader, writer = await asyncio.open_connection(*hasty.server.http_address)  # type: ignore[misc]
    writer.write(b"GET /live/workers HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n")

    async with asyncio.timeout(PATIENCE):
        await reader.readuntil(b": still here")
    writer.close()


ANSWER = bytes(24 << 20)  # more than the kernel keeps for both sides


@asynccontextmanager
async def asked_for_much(settings: Settings, deadline: timedelta) -> AsyncIterator[tuple[HttpPort, socket.socket]]:
    """A server whose answer is on its way to a client that has read none of it."""
    port = HttpPort(replace(settings, http_listen=ANYWHERE, http_deadline=deadline), Response(ANSWER))
    await port.start()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, port.address)
        client.send(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        try:
            yield port, client
        finally:
            await port.stop(0)


def connections_of(port: HttpPort) -> set[Any]:
    return port._server.server_state.connections


async def test_who_never_reads_an_answer_is_let_go_with_what_it_holds(settings: Settings) -> None:
    async with asked_for_much(settings, HASTE) as (port, client):

        async def is_served() -> bool:
            return bool(connections_of(port))

        async def is_let_go() -> bool:
            return not connections_of(port)

        await until(is_served, PATIENCE)
        await until(is_let_go, PATIENCE)

        loop, got = asyncio.get_running_loop(), 0
        with suppress(ConnectionResetError):
            while some := await loop.sock_recv(client, 1 << 20):
                got += len(some)
        assert got < len(ANSWER)


async def test_who_reads_slowly_gets_it_all(settings: Settings) -> None:
    async with asked_for_much(settings, timedelta(seconds=1)) as (_, client):
        loop, got, began = asyncio.get_running_loop(), 0, time.monotonic()
        while got < len(ANSWER):
            some = await loop.sock_recv(client, 1 << 20)
            assert some
            got += len(some)
            if time.monotonic() - began < 2:  # twice the deadline, and as fast as it comes after that
                await asyncio.sleep(0.05)


# --- going down


async def test_a_request_under_way_is_finished_and_a_waiter_let_go(settings: Settings) -> None:
    async with served_http(settings) as http:
        job = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=201)
        entered, go_on = asyncio.Event(), asyncio.Event()
        real = http.server._engine.jobs.counts

        async def slow() -> Any:
            entered.set()
            await go_on.wait()
            return await real()

        http.server._engine.jobs.counts = slow  # type: ignore[method-assign]
        waiting = asyncio.create_task(http.done("GET", f"/v1/jobs/{job['id']}/wait"))
        slowly = asyncio.create_task(http.done("GET", "/v1/topics"))
        await asyncio.wait_for(entered.wait(), PATIENCE)

        draining = asyncio.create_task(http.server.drain())
        assert (await asyncio.wait_for(waiting, PATIENCE))["status"] == "PENDING"
        await asyncio.sleep(0.2)
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient() as other:
                await other.get(f"http://{http.server.http_address}/v1/info")
        assert not draining.done()
        go_on.set()

        assert (await asyncio.wait_for(slowly, PATIENCE))["topics"][0]["topic"] == "mail"
        await asyncio.wait_for(draining, PATIENCE)


async def test_a_request_that_does_not_end_is_ended(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    async with served_http(settings) as http:

        async def never() -> Any:
            await asyncio.Event().wait()

        http.server._engine.jobs.counts = never  # type: ignore[method-assign]
        asking = asyncio.create_task(http.ask("GET", "/v1/topics"))
        await asyncio.sleep(0.2)

        await asyncio.wait_for(http.server.drain(grace=0.1), PATIENCE)

        response = await asking
        assert read_refusal(response)[:2] == (503, "unavailable")


async def test_it_can_be_left_out(settings: Settings) -> None:
    async with open_server(replace(settings, listen=ANYWHERE, http_listen="")) as server:
        assert server.http_address is None


async def test_it_is_left_out_where_its_packages_are_not(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.http.find_spec", lambda name: None)

    async with open_server(replace(settings, listen=ANYWHERE, http_listen=ANYWHERE)) as server:
        assert server.http_address is None
