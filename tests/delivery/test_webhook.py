"""What does a receiver get, and what do we make of its answer?"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pulse.delivery.answers import retry_after_of
from pulse.delivery.signing import new_secret
from pulse.delivery.webhook import Deliverer
from pulse.version import __version__
from pulse.webhooks import verify_signature
from tests.delivery.endpoints import OK, Dials, Endpoint, a_deliverer, a_wake, answering, endpoint, until

OWN = {"X-Mine": "1", "Authorization": "Basic theirs", "cookie": "a=b"}


def answer(status: int, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever It Says", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def test_what_a_receiver_gets() -> None:
    secrets = [new_secret(), new_secret()]
    async with endpoint(answering(OK)) as made, a_deliverer(alarm_token="operators") as deliverer:
        found = await deliverer.deliver(
            a_wake(f"{made.url}?a=b%20c", id="wake_7", body=b'{"a":1}', headers=OWN), secrets=secrets
        )

    (request,) = made.requests
    assert (found.status, found.error, found.answer, found.is_success) == (200, None, "ok", True)
    assert request.line == "POST /wake?a=b%20c HTTP/1.1"
    assert request.body == b'{"a":1}'
    assert sorted(request.headers) == sorted(
        [
            ("host", f"127.0.0.1:{made.port}"),
            ("accept", "*/*"),
            ("accept-encoding", "identity"),
            ("content-type", "application/json"),
            ("content-length", "7"),
            ("user-agent", f"pulse/{__version__}"),
            ("webhook-id", "wake_7"),
            ("webhook-timestamp", request["webhook-timestamp"]),
            ("webhook-signature", request["webhook-signature"]),
            ("idempotency-key", "wake_7"),
            ("x-mine", "1"),
            ("authorization", "Basic theirs"),
            ("cookie", "a=b"),
        ]
    )
    assert abs(int(request["webhook-timestamp"]) - time.time()) < 5
    for secret in secrets:
        assert verify_signature(request.body, dict(request.headers), secret) == "wake_7"


async def test_without_a_secret_nothing_is_signed() -> None:
    async with endpoint(answering(OK)) as made, a_deliverer() as deliverer:
        await deliverer.deliver(a_wake(made.url), secrets=[])

    assert made.requests[0].all("webhook-signature") == []


async def test_the_operators_token_goes_to_the_default_target_and_nowhere_else() -> None:
    async with (
        endpoint(answering(OK)) as default,
        endpoint(answering(OK)) as other,
        a_deliverer(alarm_target=default.url, alarm_token="operators") as deliverer,
    ):
        await deliverer.deliver(a_wake(None, headers=OWN), secrets=[])
        await deliverer.deliver(a_wake(other.url), secrets=[])
        await deliverer.deliver(a_wake(default.url), secrets=[])

    assert default.requests[0].all("authorization") == ["Bearer operators"]
    assert default.requests[0]["x-mine"] == "1"
    assert other.requests[0].all("authorization") == []
    assert default.requests[1].all("authorization") == []  # named by an alarm, it is an address like any other


async def test_the_default_target_may_be_anywhere() -> None:
    dials = Dials()
    async with endpoint(answering(OK)) as made:
        strict: dict[str, Any] = {"alarm_networks": "", "alarm_ports": "443", "resolve": lambda _: ["127.0.0.1"]}
        for host in ("127.0.0.1", "localhost", "agents"):
            target = f"http://{host}:{made.port}/in"
            async with a_deliverer(alarm_target=target, **strict) as deliverer:
                found = await deliverer.deliver(a_wake(None), secrets=[])
                refused = await deliverer.deliver(a_wake(target), secrets=[])
            assert (found.error, refused.status) == (None, None)

    assert dials.addresses == ["127.0.0.1"] * 3


async def test_an_alarm_without_a_url_needs_a_default_target() -> None:
    async with a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(None), secrets=[])

    assert found.error == "the alarm must have a url, because PULSE_ALARM_TARGET is not set"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_a_success(status: int) -> None:
    async with endpoint(answering(answer(status))) as made, a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(made.url), secrets=[])

    assert (found.status, found.error, found.is_success, found.is_gone) == (status, None, True, False)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, "HTTP 400 Bad Request"),
        (404, "HTTP 404 Not Found"),
        (410, "HTTP 410 Gone"),
        (429, "HTTP 429 Too Many Requests"),
        (503, "HTTP 503 Service Unavailable"),
        (599, "HTTP 599"),
    ],
)
async def test_every_other_status_is_an_error_in_our_words(status: int, error: str) -> None:
    async with endpoint(answering(answer(status, body="why"))) as made, a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(made.url), secrets=[])

    assert (found.status, found.error, found.answer) == (status, error, "why")
    assert found.is_gone == (status == 410)
    assert not found.is_success


async def test_an_answer_is_kept_as_postgres_can_store_it() -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + (b"\x00\xff\xc3\xa9" * 500)
    async with endpoint(answering(raw)) as made, a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(made.url), secrets=[])

    assert found.answer.startswith("\ufffd\ufffdé")
    assert "\x00" not in found.answer
    assert len(found.answer.encode("utf-8")) <= 4 * 1024


async def test_retry_after_is_read() -> None:
    async with endpoint(answering(answer(429, "retry-after: 120"))) as made, a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(made.url), secrets=[])

    assert found.retry_after == timedelta(seconds=120)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (None, None),
        ("", None),
        ("0", timedelta()),
        (" 30 ", timedelta(seconds=30)),
        ("9" * 4000, timedelta(hours=24)),
        ("86401", timedelta(hours=24)),
        ("Mon, 16 Nov 2026 09:01:00 GMT", timedelta(minutes=1)),
        ("Mon, 16 Nov 2026 09:01:00 -0000", timedelta(minutes=1)),
        ("Mon, 16 Nov 2026 08:00:00 GMT", timedelta()),
        ("Mon, 16 Nov 2099 08:00:00 GMT", timedelta(hours=24)),
        ("Mon, 16 Nov 99999 08:00:00 GMT", None),
        ("-5", None),
        ("1.5", None),
        ("١٢", None),
        ("soon", None),
        ("Mon, 16 Nov 2026 09:01:00 +9999999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str | None, meaning: timedelta | None) -> None:
    assert retry_after_of(text, datetime(2026, 11, 16, 9, tzinfo=UTC)) == meaning


async def test_a_connection_is_used_again() -> None:
    async with endpoint(answering(OK)) as made, a_deliverer() as deliverer:
        for _ in range(5):
            assert (await deliverer.deliver(a_wake(made.url), secrets=[])).is_success

    assert (made.connections, len(made.requests)) == (1, 5)


async def test_one_whose_answer_was_cut_off_is_not() -> None:
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 200000\r\n\r\n" + b"x" * 200_000
    async with endpoint(answering(long, OK)) as made, a_deliverer() as deliverer:
        for _ in range(2):
            assert (await deliverer.deliver(a_wake(made.url), secrets=[])).is_success

        assert made.connections == 2


async def test_cookies_are_neither_kept_nor_sent() -> None:
    """By name: aiohttp's own jar would pass over an address."""
    sets = answering(answer(200, "set-cookie: session=1; path=/"))
    resolve: dict[str, Any] = {"resolve": lambda _: ["127.0.0.1"]}
    async with endpoint(sets) as made, a_deliverer(alarm_ports=str(made.port), **resolve) as deliverer:
        for _ in range(2):
            await deliverer.deliver(a_wake(f"http://cookies.test:{made.port}/"), secrets=[])

    assert [request.all("cookie") for request in made.requests] == [[], []]


