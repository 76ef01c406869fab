"""Document 000, about the worker that dispatches alarms: it polls, claims what is due under a lease, wakes a URL and
records what came of it, with a ladder of retries."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import Alarm, AlarmStatus, DeliveryOutcome
from pulse.model.errors import InvalidAlarm, PulseError
from pulse.settings import Settings
from pulse.store.alarms import deliveries as deliveries_store
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.conftest import SERVER, open_connection
from tests.endpoint import Endpoint, open_endpoint
from tests.factories import submit_one
from tests.seeds.conftest import Another
from tests.seeds.helpers import HOUR, MINUTE, NOON, SECOND, deliver, deliveries, set_one
from tests.seeds.sayings import says
from tests.waiting import connected, until

DEFAULTS = Settings()
PATIENCE = 60.0  # seconds for what takes a moment, on a machine that has much else to do


async def state(engine: Engine, alarm: Alarm) -> tuple[AlarmStatus, bool, int]:
    """Its status, whether it is being delivered, and how often that failed."""
    found = await engine.alarms.get(alarm.id)
    return found.status, found.is_ringing, found.failure_count


def wake_counts(endpoint: Endpoint) -> set[int]:
    """How often each wake arrived."""
    return set(Counter(call.wake_id for call in endpoint.calls).values())


async def waits(engine: Engine, clock: FrozenClock, alarm: Alarm, failures: int) -> list[float]:
    """Let it fail so often; answers with the seconds until each next try."""
    found: list[float] = []
    for _ in range(failures):
        await deliver(engine)
        following = (await engine.alarms.get(alarm.id)).next_fire_at
        assert following is not None
        found.append((following - clock.instant).total_seconds())
        await clock.advance(following - clock.instant)
    return found


# --- claiming


@says("000", 1, "Workers claim with FOR UPDATE SKIP LOCKED, so no two of them ever have the same row.")
async def test_no_two_workers_have_the_same_alarm(
    engine: Engine, another: Another, endpoint: Endpoint, settings: Settings, noon: FrozenClock
) -> None:
    held, *others = [await set_one(engine, endpoint, label=str(number)) for number in range(60)]
    await noon.advance(MINUTE)
    await engine.duties.deliveries.ready()

    async with asyncio.timeout(PATIENCE), open_connection(settings) as conn, conn.transaction():
        await conn.fetch("select from pulse.alarms where id = $1 for update", held.id)
        await asyncio.gather(*(deliver(each) for each in (engine, await another(), await another())))
        assert {call.body["label"] for call in endpoint.calls} == {alarm.label for alarm in others}, "not the held one"
    await deliver(engine)

    assert (len(endpoint.calls), wake_counts(endpoint)) == (60, {1})


@says("000", 3, "Delivery is at least once: a fire is recorded only after the wake is confirmed.")
async def test_an_alarm_has_fired_only_once_its_wake_is_answered(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    endpoint.gate.clear()
    await engine.duties.deliveries.step()
    await endpoint.until(1)
    await engine.duties.deliveries.records.record()

    assert await state(engine, alarm) == (AlarmStatus.ACTIVE, True, 0)
    assert (await engine.alarms.get(alarm.id)).last_fired_at is None
    endpoint.gate.set()
    await deliver(engine)
    assert await state(engine, alarm) == (AlarmStatus.FIRED, False, 0)


@says("000", 4, "A crash in mid-fire leaves the lease, which expires: then the alarm fires again.")
async def test_what_a_crashed_worker_was_delivering_fires_again(
    engine: Engine, another: Another, endpoint: Endpoint, noon: FrozenClock
) -> None:
    crashed = await another()
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    endpoint.gate.clear()
    await crashed.duties.deliveries.step()
    await endpoint.until(1)  # and nothing more is ever heard of that worker
    endpoint.gate.set()

    await noon.advance(DEFAULTS.alarm_lease - SECOND)
    await deliver(engine)
    assert len(endpoint.calls) == 1, "its lease holds"
    await noon.advance(SECOND)
    await deliver(engine)

    first, again = endpoint.calls
    assert first.wake_id == again.wake_id, "whoever receives it can tell"
    assert await state(engine, alarm) == (AlarmStatus.FIRED, False, 0)


@says("000", 5, "A claimed alarm is leased for 2 minutes.")
async def test_a_claimed_alarm_is_leased_for_two_minutes(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock, conn: Connection
) -> None:
    await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    endpoint.gate.clear()

    await engine.duties.deliveries.step()

    [row] = await conn.fetch("select lease_until from pulse.alarms")
    assert row["lease_until"] - noon.instant == timedelta(minutes=2)


@says(
    "000",
    6,
    "A tick claims at most 100 alarms, the batch.",
    verdict="deviates",
    decision="0028",
    because="a claim takes at most a batch, but the next one follows at once and not at the next tick.",
)
async def test_a_claim_takes_at_most_a_batch_and_the_next_follows_at_once(
    another: Another, endpoint: Endpoint, noon: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert DEFAULTS.alarm_batch == 100
    engine = await another(alarm_batch=7)
    sizes: list[int] = []
    claim = deliveries_store.claim_alarms

    async def counted(*given: Any, **more: Any) -> Any:
        claimed = await claim(*given, **more)
        sizes.append(len(claimed))
        return claimed

    monkeypatch.setattr(deliveries_store, "claim_alarms", counted)
    for _ in range(40):
        await set_one(engine, endpoint)
    await noon.advance(MINUTE)

    await deliver(engine)  # while time stands still: no tick passes

    assert (max(sizes), sum(sizes), len(endpoint.calls)) == (7, 40, 40)


@says(
    "000",
    7,
    "Only active, due alarms that nobody has leased are claimed, the oldest first.",
    verdict="deviates",
    decision="0028",
    because="the oldest first for each destination, and destinations take turns.",
)
async def test_only_what_is_active_due_and_free_is_claimed_oldest_first_by_destination(
    engine: Engine, another: Another, endpoint: Endpoint, noon: FrozenClock
) -> None:
    serial = await another(alarm_slots_per_destination=1)
    async with open_endpoint() as other, open_endpoint() as slow:
        await set_one(engine, slow, delay=SECOND)
        await noon.advance(SECOND)
        slow.gate.clear()
        await (await another()).duties.deliveries.step()  # a lease that somebody else has
        for seconds in (3, 1, 2):
            await set_one(engine, endpoint, label=str(seconds), delay=seconds * SECOND)
        await set_one(engine, endpoint, label="not due", delay=HOUR)
        await engine.alarms.cancel((await set_one(engine, endpoint, label="cancelled", delay=SECOND)).id)
        await engine.alarms.pause((await set_one(engine, endpoint, label="paused", delay=SECOND)).id)
        await set_one(engine, other, label="youngest", delay=4 * SECOND)
        await noon.advance(4 * SECOND)

        endpoint.gate.clear()
        await serial.duties.deliveries.step()
        await endpoint.until(1)
        await other.until(1)  # it need not wait for all those of the other destination
        endpoint.gate.set()
        await deliver(serial)

        assert [call.body["label"] for call in endpoint.calls] == ["1", "2", "3"]
        assert (len(other.calls), len(slow.calls)) == (1, 1)


@says("000", 8, "A wake is a POST to /internal/wake of the router.")
async def test_an_alarm_without_a_url_is_posted_to_the_default_target(
    engine: Engine, another: Another, endpoint: Endpoint, noon: FrozenClock
) -> None:
    router = endpoint.url.replace("/hook", "/internal/wake")
    knowing = await another(alarm_target=router, alarm_token="hush")
    await set_one(knowing, endpoint, url=None)
    with pytest.raises(InvalidAlarm, match="url is missing"):
        await set_one(engine, endpoint, url=None)  # which has no such target
    await noon.advance(MINUTE)

    await deliver(knowing)

    [call] = endpoint.calls
    assert (call.method, call.path, call.headers["authorization"]) == ("POST", "/internal/wake", "Bearer hush")


# --- success


@says("000", 9, "A once alarm that was delivered is fired, and kept.")
async def test_a_once_alarm_that_was_delivered_is_fired_and_kept(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    await deliver(engine)
    await noon.advance(24 * HOUR)
    await deliver(engine)

    fired = await engine.alarms.get(alarm.id)
    assert (fired.status, fired.last_fired_at, fired.next_fire_at) == (AlarmStatus.FIRED, NOON + MINUTE, None)
    assert len(endpoint.calls) == 1


@says("000", 10, "A cron alarm that was delivered goes on with its next occurrence, counted from now.")
async def test_a_cron_alarm_goes_on_from_now(engine: Engine, endpoint: Endpoint, noon: FrozenClock) -> None:
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    await noon.advance(MINUTE)
    await deliver(engine)
    assert (await engine.alarms.get(alarm.id)).next_fire_at == NOON + 2 * MINUTE

    await noon.advance(HOUR)  # nobody was there
    await deliver(engine)

    assert len(endpoint.calls) == 2
    assert (await engine.alarms.get(alarm.id)).next_fire_at == NOON + HOUR + 2 * MINUTE
    assert "59 occurrences" in str((await deliveries(engine, alarm))[-1].note)


@says("000", 11, "A cron alarm without any future time after its fire is retired as fired.")
async def test_a_cron_alarm_without_a_future_is_retired(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    clock.instant = datetime(2096, 2, 28, tzinfo=UTC)  # the leap day after the next one is eight years away
    await clock.freeze()
    alarm = await set_one(engine, endpoint, cron="0 0 29 2 *")
    await clock.advance(timedelta(days=1))

    await deliver(engine)

    assert await state(engine, alarm) == (AlarmStatus.FIRED, False, 0)
    assert len(endpoint.calls) == 1


# --- failure


@says("000", 12, "An alarm that failed stays active and is claimed again after its back-off.")
async def test_an_alarm_that_failed_is_tried_again_after_its_back_off(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    await deliver(engine)

    waiting = await engine.alarms.get(alarm.id)
    assert (waiting.status, waiting.failure_count) == (AlarmStatus.ACTIVE, 1)
    assert waiting.next_fire_at is not None
    assert waiting.next_fire_at > noon.instant
    await noon.advance(waiting.next_fire_at - noon.instant - timedelta(milliseconds=1))
    await deliver(engine)
    assert len(endpoint.calls) == 1
    await noon.advance(timedelta(milliseconds=1))
    await deliver(engine)
    assert len(endpoint.calls) == 2


@says("000", 16, "By default there are five retries: the sixth failure is final.")
async def test_by_default_the_sixth_failure_is_final(engine: Engine, endpoint: Endpoint, noon: FrozenClock) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint)

    for _ in range(9):
        await noon.advance(20 * MINUTE)
        await deliver(engine)

    assert DEFAULTS.alarm_max_failures == 5
    assert len(endpoint.calls) == 6
    assert await state(engine, alarm) == (AlarmStatus.FAILED, False, 6)


@says("000", 17, "A once alarm at the end of its retries has failed, with its error, and is never tried again.")
async def test_a_once_alarm_out_of_retries_has_failed_for_good(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    endpoint.status = 503
    alarm = await set_one(engine, endpoint, max_failures=0)
    await noon.advance(MINUTE)
    await deliver(engine)
    await noon.advance(24 * HOUR)
    await deliver(engine)

    ended = await engine.alarms.get(alarm.id)
    assert (ended.status, ended.next_fire_at) == (AlarmStatus.FAILED, None)
    assert ended.last_error == "HTTP 503 Service Unavailable"
    assert len(endpoint.calls) == 1


@says("000", 18, "A cron alarm at the end of its retries records the error, skips that occurrence and advances.")
async def test_a_cron_alarm_out_of_retries_skips_and_advances(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="0 * * * *", max_failures=0)
    await noon.advance(HOUR)
    await deliver(engine)

    skipped = await engine.alarms.get(alarm.id)
    assert (skipped.status, skipped.next_fire_at) == (AlarmStatus.ACTIVE, NOON + 2 * HOUR)
    assert skipped.last_error == "HTTP 500 Internal Server Error"
    assert (await deliveries(engine, alarm))[-1].outcome is DeliveryOutcome.GIVEN_UP
    endpoint.status = 200
    await noon.advance(HOUR)
    await deliver(engine)
    assert (await engine.alarms.get(alarm.id)).last_fired_at == NOON + 2 * HOUR, "the series is not wedged"


@says("000", 19, "Every failure is recorded on the alarm's row: nothing is dropped in silence.")
async def test_every_failure_is_on_the_alarms_row(engine: Engine, another: Another, noon: FrozenClock) -> None:
    impatient = await another(alarm_deadline=timedelta(milliseconds=100))
    wanted = {500: "HTTP 500", 302: "HTTP 302", 410: "HTTP 410", "is silent": "no answer", "is not there": "refused"}
    found: dict[object, str] = {}
    for kind in wanted:
        async with open_endpoint() as endpoint:
            url = {"url": "http://127.0.0.1:1/"} if kind == "is not there" else {}
            alarm = await set_one(engine, endpoint, max_failures=0, **url)
            endpoint.status = kind if isinstance(kind, int) else 200
            if kind == "is silent":
                endpoint.gate.clear()
            await noon.advance(MINUTE)
            await deliver(impatient if kind == "is silent" else engine)
        ended = await engine.alarms.get(alarm.id)
        assert ended.status is AlarmStatus.FAILED
        found[kind] = str(ended.last_error)

    assert [kind for kind, error in found.items() if wanted[kind] not in error] == [], found


# --- settings and life


@says("000", 20, "Tick, lease, batch and retries are set by the environment, or by a file under it.")
def test_the_tunables_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pulse.toml"
    file.write_text('alarm_tick = "3s"\nalarm_lease = "5m"\nalarm_batch = 9\nalarm_max_failures = 8\n')

    written = Settings.from_env({"PULSE_CONFIG": str(file)})
    both = Settings.from_env({"PULSE_CONFIG": str(file), "PULSE_ALARM_TICK": "4s", "PULSE_ALARM_BATCH": "10"})

    def tunables(settings: Settings) -> tuple[timedelta, timedelta, int, int]:
        return settings.alarm_tick, settings.alarm_lease, settings.alarm_batch, settings.alarm_max_failures

    assert tunables(Settings.from_env({})) == (SECOND, 2 * MINUTE, 100, 5)
    assert tunables(written) == (3 * SECOND, 5 * MINUTE, 9, 8)
    assert tunables(both) == (4 * SECOND, 5 * MINUTE, 10, 8)


@says("000", 21, "A stop in mid-batch is clean: what was begun is recorded, the rest is left to others.")
async def test_a_stop_in_mid_batch_is_clean(
    engine: Engine, another: Another, endpoint: Endpoint, noon: FrozenClock
) -> None:
    stopping = await another(alarm_slots_per_destination=5)
    alarms = [await set_one(engine, endpoint) for _ in range(20)]
    await noon.advance(MINUTE)
    endpoint.gate.clear()
    await stopping.duties.deliveries.step()
    await endpoint.until(5)

    stop = asyncio.create_task(stopping.duties.deliveries.stop(60))
    await asyncio.sleep(0)
    endpoint.gate.set()
    await stop

    states = Counter([await state(engine, alarm) for alarm in alarms])
    assert states == {(AlarmStatus.FIRED, False, 0): 5, (AlarmStatus.ACTIVE, False, 0): 15}
    await deliver(engine)
    assert (len(endpoint.calls), wake_counts(endpoint)) == (20, {1})


@says(
    "000",
    22,
    "One goroutine delivers one alarm after another.",
    verdict="deviates",
    decision="0028",
    because="side by side, each under a lease and a fence of its own, so that one slow host stalls nobody.",
)
async def test_alarms_are_delivered_side_by_side_and_a_late_word_changes_nothing(
    engine: Engine, another: Another, endpoint: Endpoint, noon: FrozenClock
) -> None:
    slow = await another()
    held = [await set_one(engine, endpoint) for _ in range(3)]
    async with open_endpoint() as quick:
        at_once = await set_one(engine, quick)
        await noon.advance(MINUTE)
        endpoint.gate.clear()
        await slow.duties.deliveries.step()
        await endpoint.until(3)  # all three have arrived, and none is answered
        await quick.until(1)
        await until(lambda: _landed(slow), PATIENCE)
        await slow.duties.deliveries.records.record()
    assert await state(engine, at_once) == (AlarmStatus.FIRED, False, 0)

    await noon.advance(DEFAULTS.alarm_lease)
    endpoint.gate.set()
    await deliver(engine)  # in place of the one that is too slow
    before = [await engine.alarms.get(alarm.id) for alarm in held]
    await deliver(slow)

    assert {alarm.status for alarm in before} == {AlarmStatus.FIRED}
    assert [await engine.alarms.get(alarm.id) for alarm in held] == before
    assert DeliveryOutcome.LATE in [line.outcome for line in await deliveries(engine, held[0])]


async def _landed(engine: Engine) -> bool:
    return bool(engine.duties.deliveries.records.finished)


@says(
    "000",
    23,
    "What was delivered while the database was away is recorded when it is back (which the document leaves out).",
)
async def test_what_was_delivered_while_the_database_was_away_is_recorded_once(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock, conn: Connection
) -> None:
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)
    endpoint.gate.clear()
    await engine.duties.deliveries.step()
    await endpoint.until(1)

    async with _away(conn):
        endpoint.gate.set()
        await until(lambda: _landed(engine), PATIENCE)
        for _ in range(2):  # the duty tries again and again
            with pytest.raises(PulseError):
                await engine.duties.deliveries.records.record()
    await deliver(engine)

    assert await state(engine, alarm) == (AlarmStatus.FIRED, False, 0)
    assert [line.outcome for line in await deliveries(engine, alarm)] == [DeliveryOutcome.DELIVERED]
    assert len(endpoint.calls) == 1


@asynccontextmanager
async def _away(conn: Connection) -> AsyncIterator[None]:
    """Nobody can connect to this test's database, and who was connected no longer is."""
    [[name]] = await conn.fetch("select current_database()")
    async with connected(os.environ[SERVER]) as server:
        await server.execute(f"alter database {name} allow_connections false")
        try:
            ended = await server.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and application_name = $2",
                *(name, "pulse"),
            )
            assert ended
            yield
        finally:
            await server.execute(f"alter database {name} allow_connections true")


