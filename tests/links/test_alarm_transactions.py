"""Do alarms commit and roll back with the caller's own work, whatever the caller's connection is?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.links.alarm_transactions import aset_alarm_through, set_alarm_through
from pulse.model.alarms import AlarmStatus, NewAlarm, SetAlarm
from pulse.model.errors import (
    AlarmExists,
    InvalidAlarm,
    InvalidInput,
    InvalidTarget,
    SchemaMismatch,
    TransactionFailed,
    UnknownConnection,
)
from pulse.settings import Settings
from tests.clock import FrozenClock
from tests.links.kinds import KINDS, Kind
from tests.waiting import connected, until

NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)
SECOND, MINUTE, HOUR = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours"))
WORLD = "100% of :v1, $1, %s, %(v1)s, {0}, ? and 'é\"\\ 🦆"  # whatever any driver might take for a mark of its own


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8", alarm_target="http://127.0.0.1:9/wake")


@pytest.fixture(autouse=True)
async def at_noon(clock: FrozenClock) -> None:
    clock.instant = NOON
    await clock.freeze()


@pytest.fixture
async def onlooker(settings: Settings) -> AsyncIterator[Any]:
    """A connection that sees what was committed, and the caller's own table."""
    async with connected(settings.database_url) as conn:
        await conn.execute("create table if not exists orders (id int primary key)")
        yield conn
        await conn.execute("drop table orders")


async def opened(name: str, settings: Settings) -> Kind:
    kind = KINDS[name]()
    await kind.open(str(settings.database_url))
    return kind


@pytest.fixture(params=KINDS)
async def kind(request: pytest.FixtureRequest, settings: Settings, onlooker: Any) -> AsyncIterator[Kind]:
    kind = await opened(request.param, settings)
    yield kind
    await kind.close()


def an_alarm(**given: Any) -> NewAlarm:
    if not {"delay", "fire_at", "cron"} & given.keys():
        given["delay"] = HOUR
    return NewAlarm(**{"owner": "ada", "url": "http://127.0.0.1:9/hook"} | given)


async def set_one(kind: Kind, settings: Settings, **given: Any) -> SetAlarm:
    through: Callable[..., Any] = aset_alarm_through if kind.is_async else set_alarm_through
    done: SetAlarm = await kind.do(lambda: through(kind.conn, an_alarm(**given), settings))
    return done


async def seen(onlooker: Any) -> tuple[list[int], list[UUID]]:
    """The orders and the alarms that are committed."""
    orders = await onlooker.fetch("select id from orders order by id")
    alarms = await onlooker.fetch("select id from pulse.alarms order by id")
    return [row[0] for row in orders], [row[0] for row in alarms]


# --- every kind


async def test_a_commit_shows_the_alarm_together_with_the_callers_row(
    kind: Kind, settings: Settings, onlooker: Any, engine: Engine
) -> None:
    await kind.begin()
    await kind.run("insert into orders values (1)")
    done = await set_one(kind, settings, label=WORLD, payload=json.dumps([WORLD]), headers={"x-a": "100% :v1 $1"})
    assert await seen(onlooker) == ([], [])

    await kind.commit()

    assert await seen(onlooker) == ([1], [done.alarm.id])
    assert done.is_new
    assert done.alarm == await engine.alarms.get(done.alarm.id)
    assert (done.alarm.label, json.loads(done.alarm.payload)) == (WORLD, [WORLD])
    assert done.alarm.next_fire_at == NOON + HOUR


async def test_a_rollback_leaves_neither(kind: Kind, settings: Settings, onlooker: Any) -> None:
    await kind.begin()
    await set_one(kind, settings)
    await kind.run("insert into orders values (1)")

    await kind.rollback()

    assert await seen(onlooker) == ([], [])


async def test_a_name_is_replaced_with_the_transaction(kind: Kind, settings: Settings, engine: Engine) -> None:
    first = (await engine.alarms.set(an_alarm(name="n", headers={"authorization": "x"}))).alarm
    for end in (kind.rollback, kind.commit):
        assert await engine.alarms.get(first.id) == first
        await kind.begin()
        done = await set_one(kind, settings, name="n", delay=MINUTE)
        again = await set_one(kind, settings, name="n", delay=MINUTE)
        await end()

    assert (done.alarm.id, done.alarm.revision, done.is_new) == (first.id, 2, True)
    assert again == SetAlarm(done.alarm, is_new=False)
    assert await engine.alarms.get("n", owner="ada") == done.alarm


async def test_the_same_key_is_the_same_alarm_and_costs_no_transaction(
    kind: Kind, settings: Settings, engine: Engine, clock: FrozenClock
) -> None:
    new: dict[str, Any] = {"idempotency_key": "k", "fire_at": NOON + MINUTE, "headers": {"authorization": "geheim"}}
    first = (await engine.alarms.set(an_alarm(**new))).alarm
    await clock.advance(HOUR)
    await kind.begin()

    same = await set_one(kind, settings, **new)
    with pytest.raises(AlarmExists, match="'k' was already used for another alarm"):
        await set_one(kind, settings, idempotency_key="k", label="other")
    other = await set_one(kind, settings, idempotency_key="k", owner="bob")
    await kind.commit()

    assert same == SetAlarm(first, is_new=False)
    assert "geheim" not in str(same)
    assert (await engine.alarms.get(other.alarm.id)).owner == "bob"


