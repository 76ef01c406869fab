"""Can a program set alarms, in its own transaction too, and see and change them, straight and through a server?"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from pulse import Alarm, AlarmStatus, DeliveryOutcome, Pulse, webhooks
from pulse.delivery.signing import owner_secret
from pulse.errors import (
    AlarmConflict,
    AlarmExists,
    AlarmNotFound,
    InvalidAlarm,
    InvalidFilter,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    InvalidTarget,
    PulseError,
)
from pulse.sdk.alarms import PAGE_SIZE, Alarms
from pulse.settings import Settings
from tests.endpoint import Endpoint, open_endpoint
from tests.sdk.apps_here import closing, working
from tests.waiting import connected, until

HOUR = timedelta(hours=1)
LATER = datetime(2030, 1, 1, tzinfo=UTC)
URL = "http://127.0.0.1:9/hook"


@pytest.fixture
def app(settings: Settings) -> Iterator[Pulse]:
    with closing(Pulse(settings=settings)) as app:
        yield app


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint() as endpoint:
        yield endpoint


# --- setting


def test_everything_about_an_alarm_can_be_said(app: Pulse) -> None:
    made = app.alarms.set(
        "trial-ends:42",
        cron="0 9 * * 1-5",
        tz="Europe/Berlin",
        url=URL,
        payload={"user": 42, "when": LATER},
        headers={"x-team": "billing", "Authorization": "Bearer geheim"},
        label="trial",
        owner="shop",
        max_failures=0,
        idempotency_key="k",
    )

    assert made == app.alarms.get("trial-ends:42", owner="shop") == app.alarms.get(made.id)
    assert (made.cron, made.tz, made.kind, made.url) == ("0 9 * * 1-5", "Europe/Berlin", "cron", URL)
    assert (made.label, made.owner, made.max_failures, made.idempotency_key) == ("trial", "shop", 0, "k")
    assert made.payload == '{"user": 42, "when": "2030-01-01T00:00:00Z"}'
    assert made.headers == {"x-team": "…", "Authorization": "…"}
    assert made.status is AlarmStatus.ACTIVE


@pytest.mark.parametrize("at", [LATER, "2030-01-01T00:00:00Z", "2030-01-01t01:00:00.000+01:00"])
def test_an_instant_is_a_datetime_or_text(app: Pulse, at: Any) -> None:
    assert app.alarms.set(fire_at=at, url=URL).next_fire_at == LATER


@pytest.mark.parametrize("delay", ["90m", timedelta(minutes=90), 5400, 5400.0])
def test_a_delay_is_written_in_any_way(app: Pulse, delay: Any) -> None:
    made = app.alarms.set(delay=delay, url=URL)

    assert made.next_fire_at is not None
    assert abs(made.next_fire_at - made.created_at - timedelta(minutes=90)) < timedelta(seconds=20)
    assert (made.name, made.owner, made.payload) == (None, "local", "null")


@pytest.mark.parametrize("payload", [None, 1, "text", [1, {"a": None}], {"a": 1.5}, True])
def test_a_payload_is_any_json(app: Pulse, payload: Any) -> None:
    assert json.loads(app.alarms.set(delay=60, url=URL, payload=payload).payload) == payload


def test_a_name_is_replaced_and_a_key_says_it_once(app: Pulse) -> None:
    first = app.alarms.set("n", delay="1h", url=URL)
    second = app.alarms.set("n", delay="2h", url=URL)
    keyed = [app.alarms.set(fire_at=LATER, url=URL, idempotency_key="k").id for _ in range(2)]

    assert (second.id, second.revision) == (first.id, 2)
    assert keyed[0] == keyed[1]
    with pytest.raises(AlarmExists):
        app.alarms.set(delay="1h", url=URL, idempotency_key="k")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, InvalidAlarm, "when\\? give one of delay, fire_at and cron$"),
        ({"delay": 0}, InvalidAlarm, "^once alarm requires delay or fire_at: a delay of 0 is none$"),
        (
            {"delay": 60, "fire_at": LATER},
            InvalidAlarm,
            "when\\? give one of delay, fire_at and cron, not delay and fire_at$",
        ),
        ({"fire_at": "tomorrow"}, InvalidAlarm, r"^invalid fire_at 'tomorrow' \(want RFC3339\)$"),
        ({"fire_at": "2030-01-01T00:00:00"}, InvalidAlarm, r"\(want RFC3339\): it has no time zone"),
        ({"fire_at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidAlarm, "is not in the future"),
        ({"fire_at": datetime(2030, 1, 1)}, InvalidOption, "^fire_at "),  # noqa: DTZ001
        ({"cron": ""}, InvalidAlarm, "empty cron expression"),
        ({"cron": "61 * * * *"}, InvalidAlarm, "61"),
        ({"cron": "0 0 31 2 *"}, InvalidAlarm, "yields no future time"),
        ({"cron": "@daily", "tz": "Europe/Berlim"}, InvalidAlarm, "Europe/Berlin"),
        (
            {"delay": 60, "tz": "UTC"},
            InvalidOption,
            r"^tz must come with cron \(an instant has an offset of its own\), not 'UTC'$",
        ),
        ({"fire_at": LATER, "tz": "Europe/Berlin"}, InvalidOption, "^tz must come with cron .*, not 'Europe/Berlin'$"),
        ({"delay": "soon"}, InvalidOption, "soon"),
        ({"delay": -5}, InvalidOption, "delay"),
        ({"delay": 60, "url": "https://192.168.0.1/"}, InvalidTarget, "not a public address"),
        ({"delay": 60, "url": None}, InvalidAlarm, "no default target"),
        ({"delay": 60, "payload": object()}, InvalidPayload, "object is not JSON"),
        ({"delay": 60, "payload": "x" * 70_000}, InvalidPayload, "64 KiB"),
        ({"delay": 60, "headers": {"host": "x"}}, InvalidInput, "host"),
        ({"delay": 60, "max_failures": 101}, InvalidOption, "max_failures"),
        ({"delay": 60, "idempotency_key": ""}, InvalidOption, "^idempotency_key "),
        ({"delay": 60, "owner": ""}, InvalidName, "owner"),
        ({"delay": 60, "every": 5}, InvalidOption, "option of an alarm must be one of fire_at, delay"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(
    app: Pulse, given: Any, error: type[PulseError], says: str
) -> None:
    with pytest.raises(error, match=says):
        app.alarms.set("n", **{"url": URL} | given)

    assert list(app.alarms.list()) == []


# --- looking and changing


def test_an_alarm_lives_through_its_states(app: Pulse) -> None:
    made = app.alarms.set("n", cron="@hourly", url=URL)

    assert app.alarms.pause("n").paused_at is not None
    assert app.alarms.resume(made.id).paused_at is None
    assert app.alarms.cancel(str(made.id)).status is AlarmStatus.CANCELLED
    assert app.alarms.cancel("n").status is AlarmStatus.CANCELLED
    for deed in (app.alarms.pause, app.alarms.fire):
        with pytest.raises(AlarmConflict):
            deed("n")
    for key in ("nobody", uuid4()):
        with pytest.raises(AlarmNotFound):
            app.alarms.get(key)
    with pytest.raises(AlarmNotFound):
        app.alarms.get("n", owner="bob")
    assert list(app.alarms.deliveries("n")) == []


async def test_lists_go_on_through_all_pages(app: Pulse) -> None:
    count = PAGE_SIZE + 5
    made = [await app.alarms.aset(delay=3600, url=URL, label="x", owner=f"o{n % 2}") for n in range(count)]
    await app.alarms.apause(made[3].id)

    def listed(**wanted: Any) -> list[Alarm]:
        return list(app.alarms.list(**wanted))

    everything = await asyncio.to_thread(listed)
    assert [each.id for each in everything] == [each.id for each in reversed(made)]
    assert [each async for each in app.alarms.alist()] == everything
    assert len(await asyncio.to_thread(listed, owner="o0")) == (count + 1) // 2
    assert [each.id for each in await asyncio.to_thread(listed, paused=True)] == [made[3].id]
    assert await asyncio.to_thread(listed, status="fired") == []
    assert len(await asyncio.to_thread(listed, status=AlarmStatus.ACTIVE, label="x", paused=False)) == count - 1


@pytest.mark.parametrize(
    ("wanted", "error"),
    [({"status": "broken"}, InvalidFilter), ({"colour": 1}, InvalidFilter), ({"owner": ""}, InvalidName)],
)
def test_a_filter_that_makes_no_sense_is_refused_at_once(app: Pulse, wanted: Any, error: type[PulseError]) -> None:
    with pytest.raises(error):
        app.alarms.list(**wanted)
    with pytest.raises(error):
        app.alarms.alist(**wanted)


def test_every_method_has_a_twin() -> None:
    public = {name for name, _ in inspect.getmembers(Alarms, inspect.isfunction) if not name.startswith("_")}
    plain = {name for name in public if f"a{name}" in public}

    assert public == plain | {f"a{name}" for name in plain}
    assert plain == {"set", "get", "list", "cancel", "pause", "resume", "fire", "deliveries"}


# --- the whole way


async def test_a_url_is_woken_signed_and_what_came_of_it_is_told(
    app: Pulse, settings: Settings, endpoint: Endpoint
) -> None:
    @app.task(name="nothing")
    async def nothing() -> None: ...

    async with working(app):
        made = await app.alarms.aset("trial-ends:42", fire_at=LATER, url=endpoint.url, payload={"user": 42})
        await app.alarms.afire("trial-ends:42")
        await endpoint.until(1)

        async def is_recorded() -> bool:
            return (await app.alarms.aget(made.id)).status is AlarmStatus.FIRED

        await until(is_recorded)
        [delivery] = [each async for each in app.alarms.adeliveries("trial-ends:42")]

    [call] = endpoint.calls
    secret = await _secret(settings)
    assert (call.body["payload"], call.body["alarm_id"], call.body["owner"]) == ({"user": 42}, str(made.id), "local")
    assert webhooks.verify(call.raw, call.headers, secret).payload == {"user": 42}
    assert (delivery.outcome, delivery.status, delivery.attempt) == (DeliveryOutcome.DELIVERED, 200, 1)


async def _secret(settings: Settings) -> str:
    async with connected(settings.database_url) as conn:
        root: str = await conn.fetchval("select secret from pulse.wake_secrets order by number desc limit 1")
        return owner_secret(root, "local")


async def test_an_alarm_commits_and_rolls_back_with_the_programs_own_work(app: Pulse, settings: Settings) -> None:
    async with connected(settings.database_url) as conn:
        transaction = conn.transaction()
        await transaction.start()
        await app.alarms.aset("n", delay="1h", url=URL, conn=conn)
        with pytest.raises(AlarmNotFound):
            await app.alarms.aget("n")
        await transaction.rollback()
        with pytest.raises(AlarmNotFound):
            await app.alarms.aget("n")

        async with conn.transaction():
            made = await app.alarms.aset("n", delay="1h", url=URL, payload=[1], conn=conn)

    assert await app.alarms.aget("n") == made
    with pytest.raises(InvalidInput, match="use aset, and await it"):
        app.alarms.set(delay="1h", url=URL, conn=conn)


async def test_with_a_token_and_a_connection_the_owner_has_to_be_said(settings: Settings) -> None:
    """The server knows whose the token's alarms are; the database does not."""
    async with connected(settings.database_url) as conn:
        with closing(Pulse(settings=replace(settings, server_url="grpc://127.0.0.1:1", token="pulse_x"))) as app:
            with pytest.raises(
                InvalidOption, match=r"or as PULSE_ALARM_OWNER \(only the server knows the owner of a token\)"
            ):
                await app.alarms.aset(delay="1h", url=URL, conn=conn)

            assert (await app.alarms.aset(delay="1h", url=URL, owner="shop", conn=conn)).owner == "shop"
        said = replace(settings, server_url="grpc://127.0.0.1:1", token="pulse_x", alarm_owner="shop")
        with closing(Pulse(settings=said)) as app:
            assert (await app.alarms.aset(delay="1h", url=URL, conn=conn)).owner == "shop"


def test_the_owner_of_the_settings_is_whose_alarms_are_set_and_read(settings: Settings) -> None:
    with closing(Pulse(settings=replace(settings, alarm_owner="shop"))) as app:
        made = app.alarms.set("n", delay="1h", url=URL)

        assert made.owner == "shop"
        assert app.alarms.get("n").id == app.alarms.pause("n").id == made.id
        assert app.alarms.set("n", delay="1h", url=URL, owner="ada").owner == "ada"


@pytest.mark.parametrize("deed", ["get", "pause", "resume", "fire", "cancel"])
async def test_whatever_is_done_with_an_alarm_by_name_is_done_with_the_one_of_the_settings_owner(
    settings: Settings, deed: str
) -> None:
    with closing(Pulse(settings=replace(settings, alarm_owner="shop"))) as app:
        made = [await app.alarms.aset(name, cron="@hourly", url=URL) for name in "nm"]  # fired twice, one may be busy
        awaited = await getattr(app.alarms, f"a{deed}")("n")
        waited = await asyncio.to_thread(getattr(app.alarms, deed), "m")

    assert [alarm.id for alarm in made] == [awaited.id, waited.id]