# --- as it is from this release on


@says("000", 2, "The database is the truth: it is polled every tick, of 1 s by default, which is a setting.")
async def test_the_alarm_tick_is_how_often_alarms_are_looked_for(another: Another, endpoint: Endpoint) -> None:
    """Where nobody is told of them. In real time, but not timed: an hour never passes, and a moment always does."""
    setting = await another(notify=False)
    assert DEFAULTS.alarm_tick == SECOND
    often = await another(notify=False, tick=HOUR, alarm_tick=timedelta(milliseconds=20))
    await _look_once(often)
    await set_one(setting, endpoint, delay=timedelta(milliseconds=1))
    await endpoint.until(1, within=30)  # sooner than a look for good measure, which comes every minute
    await often.stop()

    seldom = await another(notify=False, tick=timedelta(milliseconds=20), alarm_tick=HOUR)
    await _look_once(seldom)
    alarm = await set_one(setting, endpoint, delay=timedelta(milliseconds=1))
    for _ in range(5):  # it looks for jobs meanwhile, again and again
        job_id = await submit_one(setting, delay=timedelta(milliseconds=1))
        await until(partial(_is_ready, setting, job_id), PATIENCE)
    await seldom.stop()

    assert await state(setting, alarm) == (AlarmStatus.ACTIVE, False, 0)
    assert len(endpoint.calls) == 1