async def test_headers_that_reached_the_database_some_other_way_are_refused() -> None:
    async with endpoint(answering(OK)) as made, a_deliverer() as deliverer:
        for headers in ({"Host": "evil"}, {"x": "a\r\nHost: evil"}, {"Content-Length": "0"}):
            found = await deliverer.deliver(a_wake(made.url, headers=headers), secrets=[])
            assert "headers" in (found.error or "")
        smuggling = await deliverer.deliver(a_wake(made.url, id="a\r\nHost: evil"), secrets=[])

    assert smuggling.error == "the wake could not be sent: ValueError"
    assert made.requests == []


async def test_a_secret_that_cannot_be_read_is_an_error_that_does_not_show_it() -> None:
    async with endpoint(answering(OK)) as made, a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(made.url), secrets=["whsec_hunter2!"])

    assert found.error
    assert "hunter2" not in found.error


async def test_a_refused_connection_is_an_error_without_the_query() -> None:
    async with endpoint(answering(OK)) as made:
        url = f"{made.url}?token=hunter2"
    async with a_deliverer() as deliverer:
        found = await deliverer.deliver(a_wake(url), secrets=[])

    assert found.error == f"cannot connect to 127.0.0.1:{made.port}: Connection refused"


async def test_cancelling_is_the_one_thing_it_raises_and_drops_the_connection() -> None:
    closed = asyncio.Event()

    async def wait(made: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made.read_request(reader)
        await reader.read()
        closed.set()

    async with endpoint(wait) as made, a_deliverer() as deliverer:
        task = asyncio.create_task(deliverer.deliver(a_wake(made.url), secrets=[]))
        await until(lambda: bool(made.requests))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 3)


