"""What can somebody do to the dashboard who means no good? Scripts are tried in tests/browser/test_injection.py."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from pulse.doors.dashboard.app import VIEWS
from pulse.doors.dashboard.guard import MAX_FAILURES
from pulse.doors.dashboard.live import Live
from pulse.engine.engine import Engine, open_engine
from pulse.model.jobs import Outcome
from pulse.model.redaction import MASK
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.doors.dashboard_client import make, page, post, set_one
from tests.doors.http_client import Http, served_http
from tests.doors.test_dashboard_access import Closed, word_of
from tests.doors.test_dashboard_live import following, until
from tests.factories import a_report, claim_one, submit_one


@pytest.fixture
async def closed(settings: Settings, engine: Engine) -> AsyncIterator[Closed]:
    scopes = {"admin": ["admin"], "reader": ["read"]}
    secrets = {name: (await engine.tokens.create(name, given))[1] for name, given in scopes.items()}
    async with served_http(settings) as http:
        yield Closed(http, secrets)


@pytest.fixture
async def open_http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


# --- hosts, origins and where one is led


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"x-forwarded-host": "evil.example"}])
async def test_no_header_decides_where_a_stranger_is_led(closed: Closed, headers: dict[str, str]) -> None:
    """And behind a proxy that ends TLS nobody is led out of it."""
    answer = await closed.http.client.get("/jobs?topic=a%26b", headers=headers)

    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fjobs%3Ftopic%3Da%2526b"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("origin", ["http://[", "http://]", "//["])
async def test_an_origin_that_is_none_is_refused_and_breaks_nothing(
    open_http: Http, closed: Closed, origin: str
) -> None:
    assert (await open_http.client.get("/", headers={"origin": origin})).status_code == 403
    assert (await closed.sign_in(closed.secrets["admin"], headers={"origin": origin})).status_code == 403


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://[", "/"),
        ("http://evil.example/jobs?x=1", "/jobs?x=1"),
        ("http://evil.example//evil.example/", "/"),
        ("http://x/\\evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
async def test_who_has_sent_a_form_stays_on_our_pages(open_http: Http, referer: str, back: str) -> None:
    word = word_of(await open_http.client.get("/"))
    answer = await open_http.client.post("/topics/mail/pause", data={"csrf": word}, headers={"referer": referer})

    assert (answer.status_code, answer.headers["location"]) == (303, back)


@pytest.mark.parametrize("headers", [{"x-http-method-override": "POST"}, {"x-method-override": "POST"}])
async def test_no_header_makes_a_deed_of_a_look(closed: Closed, engine: Engine, headers: dict[str, str]) -> None:
    await closed.sign_in(closed.secrets["admin"])
    word = await closed.word()
    answer = await closed.http.client.get(f"/topics/mail/pause?csrf={word}&_method=POST", headers=headers)

    assert answer.status_code == 405
    assert (await closed.http.client.post(f"/topics/mail/pause?csrf={word}")).status_code == 403
    assert await engine.jobs.pauses() == []


# --- signing in


async def test_guessing_many_at_once_is_stopped_as_well(closed: Closed) -> None:
    wrong = ["pulse_" + f"{number:043}" for number in range(3 * MAX_FAILURES)]
    answers = await asyncio.gather(*(closed.sign_in(secret) for secret in wrong))

    assert sorted(answer.status_code for answer in answers) == [401] * MAX_FAILURES + [429] * 2 * MAX_FAILURES


async def test_a_name_for_the_address_made_up_by_the_caller_is_not_believed(closed: Closed) -> None:
    for number in range(MAX_FAILURES):
        await closed.sign_in(
            "wrong", headers={"x-forwarded-for": f"10.0.0.{number}", "forwarded": f"for=10.1.0.{number}"}
        )

    assert (await closed.sign_in("wrong", headers={"x-forwarded-for": "10.0.0.99"})).status_code == 429


async def test_behind_a_proxy_of_ours_each_address_has_its_own_guesses(settings: Settings, engine: Engine) -> None:
    await engine.tokens.create("admin", ["admin"])
    async with served_http(settings, http_proxies="127.0.0.0/8") as http:
        closed = Closed(http, {})
        for number in range(MAX_FAILURES):  # the guesser writes something in front, and the proxy who it is
            await closed.sign_in("wrong", headers={"x-forwarded-for": f"198.51.100.{number}, 203.0.113.7"})

        assert (await closed.sign_in("wrong", headers={"x-forwarded-for": "203.0.113.7"})).status_code == 429
        assert (await closed.sign_in("wrong", headers={"x-forwarded-for": "203.0.113.8"})).status_code == 401


async def test_who_is_no_proxy_of_ours_is_not_believed_though_there_are_some(
    settings: Settings, engine: Engine
) -> None:
    await engine.tokens.create("admin", ["admin"])
    async with served_http(settings, http_proxies="10.0.0.0/8, ::1") as http:
        closed = Closed(http, {})
        told = [{"x-forwarded-for": f"203.0.113.{number}"} for number in range(MAX_FAILURES + 1)]
        statuses = [(await closed.sign_in("wrong", headers=headers)).status_code for headers in told]

    assert statuses == [401] * MAX_FAILURES + [429]


async def test_who_signs_in_often_is_not_taken_for_a_guesser(closed: Closed) -> None:
    for _ in range(MAX_FAILURES + 1):
        assert (await closed.sign_in(closed.secrets["admin"])).status_code == 303


# --- streams


@pytest.mark.parametrize("end", ["signed out", "revoked", "expired"])
async def test_a_stream_ends_with_its_session_even_if_there_is_no_news(
    closed: Closed, conn: Connection, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.app.SESSION_CHECK_INTERVAL", 0.0)
    monkeypatch.setattr("pulse.doors.dashboard.live.KEEPALIVE_INTERVAL", 0.05)
    monkeypatch.setattr("pulse.engine.sessions.CACHED_FOR", 0.0)
    await closed.sign_in(closed.secrets["admin"])
    word = await closed.word()
    async with following(closed.http, "/live/workers") as news, asyncio.timeout(10):
        assert (await anext(news))[0] == "page"
        if end == "signed out":
            await closed.http.client.post("/sign-out", data={"csrf": word})
        elif end == "revoked":
            await closed.http.server._engine.tokens.revoke("admin")
        else:
            await conn.execute("update pulse.sessions set expires_at = pulse.now()")
        told = [name async for name, _ in news]

    assert told == ["signed-out"]


async def test_a_revoked_token_ends_its_stream_before_its_session_is_asked_about_again(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.app.SESSION_CHECK_INTERVAL", 3_600.0)
    monkeypatch.setattr("pulse.doors.dashboard.live.KEEPALIVE_INTERVAL", 0.05)
    await closed.sign_in(closed.secrets["admin"])

    async with following(closed.http, "/live/workers") as news, asyncio.timeout(20):
        assert (await anext(news))[0] == "page"
        await closed.http.server._engine.tokens.revoke("admin")
        told = [name async for name, _ in news]

    assert told == ["signed-out"]


async def test_who_may_only_look_gets_no_buttons_from_the_stream_of_another(closed: Closed, engine: Engine) -> None:
    await submit_one(engine)
    await closed.sign_in(closed.secrets["admin"])
    async with following(closed.http) as of_admin:
        assert "hx-post" in (await anext(of_admin))[1]
        await closed.sign_in(closed.secrets["reader"])
        async with following(closed.http) as of_reader:
            shown = (await anext(of_reader))[1]

    assert "mail" in shown
    assert "hx-post" not in shown


async def test_the_pages_that_are_kept_fresh_are_not_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query is one, and each asks the database for itself."""
    monkeypatch.setattr("pulse.doors.dashboard.live.MAX_GROUPS", 2)
    live = Live()

    async def draw() -> str:
        return "page"

    streams = [live.follow(key, draw, 60) for key in "aba"]
    for stream in streams:
        assert (await anext(stream)).event == "page"
    assert [news.event async for news in live.follow("c", draw, 60)] == ["full"]
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]
    last = live.follow("c", draw, 60)
    assert (await anext(last)).event == "page"
    await last.aclose()  # type: ignore[attr-defined]


