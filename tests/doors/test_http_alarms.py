"""Can alarms be set, followed and ended by curl, and is nobody told of another's?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from pulse.engine.tokens import Tokens
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.doors.http_client import Http, segment, served_http
from tests.endpoint import Endpoint, open_endpoint

URL = "http://127.0.0.1:9/hook"
HOUR = {"delay_seconds": 3600, "url": URL}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint() as endpoint:
        yield endpoint


async def test_an_alarm_is_set_and_read(http: Http) -> None:
    body = HOUR | {"label": "tea", "payload": {"cup": 1}, "headers": {"authorization": "x", "x-a": "b"}}
    alarm = await http.done("POST", "/v1/alarms", body, status=201)

    assert str(UUID(alarm["id"])) == alarm["id"]
    assert (alarm["owner"], alarm["status"], alarm["kind"], alarm["payload"]) == ("local", "active", "once", {"cup": 1})
    assert alarm["headers"] == {"authorization": "…", "x-a": "…"}
    assert alarm["next_fire_at"] == alarm["occurrence"]
    assert await http.done("GET", f"/v1/alarms/{alarm['id']}") == alarm


async def test_a_wake_arrives_and_its_delivery_can_be_read(http: Http, endpoint: Endpoint) -> None:
    alarm = await http.done("POST", "/v1/alarms", {"delay_seconds": 0.05, "url": endpoint.url}, status=201)
    await endpoint.until(1)

    page: dict[str, Any] = {"deliveries": []}
    while not page["deliveries"]:
        page = await http.done("GET", f"/v1/alarms/{alarm['id']}/deliveries")

    [line] = page["deliveries"]
    assert (line["outcome"], line["status"], line["attempt"], line["answer"]) == ("delivered", 200, 1, "thanks")
    assert (await http.done("GET", f"/v1/alarms/{alarm['id']}"))["status"] == "fired"


async def test_the_same_key_is_one_alarm(http: Http) -> None:
    first, key = HOUR | {"label": "a"}, {"Idempotency-Key": "k"}

    alarm = await http.done("POST", "/v1/alarms", first, status=201, headers=key)

    assert await http.done("POST", "/v1/alarms", first, headers=key) == alarm
    status, code, _ = await http.refused("POST", "/v1/alarms", HOUR | {"label": "b"}, headers=key)
    assert (status, code) == (409, "alarm_exists")


async def test_a_name_replaces(http: Http) -> None:
    first = await http.done("POST", "/v1/alarms", HOUR | {"name": "a/b"}, status=201)
    second = await http.done("POST", "/v1/alarms", HOUR | {"name": "a/b", "label": "x"}, status=201)

    assert (second["id"], second["revision"]) == (first["id"], 2)
    assert (await http.done("GET", f"/v1/alarms/{segment('a/b')}"))["label"] == "x"


async def test_pause_resume_fire_and_cancel(http: Http) -> None:
    body = {"cron_expr": "0 9 * * *", "tz": "Europe/Berlin", "url": URL, "name": "n"}
    await http.done("POST", "/v1/alarms", body, status=201)

    assert (await http.done("POST", "/v1/alarms/n/pause"))["paused_at"]
    assert (await http.refused("POST", "/v1/alarms/n/fire"))[:2] == (409, "alarm_conflict")
    assert (await http.done("POST", "/v1/alarms/n/resume"))["paused_at"] is None
    assert (await http.done("POST", "/v1/alarms/n/cancel"))["status"] == "cancelled"
    assert (await http.done("POST", "/v1/alarms/n/cancel"))["status"] == "cancelled"
    assert (await http.refused("POST", "/v1/alarms/n/fire"))[:2] == (409, "alarm_conflict")


async def test_alarms_are_listed_in_pages(http: Http) -> None:
    for number in range(3):
        await http.done("POST", "/v1/alarms", HOUR | {"owner": "ada", "label": str(number)}, status=201)
    await http.done("POST", "/v1/alarms", HOUR | {"owner": "bob"}, status=201)

    first = await http.done("GET", "/v1/alarms?owner=ada&limit=2")
    rest = await http.done("GET", f"/v1/alarms?owner=ada&limit=2&after={first['next']}")

    assert [alarm["label"] for alarm in first["alarms"] + rest["alarms"]] == ["2", "1", "0"]
    assert len((await http.done("GET", "/v1/alarms"))["alarms"]) == 4
    assert (await http.refused("GET", "/v1/alarms?after=x"))[:2] == (400, "invalid_filter")


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            HOUR | {"fire_at": "2030-01-01T00:00:00Z"},
            "invalid_alarm",
            "takes either delay_seconds or fire_at, not both",
        ),
        ({"url": URL}, "invalid_alarm", "once alarm requires delay_seconds or fire_at"),
        ({"url": URL, "delay_seconds": 0}, "invalid_alarm", "once alarm requires delay_seconds or fire_at"),
        ({"url": URL, "fire_at": "tomorrow"}, "invalid_alarm", "invalid fire_at 'tomorrow' (want RFC3339)"),
        ({"url": URL, "fire_at": "2030-01-01T00:00:00"}, "invalid_alarm", "it has no time zone; add one"),
        ({"url": URL, "fire_at": "2020-01-01T00:00:00Z"}, "invalid_alarm", "is not in the future"),
        ({"url": URL, "cron_expr": ""}, "invalid_alarm", "empty cron expression"),
        ({"url": URL, "cron_expr": "61 * * * *"}, "invalid_alarm", "invalid cron expression"),
        ({"url": URL, "cron_expr": "0 0 30 2 *"}, "invalid_alarm", "yields no future time"),
        (HOUR | {"tz": "Nowhere"}, "invalid_alarm", "Nowhere"),
        (HOUR | {"kind": "cron"}, "invalid_alarm", "kind must be 'once' with these times, not 'cron'"),
        ({"delay_seconds": 5}, "invalid_alarm", "PULSE_ALARM_TARGET"),
        ({"delay_seconds": 5, "url": "http://10.0.0.1/"}, "invalid_target", "10.0.0.1"),
        ({"delay_seconds": 5, "url": "https://a:b@example.com/"}, "invalid_target", ""),
        (HOUR | {"headers": {"host": "x"}}, "invalid_option", "host"),
        (HOUR | {"payload": "x" * 70_000}, "invalid_payload", "64 KiB"),
        (HOUR | {"delay": 5}, "invalid_input", "delay"),
        (HOUR | {"max_failures": 1_000}, "invalid_input", "max_failures"),
    ],
)
async def test_what_cannot_be_is_refused_and_changes_nothing(
    http: Http, body: dict[str, Any], code: str, message: str
) -> None:
    status, found, said = await http.refused("POST", "/v1/alarms", body)

    assert (status, found) == (400, code), said
    assert message in said
    assert (await http.done("GET", "/v1/alarms"))["alarms"] == []


async def test_an_owner_sees_only_its_own(settings: Settings, database: Database) -> None:
    tokens = Tokens(database)
    secrets = {who: (await tokens.create(who, [f"alarms:{who}"]))[1] for who in ("ada", "bob")}
    operator = (await tokens.create("boss", ["operate"]))[1]

    def by(secret: str) -> dict[str, Any]:
        return {"headers": {"authorization": f"Bearer {secret}"}}

    async with served_http(settings) as http:
        alarm = await http.done("POST", "/v1/alarms", HOUR | {"name": "n"}, status=201, **by(secrets["ada"]))
        assert alarm["owner"] == "ada"
        for path in (alarm["id"], "n", "n?owner=ada", str(uuid4())):
            for method, deed in [("GET", ""), ("POST", "/cancel"), ("POST", "/fire"), ("GET", "/deliveries")]:
                name, _, query = path.partition("?")
                asked = f"/v1/alarms/{name}{deed}?{query}"
                assert (await http.refused(method, asked, **by(secrets["bob"])))[:2] == (404, "alarm_not_found")
        assert (await http.done("GET", "/v1/alarms", **by(secrets["bob"])))["alarms"] == []
        assert (await http.refused("GET", "/v1/alarms?owner=ada", **by(secrets["bob"])))[0] == 403
        assert (await http.refused("POST", "/v1/alarms", HOUR | {"owner": "ada"}, **by(secrets["bob"])))[0] == 403
        assert [a["id"] for a in (await http.done("GET", "/v1/alarms", **by(operator)))["alarms"]] == [alarm["id"]]
        assert (await http.refused("POST", "/v1/alarms", HOUR, **by(operator)))[0] == 403
        assert (await http.done("POST", f"/v1/alarms/{alarm['id']}/cancel", **by(operator)))["status"] == "cancelled"


async def test_an_alarm_brings_so_many_headers_along_and_no_more(http: Http) -> None:
    most = {f"x-{number}": "" for number in range(32)}

    await http.done("POST", "/v1/alarms", HOUR | {"headers": most}, status=201)
    status, code, message = await http.refused("POST", "/v1/alarms", HOUR | {"headers": most | {"x-more": ""}})

    assert (status, code) == (400, "invalid_input")
    assert message.startswith("headers: ")
