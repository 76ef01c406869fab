"""What does the wake duty do when something is in its way: a locked row, a bad one, hosts that hang, no database?"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.delivery.wake import WakeResult
from pulse.engine.alarms import records as wake_records
from pulse.engine.alarms import turns as wake_turns
from pulse.engine.alarms.records import FinishedDelivery
from pulse.engine.engine import Engine
from pulse.model.alarms import AlarmStatus, DeliveryOutcome
from pulse.model.decisions.delivery import decide
from pulse.model.errors import DatabaseUnreachable
from pulse.settings import Settings
from pulse.store.alarms import signing_secrets
from pulse.store.connections.pool import Database
from tests.clock import FrozenClock
from tests.endpoint import Endpoint, open_endpoint
from tests.engine.test_wakes import MINUTE, SECOND, at_noon, deliver, endpoint, engine, log_of, set_one, settings
from tests.waiting import connected, until

__all__ = ["at_noon", "endpoint", "engine", "settings"]  # fixtures


@pytest.fixture(autouse=True)
def every_step_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen a moment ago is not enough for a test that moves time."""
    monkeypatch.setattr(wake_turns, "RUSH", 0)


async def test_a_breaker_hears_of_its_own_deliveries_only(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many end in one turn of the loop."""
    wakes = engine.duties.deliveries
    heard: dict[str, set[bool]] = {}
    monkeypatch.setattr(
        wakes._breakers, "ended", lambda destination, ok, error="": heard.setdefault(destination, set()).add(ok)
    )

    async def answer(_: Any, wake: Any, **__: Any) -> WakeResult:
        is_good = wake.url.endswith(":1/")
        return WakeResult(status=200 if is_good else 503, error=None, answer="", duration=SECOND)

    monkeypatch.setattr("pulse.delivery.webhook.Deliverer.deliver", answer)
    for _ in range(5):
        for port in (1, 2):
            await set_one(engine, endpoint, url=f"http://127.0.0.1:{port}/")
    await clock.advance(MINUTE)

    await deliver(engine)

    assert heard == {"http://127.0.0.1:1": {True}, "http://127.0.0.1:2": {False}}


async def test_a_row_that_somebody_has_locked_holds_up_no_other_record(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, settings: Settings
) -> None:
    """In a transaction that sets the alarm anew, say, and takes its time."""
    locked, free = [await set_one(engine, endpoint) for _ in range(2)]
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    await wakes.step()
    await asyncio.wait(list(wakes._in_flight))
    async with connected(settings.database_url) as conn:
        transaction = conn.transaction()
        await transaction.start()
        await conn.execute("select from pulse.alarms where id = $1 for no key update", locked.id)

        async with asyncio.timeout(5):
            pause = await wakes.records.record()

        assert (await engine.alarms.get(free.id)).status is AlarmStatus.FIRED
        assert (await engine.alarms.get(locked.id)).is_ringing
        assert pause == settings.alarm_tick
        await transaction.rollback()
    await wakes.records.record()
    assert (await engine.alarms.get(locked.id)).status is AlarmStatus.FIRED
    assert [line.outcome for line in await log_of(engine, locked)] == [DeliveryOutcome.DELIVERED]
    assert len(endpoint.calls) == 2


async def test_two_wakes_of_one_alarm_that_are_recorded_together_both_leave_a_line(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, settings: Settings
) -> None:
    """The first found its row locked, by the transaction that set the alarm anew, and waited for the next record."""
    alarm = await set_one(engine, endpoint, name="tea")
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    await wakes.step()
    await asyncio.wait(list(wakes._in_flight))
    async with connected(settings.database_url) as conn:
        transaction = conn.transaction()
        await transaction.start()
        await conn.execute("select from pulse.alarms where id = $1 for no key update", alarm.id)
        await wakes.records.record()
        await transaction.rollback()
    await set_one(engine, endpoint, name="tea")
    await clock.advance(MINUTE)
    await wakes.step()
    await asyncio.wait(list(wakes._in_flight))
    assert len(wakes.records.finished) == 2

    await wakes.records.record()

    lines = await log_of(engine, alarm)
    assert [(line.outcome, line.note) for line in lines] == [
        (DeliveryOutcome.DELIVERED, "it was set anew meanwhile"),
        (DeliveryOutcome.DELIVERED, None),
    ]


@pytest.mark.parametrize("where", ["decide", "database"])
async def test_one_that_cannot_be_recorded_holds_up_no_other(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    alarms = [await set_one(engine, endpoint) for _ in range(7)]
    bad = alarms[3]
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    while not await wakes.step():
        pass
    while wakes._in_flight:
        await asyncio.wait(list(wakes._in_flight))
    if where == "decide":
        _break_decide(monkeypatch, bad.id)
    else:  # a text that Postgres cannot hold
        monkeypatch.setattr(wake_records, "clean_error", lambda text, _: text)
        finished = wakes.records.finished
        finished[:] = [_spoilt(each) if each.claim.id == bad.id else each for each in finished]

    await wakes.records.record()

    found = {alarm.id: await engine.alarms.get(alarm.id) for alarm in alarms}
    assert [found[alarm.id].status for alarm in alarms if alarm is not bad] == [AlarmStatus.FIRED] * 6
    assert found[bad.id].status is AlarmStatus.FAILED
    assert "cannot be recorded" in str(found[bad.id].last_error)
    assert wakes.records.finished == []


def _break_decide(monkeypatch: pytest.MonkeyPatch, bad: UUID) -> None:
    def broken(ringing: Any, *given: Any, **named: Any) -> Any:
        if ringing.id == bad:
            raise OverflowError("date value out of range")
        return decide(ringing, *given, **named)

    monkeypatch.setattr(wake_records, "decide", broken)


def _spoilt(finished: FinishedDelivery) -> FinishedDelivery:
    return finished._replace(result=WakeResult(status=500, error="\x00", answer="\x00", duration=SECOND))


async def test_hosts_that_hang_do_not_take_every_slot(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    """Though they are more than there are slots for."""
    database.settings = replace(settings, alarm_slots=20, alarm_slots_per_destination=5)
    engine = Engine(database, buckets=settings.buckets)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            hanging = await stack.enter_async_context(open_endpoint())
            hanging.gate.clear()
            for _ in range(10):
                await set_one(engine, hanging)
        await clock.advance(MINUTE)
        while not await engine.duties.deliveries.step():
            pass
        for _ in range(2):
            await set_one(engine, endpoint, delay=SECOND)
        await clock.advance(SECOND)
        await engine.duties.deliveries.ready()

        await engine.duties.deliveries.step()

        try:
            await endpoint.until(1, within=2)
        finally:
            await engine.duties.deliveries.stop(0)


async def test_while_the_database_is_away_slots_are_bounded_and_nothing_is_lost(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.settings = replace(settings, alarm_slots=4)
    engine = Engine(database, buckets=settings.buckets)
    alarms = [await set_one(engine, endpoint) for _ in range(12)]
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    run = database.run
    is_away = False

    async def unreliable(work: Any, **given: Any) -> Any:
        if is_away:
            raise DatabaseUnreachable("away")
        return await run(work, **given)

    monkeypatch.setattr(database, "run", unreliable)
    await wakes.step()
    await asyncio.wait(list(wakes._in_flight))
    is_away = True
    for step in (wakes.records.record, wakes.step, wakes.records.record):
        with pytest.raises(DatabaseUnreachable):
            await step()
    assert len(wakes.records.finished) == 3  # and one is for another destination
    wakes.records.finished *= 2
    assert wakes.free_slots == 0
    del wakes.records.finished[3:]
    is_away = False

    while wakes.records.finished or wakes._in_flight or not await wakes.step():
        await wakes.records.record()
        if wakes._in_flight:
            await asyncio.wait(list(wakes._in_flight))

    assert {(await engine.alarms.get(alarm.id)).status for alarm in alarms} == {AlarmStatus.FIRED}
    assert len(endpoint.calls) == 12
    await wakes.stop(0)


async def test_after_an_outage_that_outlasts_leases_the_living_record_before_anybody_judges(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, settings: Settings
) -> None:
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    await wakes.step()
    await asyncio.wait(list(wakes._in_flight))
    await clock.advance(settings.alarm_lease + MINUTE)
    wakes.records.loop.failures = 1  # as it has after an outage

    await wakes.step()
    await wakes.records.record()

    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.FIRED
    assert len(endpoint.calls) == 1


async def test_a_claim_is_not_made_unless_all_else_is_there(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what was claimed would wait for the end of its lease."""
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)

    async def fail(_: Any) -> Any:
        raise DatabaseUnreachable("away")

    monkeypatch.setattr(signing_secrets, "wake_secrets", fail)

    with pytest.raises(DatabaseUnreachable):
        await engine.duties.deliveries.step()

    assert not (await engine.alarms.get(alarm.id)).is_ringing