async def test_who_asks_for_a_page_too_many_is_told(open_http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.live.MAX_GROUPS", 1)
    async with following(open_http) as news:
        await anext(news)
        assert await too_many(open_http, "/live?x=1") == (
            "This server updates 1 different pages, and no more are allowed."
        )


async def too_many(http: Http, path: str) -> str:
    """Why there is no stream; it must end with that."""
    async with following(http, path) as news, asyncio.timeout(10):
        [(name, text)] = [each async for each in news]
    assert name == "full"
    return text


async def test_one_session_does_not_take_the_streams_of_all(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.guard.MAX_OF_ONE", 2)
    async with AsyncExitStack() as stack:
        await closed.sign_in(closed.secrets["admin"])
        streams = [await stack.enter_async_context(following(closed.http, f"/live/workers?x={n}")) for n in "01"]
        for stream in streams:
            await anext(stream)

        assert await too_many(closed.http, "/live/workers?x=0") == (
            "Your session has 2 pages open that update themselves, and no more are allowed."
        )
        await closed.sign_in(closed.secrets["reader"])
        async with following(closed.http, "/live/workers") as others:
            assert (await anext(others))[0] == "page"


async def test_many_sessions_of_one_token_do_not_take_them_either(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.guard.MAX_OF_MANY", 2)
    async with AsyncExitStack() as stack:
        streams = []  # one that nobody holds would be closed
        for number in range(2):
            await closed.sign_in(closed.secrets["admin"])
            streams.append(await stack.enter_async_context(following(closed.http, f"/live/workers?x={number}")))
            await anext(streams[-1])
        await closed.sign_in(closed.secrets["admin"])

        assert (await too_many(closed.http, "/live/workers")).startswith("Your token has 2 pages")


async def test_without_sign_in_each_address_has_its_streams_and_gives_them_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse.doors.dashboard.guard.MAX_OF_MANY", 1)
    async with served_http(settings, http_proxies="127.0.0.1") as http:
        live: Live = http.server._http._server.config.app.state.live  # type: ignore[union-attr]
        async with following(http, "/live/workers") as news:
            await anext(news)
            assert (await too_many(http, "/live/workers")).startswith("Your address has 1 pages")
            http.client.headers["x-forwarded-for"] = "203.0.113.7"
            async with following(http, "/live/workers") as others:
                assert (await anext(others))[0] == "page"
        await until(lambda: not live._streams)


# --- texts that break a page


@pytest.mark.parametrize(
    "progress", ['{"done": 1, "of": ' + "9" * 400 + "}", '{"done": 1, "of": 1e308}', '{"of": "x"}']
)
async def test_no_progress_makes_a_job_impossible_to_see(
    open_http: Http, engine: Engine, conn: Connection, progress: str
) -> None:
    job = await submit_one(engine)
    await claim_one(engine)
    await conn.execute(f"update pulse.jobs set progress = '{progress}' where id = '{job}'")

    assert "Progress" in await page(open_http, f"/jobs/{job}")


async def test_an_alarm_that_was_cancelled_while_it_was_paused_does_not_go_on(settings: Settings) -> None:
    settings = replace(settings, alarm_networks="127.0.0.0/8")
    async with open_engine(settings) as engine, served_http(settings) as http:
        alarm = await set_one(engine, name="tea")
        await engine.alarms.pause(alarm.id)
        await engine.alarms.cancel(alarm.id)

        answer = await post(http, f"/alarms/{alarm.id}/resume")

    assert answer.status_code == 409
    assert "is cancelled: set a new one" in answer.headers["hx-trigger"]


async def test_a_word_of_what_was_done_is_one_header_whatever_it_names(open_http: Http) -> None:
    word = word_of(await open_http.client.get("/"))
    headers = {"hx-request": "true", "x-pulse-csrf": word}
    for name in ("%0d%0aset-cookie:%20a=b", "%E2%80%AE%0a", "%C3%BC" * 150, "%ED%A0%80"):
        for deed in (headers, {"x-pulse-csrf": word}):
            answer = await open_http.client.post(f"/topics/{name}/pause", headers=deed)
            assert answer.status_code < 500
            assert "a=b" not in (answer.headers.get("set-cookie") or "")
            assert all("\n" not in value and value.isascii() for value in answer.headers.values())


# --- what is marked

CANARY = "c4n4ry-3f1e"
TOLD = f"no {CANARY} here"
SECRET = json.dumps({"password": CANARY, "list": [{"card": {"number": CANARY}}], "kept": "plain"})


@pytest.fixture
async def marked(settings: Settings, conn: Connection) -> AsyncIterator[tuple[Http, dict[str, str]]]:
    """Jobs, schedules and alarms that have a secret, with errors that tell it as if nobody had masked them before."""
    knowing = replace(settings, redact="password, card.number", alarm_networks="127.0.0.0/8")
    async with open_engine(knowing) as engine, served_http(knowing) as http:
        ids = [await submit_one(engine, payload=SECRET, unique_key=str(number)) for number in range(4)]
        claims = {claim.id: claim for claim in await engine.claims.claim("mail", worker="w", slots=3)}
        await engine.claims.report([a_report(claims[ids[0]], Outcome.DISCARD, error="x", traceback="x")])
        await engine.claims.report([a_report(claims[ids[1]], Outcome.FAIL, error="x", traceback="x")])
        schedule, alarm = await make(engine, "nightly"), await set_one(engine, name="tea", payload=SECRET)
        for sql in (
            f"update pulse.jobs set last_error = '{TOLD}' where last_error is not null",
            f"update pulse.attempts set error = '{TOLD}', traceback = '{TOLD}'",
            f"update pulse.schedules set status = 'BROKEN', next_run_at = null, error = '{TOLD}', payload = '{SECRET}'",
            f"update pulse.alarms set last_error = '{TOLD}', failure_count = 1",
            f"update pulse.jobs set progress = '{SECRET}' where id = '{ids[2]}'",
        ):
            await conn.execute(sql)
        delivered = f"'{alarm.id}', 1, now(), 1, 'failed', now(), '1 s', 500, '{TOLD}', '{TOLD}', null"
        await conn.execute(f"insert into pulse.deliveries values ({delivered})")
        yield http, {"job": str(ids[0]), "schedule": str(schedule.id), "alarm": str(alarm.id), "other": str(ids[2])}


async def test_a_marked_value_is_on_no_page_and_in_no_stream(marked: tuple[Http, dict[str, str]]) -> None:
    http, ids = marked
    seen: dict[str, str] = {}
    for view in VIEWS:
        kind = "job" if view.path.startswith("/jobs/") else "alarm" if view.path.startswith("/alarms/") else "schedule"
        path = re.sub(r"\{\w+\}", "mail" if "{topic}" in view.path else ids[kind], view.path)
        seen[view.path] = await page(http, path + ("?status=dead_lettered" if view.path == "/jobs/bulk" else ""))
        if view.is_live:
            async with following(http, "/live" + path.rstrip("/")) as news:
                seen[f"live {view.path}"] = (await anext(news))[1]
    seen |= {path: await page(http, path) for path in (f"/jobs/{ids['other']}", f"/alarms/new?like={ids['alarm']}")}
    seen["/jobs?status"] = await page(http, "/jobs?status=retrying")

    assert [where for where, text in seen.items() if CANARY in text] == []
    told = ("/jobs/{id}", "/jobs", "/jobs/bulk", "/topics/{topic}", "/schedules", "/schedules/{name}", "/alarms/{id}")
    assert [where for where in (*told, "/alarms", "/alarms/{id}/edit", "live /jobs") if MASK not in seen[where]] == []
