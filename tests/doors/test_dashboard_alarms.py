"""Are alarms shown as they are, without what is secret, and is what a form says what is set?"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from html import unescape

import msgspec
import pytest

from pulse.engine.engine import Engine
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.doors.dashboard_client import URL, drawn, page, post, refused, set_one
from tests.doors.http_client import Http, served_http

ONCE = {"owner": "ada", "kind": "delay", "delay": "1h", "url": URL}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


async def test_an_alarm_is_set_and_set_again(http: Http, engine: Engine, conn: Connection) -> None:
    said = {"name": "tea/1", "label": "Tea", "payload": '{"cup": 1}', "max_failures": "2",
            "headers": "Authorization: Bearer x\r\nX-Cup: blue"}  # fmt: skip

    answer = await post(http, "/alarms/new", **ONCE | said)
    own = await engine.alarms.get("tea/1", owner="ada")
    form = await drawn(http, f"/alarms/{own.id}/edit")

    assert answer.headers["hx-redirect"] == f"/alarms/{own.id}"
    assert (own.label, own.payload, own.max_failures, own.url) == ("Tea", '{"cup": 1}', 2, URL)
    assert sorted(form["headers"].split("\r\n")) == ["Authorization: …", "X-Cup: …"]
    again = form | {"kind": "cron", "cron": "@hourly", "label": "Tea time"}
    elsewhere = again | {"url": f"{URL}elsewhere"}
    assert "must have its value" in await refused(http, f"/alarms/{own.id}/edit", **elsewhere)
    again["headers"] = "Authorization: Bearer y\r\nX-Cup: …"
    assert (await post(http, f"/alarms/{own.id}/edit", **again)).status_code == 204
    after = await engine.alarms.get(own.id)
    assert (after.label, after.cron, after.revision) == ("Tea time", "@hourly", 2)
    [row] = await conn.fetch("select headers from pulse.alarms where id = $1", own.id)
    assert msgspec.json.decode(row["headers"]) == {"Authorization": "Bearer y", "X-Cup": "blue"}
    assert "set again by somebody else" in await refused(http, f"/alarms/{own.id}/edit", **again)


async def test_what_an_alarm_says_in_its_headers_is_not_shown(http: Http, engine: Engine) -> None:
    alarm = await set_one(engine, headers={"x-token": "hunter2", "authorization": "hunter3"})

    for path in (f"/alarms/{alarm.id}", f"/alarms/new?like={alarm.id}", "/alarms"):
        assert "hunter" not in await page(http, path)
    assert "x-token" in await page(http, f"/alarms/{alarm.id}")


ALARM_FAULTS = [
    ({"url": "http://169.254.169.254/latest"}, "169.254.169.254"),
    ({"url": "ftp://example.com"}, "http"),
    ({"url": ""}, "there is no default target"),
    ({"delay": ""}, "delay must not be empty"),
    ({"delay": "0s"}, "requires delay_seconds or fire_at"),
    ({"kind": "instant", "fire_at": "2001-01-01T00:00"}, "not in the future"),
    ({"kind": "cron", "cron": "* *"}, "expected exactly 5 fields"),
    ({"headers": "nonsense"}, "as Name: value"),
    ({"headers": "Host: evil"}, "Host"),
    ({"payload": "nope"}, "payload is not JSON"),
    ({"max_failures": "1000"}, "from 0 to 100"),
]


async def test_an_alarm_that_cannot_be_is_refused_with_the_reason(http: Http) -> None:
    for fault, why in ALARM_FAULTS:
        assert why in await refused(http, "/alarms/new", **ONCE | fault)


async def test_alarms_are_found_by_what_they_are(http: Http, engine: Engine, conn: Connection) -> None:
    for name in ("a", "b", "c", "d"):
        await set_one(engine, name=name, label=f"label of {name}")
    await set_one(engine, name="e", owner="eve")
    await engine.alarms.cancel("a", owner="ada")
    await engine.alarms.pause("b", owner="ada")
    await conn.execute("update pulse.alarms set failure_count = 2, last_error = 'HTTP 500' where name = 'c'")
    await conn.execute("update pulse.alarms set status = 'failed', next_fire_at = null, finished_at = pulse.now() "
                           "where name = 'd'")  # fmt: skip

    async def found(query: str) -> list[str]:
        return re.findall(r'<th scope="row"><a[^>]*>([^<]+)<', await page(http, f"/alarms?{query}"))

    assert await found("") == ["e", "d", "c", "b", "a"]
    assert await found("owner=ada&text=LABEL OF") == ["d", "c", "b", "a"]
    assert [await found(f"status={each}") for each in ("cancelled", "paused", "failing", "failed")] == [
        *(["a"], ["b"], ["c"], ["d"]),
    ]
    assert await found("status=failed&owner=eve") == []
    assert await found("status=active") == ["e", "c"]


ALARM_TYPED = [
    ("kind=delay&delay=90s", "once"),
    ("kind=delay&delay=soon", "not a duration"),
    ("kind=cron&cron=@every 1h", "every 1h"),
    ("kind=cron&cron=@ev", "unknown descriptor"),
    ("kind=instant&fire_at=2035-01-01T00:00&tz=Asia/Tokyo", "2035-01-01 00:00:00"),
]


async def test_an_alarm_is_read_while_it_is_typed(http: Http) -> None:
    for query, said in ALARM_TYPED:
        assert said in unescape(await page(http, f"/alarms/preview?{query}"))