async def _look_once(engine: Engine) -> None:
    """Start it, and return when all its duties have found nothing to do."""
    engine.start()

    async def have_looked() -> bool:
        return all(beat.due_at > beat.good_at for beat in engine.healths)

    await until(have_looked, PATIENCE)


async def _is_ready(engine: Engine, job_id: UUID) -> bool:
    return (await engine.jobs.get(job_id)).ready_at is not None


@says("000", 13, "The ladder is 30 s, 1, 2, 4 and 8 minutes.")
async def test_the_ladder_doubles_from_thirty_seconds(engine: Engine, endpoint: Endpoint, noon: FrozenClock) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint)
    await noon.advance(MINUTE)

    assert await waits(engine, noon, alarm, 5) == [30, 60, 120, 240, 480]


@says("000", 14, "No rung of the ladder is longer than 15 minutes.")
async def test_no_rung_is_longer_than_fifteen_minutes(engine: Engine, endpoint: Endpoint, noon: FrozenClock) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, max_failures=9)
    await noon.advance(MINUTE)

    assert (await waits(engine, noon, alarm, 9))[5:] == [900, 900, 900, 900]


@says("000", 15, "A cron alarm climbs the same ladder: a dead endpoint is called ever less often.")
async def test_a_cron_alarm_climbs_the_ladder_across_its_occurrences(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    called_at: list[int] = []
    await noon.advance(MINUTE)
    for seconds in range(0, 931, 30):
        before = len(endpoint.calls)
        await deliver(engine)
        called_at += [seconds] * (len(endpoint.calls) - before)
        await noon.advance(30 * SECOND)

    assert called_at == [0, 30, 90, 210, 450, 930]
    assert sum("coalesced" in str(line.note) for line in await deliveries(engine, alarm)) > 0