async def test_a_transaction_that_has_failed_is_named(kind: Kind, settings: Settings) -> None:
    await kind.begin()
    with pytest.raises(Exception, match="division by zero"):
        await kind.run("select 1 / 0")

    with pytest.raises(TransactionFailed, match="already failed: roll it back first"):
        await set_one(kind, settings)

    await kind.rollback()


async def test_a_missing_schema_says_to_migrate(kind: Kind, settings: Settings) -> None:
    await kind.begin()
    with pytest.raises(SchemaMismatch, match=r"schema 'nowhere' is missing.*run `pulse migrate`"):
        await set_one(kind, replace(settings, schema="nowhere"))
    await kind.rollback()


@pytest.mark.parametrize("name", [name for name, make in KINDS.items() if not make().is_async and name != "Django"])
async def test_asynchronous_code_may_use_a_synchronous_connection(name: str, settings: Settings, onlooker: Any) -> None:
    kind = await opened(name, settings)
    await kind.begin()
    done = await aset_alarm_through(kind.conn, an_alarm(), settings)
    await kind.commit()

    assert await seen(onlooker) == ([], [done.alarm.id])
    await kind.close()


@pytest.mark.parametrize("name", [name for name, make in KINDS.items() if make().is_async])
async def test_synchronous_code_is_told_what_to_use_for_an_asynchronous_connection(
    name: str, settings: Settings
) -> None:
    kind = await opened(name, settings)

    with pytest.raises(InvalidInput, match="asynchronous connection: use aset, and await it"):
        set_alarm_through(kind.conn, an_alarm(), settings)

    await kind.close()


async def test_what_is_no_connection_is_named(settings: Settings) -> None:
    with pytest.raises(UnknownConnection):
        set_alarm_through("postgresql://", an_alarm(), settings)
    with pytest.raises(UnknownConnection):
        await aset_alarm_through("postgresql://", an_alarm(), settings)


# --- the same alarm as by any other way


@pytest.mark.parametrize(
    "given",
    [
        {"fire_at": NOON + HOUR},
        {"cron": "0 9 * * 1-5", "tz": "Europe/Berlin", "max_failures": 0},
        {"cron": "@every 90s", "url": None},
        {
            "delay": timedelta(days=300, microseconds=1),
            "name": "n",
            "label": "l",
            "payload": '{"a": [1.50, "é", null]}',
            "headers": {"x-team": "é", "cookie": "geheim"},
            "idempotency_key": "k",
        },
    ],
)
async def test_the_row_is_the_one_that_set_makes(
    engine: Engine, settings: Settings, onlooker: Any, given: dict[str, Any]
) -> None:
    async def row() -> dict[str, Any]:
        [found] = await onlooker.fetch("select * from pulse.alarms")
        await onlooker.execute("delete from pulse.alarms")
        return {name: value for name, value in found.items() if name not in {"id", "call_id"}}

    await engine.alarms.set(an_alarm(**given))
    by_engine = await row()
    await onlooker.execute("set timezone to 'Asia/Kathmandu'; set datestyle to 'German'")

    done = await aset_alarm_through(onlooker, an_alarm(**given), settings)

    assert done.alarm == await engine.alarms.get(done.alarm.id)
    assert done.alarm.occurrence.tzinfo == UTC
    assert await row() == by_engine


async def test_what_can_be_refused_here_does_not_cost_the_transaction(settings: Settings, onlooker: Any) -> None:
    async with onlooker.transaction():
        for given, error in (
            ({"url": "https://10.0.0.1/"}, InvalidTarget),
            ({"url": "ftp://example.com"}, InvalidTarget),
            ({"headers": {"webhook-id": "x"}}, InvalidInput),
            ({"fire_at": NOON}, InvalidAlarm),
            ({"cron": "0 0 31 2 *"}, InvalidAlarm),
        ):
            with pytest.raises(error):
                await aset_alarm_through(onlooker, an_alarm(**given), settings)
        with pytest.raises(InvalidAlarm, match="no default target"):
            await aset_alarm_through(onlooker, an_alarm(url=None), replace(settings, alarm_target=None))
        done = await aset_alarm_through(onlooker, an_alarm(), settings)

    assert (await seen(onlooker))[1] == [done.alarm.id]


async def test_a_name_that_nobody_can_look_up_costs_no_time_in_a_transaction(settings: Settings, onlooker: Any) -> None:
    done = await aset_alarm_through(onlooker, an_alarm(url="https://nowhere.invalid/hook"), settings)

    assert done.alarm.status is AlarmStatus.ACTIVE


async def test_a_wake_up_leaves_with_the_commit_of_what_is_soon_unless_told_not_to(
    settings: Settings, onlooker: Any
) -> None:
    heard: list[object] = []
    await onlooker.add_listener('"pulse".notify', lambda *told: heard.append(told[-1]))
    async with connected(settings.database_url) as conn:
        await aset_alarm_through(conn, an_alarm(delay=SECOND / 2), replace(settings, notify=False))
        await aset_alarm_through(conn, an_alarm(delay=HOUR), settings)
        await aset_alarm_through(conn, an_alarm(delay=SECOND), settings)

    async def has_heard() -> bool:
        await onlooker.execute("select 1")
        return bool(heard)

    await until(has_heard)
    assert heard == ["+1000"]