@pytest.mark.parametrize("limit", ["alarm_slots_per_destination", "alarm_slots"])
async def test_a_duty_at_its_limit_sleeps_and_goes_on_when_something_lands(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock, limit: str
) -> None:
    """With every destination at its limit it asks once a tick, not all the time; at its own, once one is recorded."""
    limits: dict[str, Any] = {limit: 1, "alarm_tick": timedelta(seconds=30)}
    database.settings = replace(settings, **limits)
    engine = Engine(database, buckets=settings.buckets)
    endpoint.gate.clear()
    for _ in range(3):
        await set_one(engine, endpoint)
    await clock.advance(MINUTE)
    wakes = engine.duties.deliveries
    steps = 0
    step = wakes.loop.step

    async def counted() -> timedelta:
        nonlocal steps
        steps += 1
        return await step()

    wakes.loop.step = counted
    stop = asyncio.Event()
    loops = [asyncio.create_task(loop.run(stop)) for loop in (wakes.loop, wakes.records.loop)]
    await endpoint.until(1)
    await asyncio.sleep(0.3)
    assert steps <= 3

    endpoint.gate.set()
    await endpoint.until(3)

    stop.set()
    await asyncio.gather(*loops)
    await wakes.stop(1)


async def _count(conn: asyncpg.Connection[Any], status: str) -> int:
    return int(await conn.fetchval("select count(*) from pulse.alarms where status = $1", status))


async def test_two_processes_share_a_burst_and_deliver_each_wake_once(
    settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    async with AsyncExitStack() as stack:
        engines = []
        for _ in range(2):
            database = await stack.enter_async_context(await Database.connect(replace(settings, alarm_slots=10)))
            engines.append(Engine(database, buckets=settings.buckets))
        for _ in range(100):
            await set_one(engines[0], endpoint)
        await clock.advance(MINUTE)
        conn = await stack.enter_async_context(connected(settings.database_url))
        for each in engines:
            each.start()

        async def are_fired() -> bool:
            return await _count(conn, "fired") == 100

        await until(are_fired)

        for each in engines:
            await each.stop()
    assert len(endpoint.calls) == len({call.wake_id for call in endpoint.calls}) == 100