async def test_a_deliverer_can_be_closed_and_opened_again() -> None:
    async with endpoint(answering(OK)) as made:
        deliverer = a_deliverer()
        for _ in range(2):
            async with deliverer:
                assert (await deliverer.deliver(a_wake(made.url), secrets=[])).is_success

        found = await deliverer.deliver(a_wake(made.url), secrets=[])

    assert not found.is_success


@pytest.mark.parametrize(
    ("url", "destination"),
    [
        (None, "default"),
        ("https://Example.com/a?b", "https://example.com:443"),
        ("http://10.0.0.1:9/", "http://10.0.0.1:9"),
        ("nonsense", "invalid"),
    ],
)
def test_a_destination_is_a_scheme_a_host_and_a_port(url: str | None, destination: str) -> None:
    assert a_deliverer().destination_of(url) == destination


def a_certificate(folder: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=secure.test -keyout key -out cert"
    names = ["-addext", "subjectAltName=DNS:secure.test"]
    subprocess.run([*make.split(), *names], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    return context


async def test_a_certificate_nobody_vouches_for_is_not_accepted(tmp_path: Path) -> None:
    context = a_certificate(tmp_path)
    resolve = {"resolve": lambda _: ["127.0.0.1"]}
    async with (
        endpoint(answering(OK), ssl=context) as made,
        a_deliverer(**resolve, alarm_ports=str(made.port)) as deliverer,
    ):
        found = await deliverer.deliver(a_wake(f"https://secure.test:{made.port}/"), secrets=[])

    assert (found.error or "").startswith("TLS: the certificate of secure.test is not accepted: ")
    assert made.requests == []


async def test_a_pinned_address_is_still_spoken_to_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, trusting = a_certificate(tmp_path), ssl.create_default_context(cafile=tmp_path / "cert")
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    asked: list[Any] = []
    context.sni_callback = lambda _, name, __: asked.append(name)
    resolve = {"resolve": lambda _: ["127.0.0.1"]}
    async with (
        endpoint(answering(OK), ssl=context) as made,
        a_deliverer(**resolve, alarm_ports=str(made.port)) as deliverer,
    ):
        found = await deliverer.deliver(a_wake(f"https://secure.test:{made.port}/"), secrets=[])
        other = await deliverer.deliver(a_wake(f"https://other.test:{made.port}/"), secrets=[])

    assert found.error is None
    assert asked == ["secure.test", "other.test"]
    assert made.requests[0]["host"] == f"secure.test:{made.port}"
    assert "is not accepted" in (other.error or "")


async def test_nothing_is_asked_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    async with endpoint(answering(OK)) as made, a_deliverer() as deliverer:
        await deliverer.deliver(a_wake(made.url), secrets=[])

    assert made.requests[0].all("authorization") == []


async def test_no_error_of_the_client_is_without_words() -> None:
    """A new kind of aiohttp's becomes its name, never an exception of ours and never a URL."""
    from pulse.delivery.webhook import _describe_error

    assert _describe_error(aiohttp.InvalidURL("http://x/?token=hunter2")) == "the wake could not be sent: InvalidURL"
    assert isinstance(a_deliverer(), Deliverer)
