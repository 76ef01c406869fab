"""Does every due alarm reach its URL, and is what came of it on its row? On time that the test moves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse import webhooks
from pulse.engine.alarms import deliveries as wakes_module
from pulse.engine.alarms import turns as wake_turns
from pulse.engine.alarms.turns import share
from pulse.engine.engine import Engine
from pulse.model.alarms import Alarm, AlarmStatus, Delivery, DeliveryOutcome, NewAlarm
from pulse.model.decisions.delivery import backoff
from pulse.model.errors import AlarmConflict
from pulse.settings import Settings
from pulse.store.alarms.deliveries import Turn
from pulse.store.connections.pool import Connection, Database
from tests.clock import FrozenClock
from tests.endpoint import Endpoint, open_endpoint

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(autouse=True)
async def at_noon(clock: FrozenClock) -> None:
    clock.instant = NOON
    await clock.freeze()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with open_endpoint() as endpoint:
        yield endpoint


@pytest.fixture
async def engine(engine: Engine) -> AsyncIterator[Engine]:
    yield engine
    await engine.duties.deliveries.stop(0)


async def set_one(engine: Engine, endpoint: Endpoint, **given: Any) -> Alarm:
    if not {"delay", "fire_at", "cron"} & given.keys():
        given["delay"] = MINUTE
    defaults = {"owner": "ada", "url": endpoint.url, "label": "tea", "payload": '{"cup": 1}'}
    return (await engine.alarms.set(NewAlarm(**defaults | given))).alarm


async def deliver(engine: Engine) -> None:
    """All that is due, to the end."""
    wakes = engine.duties.deliveries
    while True:
        while not await wakes.step():
            pass
        if not wakes._in_flight and not wakes.records.finished:
            break
        if wakes._in_flight:
            await asyncio.wait(list(wakes._in_flight))
        await wakes.records.record()


@asynccontextmanager
async def a_server_that_never_answers() -> AsyncIterator[int]:
    """Answers with its port, on every address of this machine."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "0.0.0.0", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def log_of(engine: Engine, alarm: Alarm) -> list[Delivery]:
    """Oldest first."""
    return (await engine.alarms.deliveries(alarm.id)).deliveries[::-1]


async def test_nothing_leaves_before_its_instant(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    await set_one(engine, endpoint)
    await clock.advance(MINUTE - SECOND)

    await deliver(engine)

    assert endpoint.calls == []


async def test_what_headers_say_is_hidden_in_an_answer_that_repeats_it(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    headers = {"authorization": "Bearer key-42-secret", "x-note": "hush hush"}
    alarm = await set_one(engine, endpoint, headers=headers)
    endpoint.status, endpoint.text = 500, 'got {"authorization": "Bearer key-42-secret"}, key-42-secret and hush hush'
    await clock.advance(MINUTE + SECOND)

    await deliver(engine)

    assert endpoint.calls[0].headers["authorization"] == "Bearer key-42-secret"
    [line] = await log_of(engine, alarm)
    assert line.answer == 'got {"authorization": "[redacted]"}, [redacted] and [redacted]'


async def test_a_once_alarm_fires_and_is_kept(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    alarm = await set_one(engine, endpoint, headers={"x-tenant": "t"})
    await clock.advance(MINUTE + SECOND)

    await deliver(engine)

    fired = await engine.alarms.get(alarm.id)
    assert (fired.status, fired.next_fire_at, fired.last_fired_at) == (AlarmStatus.FIRED, None, NOON + MINUTE + SECOND)
    [call] = endpoint.calls
    assert call.body == {
        "alarm_id": str(alarm.id),
        "occurrence": (NOON + MINUTE).isoformat().replace("+00:00", "Z"),
        "label": "tea",
        "owner": "ada",
        "payload": {"cup": 1},
        "attempt": 1,
    }
    assert call.headers["x-tenant"] == "t"
    [line] = await log_of(engine, alarm)
    assert (line.outcome, line.status, line.answer, line.attempt, line.error) == (
        DeliveryOutcome.DELIVERED, 200, "thanks", 1, None,
    )  # fmt: skip
    await clock.advance(HOUR)
    await deliver(engine)
    assert len(endpoint.calls) == 1


async def test_a_wake_is_signed_and_can_be_verified(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)

    await deliver(engine)

    [call] = endpoint.calls
    [secret] = await engine.alarms.secrets(alarm.owner)
    wake = webhooks.verify(call.raw, call.headers, secret.secret, owner=alarm.owner)
    assert (wake.alarm_id, wake.occurrence, wake.payload) == (str(alarm.id), NOON + MINUTE, {"cup": 1})


async def test_a_cron_alarm_goes_on_with_its_next_occurrence(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint, cron="* * * * *")

    for _ in range(3):
        await clock.advance(MINUTE)
        await deliver(engine)

    now = await engine.alarms.get(alarm.id)
    assert (now.status, now.next_fire_at) == (AlarmStatus.ACTIVE, NOON + 4 * MINUTE)
    assert len({call.wake_id for call in endpoint.calls}) == 3


async def test_the_ladder_to_the_second(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    """30 s, 1, 2, 4, 8, 15, 15 minutes, and then it is final."""
    endpoint.status = 503
    alarm = await set_one(engine, endpoint, max_failures=7)
    await clock.advance(MINUTE)
    await deliver(engine)

    for failures in range(1, 8):
        rung = backoff(failures - 1)
        waiting = await engine.alarms.get(alarm.id)
        assert (waiting.status, waiting.failure_count) == (AlarmStatus.ACTIVE, failures)
        assert waiting.next_fire_at == clock.instant + rung
        assert waiting.occurrence == NOON + MINUTE
        assert waiting.last_error == "HTTP 503 Service Unavailable"
        await clock.advance(rung - SECOND)
        await deliver(engine)
        assert len(endpoint.calls) == failures
        await clock.advance(SECOND)
        await deliver(engine)

    ended = await engine.alarms.get(alarm.id)
    assert (ended.status, ended.failure_count, ended.next_fire_at) == (AlarmStatus.FAILED, 8, None)
    assert ended.last_error == "HTTP 503 Service Unavailable"
    assert {call.wake_id for call in endpoint.calls} == {endpoint.calls[0].wake_id}
    assert [call.body["attempt"] for call in endpoint.calls] == list(range(1, 9))
    outcomes = [line.outcome for line in await log_of(engine, alarm)]
    assert outcomes == [DeliveryOutcome.FAILED] * 7 + [DeliveryOutcome.GIVEN_UP]


async def test_with_jitter_no_wait_is_longer_than_its_step(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    database.settings = replace(settings, alarm_jitter=True)
    engine = Engine(database, buckets=settings.buckets)
    endpoint.status = 503
    alarm = await set_one(engine, endpoint, max_failures=20)
    await clock.advance(MINUTE)

    waits = []
    for failures in range(8):  # after ten the breaker would leave it alone
        await deliver(engine)
        waiting = await engine.alarms.get(alarm.id)
        assert waiting.next_fire_at is not None
        waits.append((waiting.next_fire_at - clock.instant) / backoff(failures))
        await clock.advance(waiting.next_fire_at - clock.instant)

    assert all(0.8 <= wait <= 1 for wait in waits)
    assert len(set(waits)) == 8
    await engine.duties.deliveries.stop(0)


async def test_with_five_retries_the_sixth_failure_is_final(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint)

    for _ in range(10):
        await clock.advance(15 * MINUTE)
        await deliver(engine)

    assert len(endpoint.calls) == 6
    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.FAILED


async def test_a_once_alarm_that_recovers_has_fired(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)
    await deliver(engine)
    endpoint.status = 204
    await clock.advance(30 * SECOND)

    await deliver(engine)

    fired = await engine.alarms.get(alarm.id)
    assert (fired.status, fired.failure_count, fired.last_error) == (AlarmStatus.FIRED, 0, None)


async def test_a_cron_alarm_skips_a_bad_occurrence_and_advances(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="0 * * * *", max_failures=1)
    await clock.advance(HOUR)
    await deliver(engine)
    await clock.advance(30 * SECOND)

    await deliver(engine)

    now = await engine.alarms.get(alarm.id)
    assert (now.status, now.failure_count, now.next_fire_at) == (AlarmStatus.ACTIVE, 0, NOON + 2 * HOUR)
    assert now.last_error == "HTTP 500 Internal Server Error"
    assert (await log_of(engine, alarm))[-1].note == "skipped after its last retry"


async def calls_until(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, alarm: Alarm, end: datetime
) -> list[float]:
    """When the endpoint was called, in seconds after the first call; time goes from one attempt to the next."""
    instants: list[datetime] = []
    while (due := (await engine.alarms.get(alarm.id)).next_fire_at) is not None and due <= end:
        await clock.advance(due - clock.instant)
        before = len(endpoint.calls)
        await deliver(engine)
        instants += [clock.instant] * (len(endpoint.calls) - before)
    return [(instant - instants[0]).total_seconds() for instant in instants]


async def test_a_cron_alarm_of_every_minute_climbs_the_ladder_across_its_occurrences(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    first = NOON + MINUTE

    calls = await calls_until(engine, endpoint, clock, alarm, first + 16 * MINUTE + 30 * SECOND)

    # After the last retry its next occurrence is the first of a new ladder.
    assert calls == [0, 30, 90, 210, 450, 930, 960, 990]
    for_minute = [datetime.fromisoformat(call.body["occurrence"]) - first for call in endpoint.calls]
    assert [each // MINUTE for each in for_minute] == [0, 0, 1, 3, 7, 15, 16, 16]
    assert [call.body["attempt"] for call in endpoint.calls] == [1, 2, 3, 4, 5, 6, 1, 2]
    assert len({call.wake_id for call in endpoint.calls}) == 6


async def test_the_log_accounts_for_every_occurrence_that_was_passed_over(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    first = NOON + MINUTE

    await calls_until(engine, endpoint, clock, alarm, first + 930 * SECOND)

    def at(minute: int) -> str:
        return (first + minute * MINUTE).isoformat()

    lines = await log_of(engine, alarm)
    assert [line.note for line in lines] == [
        None,
        f"coalesced 1 occurrence ({at(0)}) into {at(1)}",
        f"coalesced 2 occurrences ({at(1)} to {at(2)}) into {at(3)}",
        f"coalesced 4 occurrences ({at(3)} to {at(6)}) into {at(7)}",
        f"coalesced 8 occurrences ({at(7)} to {at(14)}) into {at(15)}",
        "skipped after its last retry",
    ]
    assert [line.outcome for line in lines] == [DeliveryOutcome.FAILED] * 5 + [DeliveryOutcome.GIVEN_UP]
    now = await engine.alarms.get(alarm.id)
    assert (now.occurrence, now.next_fire_at, now.failure_count) == (first + 16 * MINUTE, first + 16 * MINUTE, 0)
    assert now.last_error == "HTTP 500 Internal Server Error"


async def test_a_cron_alarm_that_recovers_goes_on_with_its_next_occurrence(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    first = NOON + MINUTE
    await calls_until(engine, endpoint, clock, alarm, first + 90 * SECOND)
    endpoint.status = 204
    await clock.advance(3 * MINUTE)  # nobody delivered at 210 s

    await deliver(engine)

    now = await engine.alarms.get(alarm.id)
    assert (now.next_fire_at, now.failure_count, now.last_error) == (first + 5 * MINUTE, 0, None)
    last = (await log_of(engine, alarm))[-1]
    assert (last.occurrence, last.outcome) == (first + 3 * MINUTE, DeliveryOutcome.DELIVERED)
    assert last.note == f"coalesced 1 occurrence ({(first + 4 * MINUTE).isoformat()})"


async def test_a_retry_of_a_cron_alarm_outlasts_a_short_pause(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="0 * * * *")
    await clock.advance(HOUR)
    await deliver(engine)
    await engine.alarms.pause(alarm.id)
    await clock.advance(20 * SECOND)

    resumed = await engine.alarms.resume(alarm.id)

    assert (resumed.occurrence, resumed.next_fire_at) == (NOON + HOUR, NOON + HOUR + 30 * SECOND)
    assert resumed.failure_count == 1


@pytest.mark.parametrize("act", ["resume", "fire"])
async def test_an_occurrence_that_a_person_begins_has_all_its_retries(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, act: str
) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, cron="*/15 * * * *", max_failures=1)
    await clock.advance(15 * MINUTE)
    await deliver(engine)  # its only retry is to come
    if act == "resume":
        await engine.alarms.pause(alarm.id)
        await clock.advance(14 * MINUTE)
        await engine.alarms.resume(alarm.id)
        await clock.advance(MINUTE)
    else:
        await clock.advance(SECOND)
        await engine.alarms.fire(alarm.id)

    await deliver(engine)

    now = await engine.alarms.get(alarm.id)
    assert (now.failure_count, now.next_fire_at) == (1, clock.instant + 30 * SECOND)
    assert (await log_of(engine, alarm))[-1].outcome is DeliveryOutcome.FAILED


@pytest.mark.parametrize("when", [{"delay": MINUTE}, {"cron": "* * * * *"}])
async def test_gone_disables_an_alarm(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, when: dict[str, Any]
) -> None:
    endpoint.status = 410
    alarm = await set_one(engine, endpoint, **when)
    await clock.advance(MINUTE)

    await deliver(engine)

    ended = await engine.alarms.get(alarm.id)
    assert ended.status is AlarmStatus.FAILED
    assert "410" in str(ended.last_error)


async def test_retry_after_is_honoured(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    endpoint.status, endpoint.headers = 429, {"Retry-After": "300"}
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)

    await deliver(engine)

    assert (await engine.alarms.get(alarm.id)).next_fire_at == clock.instant + 5 * MINUTE


async def test_a_crash_before_the_record_delivers_again_with_the_same_id(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    crashed, other = (Engine(database, buckets=settings.buckets) for _ in range(2))
    alarm = await set_one(other, endpoint)
    await clock.advance(MINUTE)
    await crashed.duties.deliveries.step()
    await endpoint.until(1)  # delivered, and its process is gone
    await asyncio.wait(list(crashed.duties.deliveries._in_flight))

    await deliver(other)
    assert len(endpoint.calls) == 1  # the lease holds
    await clock.advance(settings.alarm_lease)
    await deliver(other)

    first, again = endpoint.calls
    assert first.wake_id == again.wake_id
    assert [call.body["attempt"] for call in endpoint.calls] == [1, 2]
    assert (await other.alarms.get(alarm.id)).status is AlarmStatus.FIRED
    for engine in (crashed, other):
        engine.duties.deliveries.records.finished.clear()
        await engine.duties.deliveries.stop(0)


async def test_a_zombie_that_records_late_is_rejected(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    zombie, other = (Engine(database, buckets=settings.buckets) for _ in range(2))
    alarm = await set_one(other, endpoint)
    await clock.advance(MINUTE)
    await zombie.duties.deliveries.step()
    await asyncio.wait(list(zombie.duties.deliveries._in_flight))
    await clock.advance(settings.alarm_lease)
    endpoint.status = 500
    await deliver(other)  # which fails, and is on the ladder
    before = await other.alarms.get(alarm.id)

    await zombie.duties.deliveries.records.record()

    assert await other.alarms.get(alarm.id) == before
    assert (before.status, before.failure_count) == (AlarmStatus.ACTIVE, 1)
    outcomes = Counter(line.outcome for line in await log_of(other, alarm))
    assert outcomes == {DeliveryOutcome.LATE: 1, DeliveryOutcome.FAILED: 1}
    for engine in (zombie, other):
        await engine.duties.deliveries.stop(0)


async def test_one_that_is_cancelled_while_it_is_delivered_stays_cancelled(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)
    endpoint.gate.clear()
    await engine.duties.deliveries.step()
    await endpoint.until(1)
    assert (await engine.alarms.get(alarm.id)).is_ringing
    with pytest.raises(AlarmConflict, match="is being delivered right now"):
        await engine.alarms.fire(alarm.id)
    await engine.alarms.cancel(alarm.id)
    endpoint.gate.set()

    await deliver(engine)

    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.CANCELLED
    assert [line.outcome for line in await log_of(engine, alarm)] == [DeliveryOutcome.LATE]


async def test_one_that_is_paused_while_it_is_delivered_is_recorded_and_stays_paused(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    await clock.advance(MINUTE)
    endpoint.gate.clear()
    await engine.duties.deliveries.step()
    await endpoint.until(1)
    await engine.alarms.pause(alarm.id)
    endpoint.gate.set()
    await deliver(engine)
    await clock.advance(HOUR)

    await deliver(engine)

    now = await engine.alarms.get(alarm.id)
    assert (now.paused_at, now.last_fired_at) == (NOON + MINUTE, NOON + MINUTE)
    assert len(endpoint.calls) == 1


async def test_one_that_is_set_anew_while_it_is_delivered_fires_at_its_new_time(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint, name="n")
    await clock.advance(MINUTE)
    endpoint.gate.clear()
    await engine.duties.deliveries.step()
    await endpoint.until(1)
    await set_one(engine, endpoint, name="n", delay=HOUR)
    endpoint.gate.set()
    await deliver(engine)
    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.ACTIVE
    await clock.advance(HOUR)

    await deliver(engine)

    first, second = endpoint.calls
    assert first.wake_id != second.wake_id
    before, after = await log_of(engine, alarm)
    assert (before.outcome, before.note) == (DeliveryOutcome.DELIVERED, "it was set anew meanwhile")
    assert (after.outcome, after.note) == (DeliveryOutcome.DELIVERED, None)


async def test_a_paused_alarm_that_was_ready_is_not_delivered(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock, conn: Connection
) -> None:
    alarm = await set_one(engine, endpoint)
    await clock.advance(MINUTE)
    await engine.duties.deliveries._database.run(wakes_module._make_ready)
    await engine.alarms.pause(alarm.id)

    await deliver(engine)
    assert endpoint.calls == []

    await engine.alarms.resume(alarm.id)
    await deliver(engine)
    assert len(endpoint.calls) == 1


async def test_fire_now_wakes_at_once_and_a_timetable_goes_on(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint, cron="0 * * * *")

    await engine.alarms.fire(alarm.id)
    await deliver(engine)

    assert len(endpoint.calls) == 1
    assert (await engine.alarms.get(alarm.id)).next_fire_at == NOON + HOUR


async def test_a_failed_alarm_can_be_fired_once_more(engine: Engine, endpoint: Endpoint, clock: FrozenClock) -> None:
    endpoint.status = 500
    alarm = await set_one(engine, endpoint, max_failures=0)
    await clock.advance(MINUTE)
    await deliver(engine)
    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.FAILED
    endpoint.status = 200

    await engine.alarms.fire(alarm.id)
    await deliver(engine)

    assert (await engine.alarms.get(alarm.id)).status is AlarmStatus.FIRED


async def test_a_stop_records_what_was_delivered_and_gives_back_the_rest(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    async with open_endpoint() as slow:
        engine = Engine(database, buckets=settings.buckets)
        done, open_one = await set_one(engine, endpoint), await set_one(engine, slow)
        await clock.advance(MINUTE)
        slow.gate.clear()
        await engine.duties.deliveries.step()
        await endpoint.until(1)
        await slow.until(1)
        while not engine.duties.deliveries.records.finished:
            await asyncio.sleep(0.01)

        await engine.duties.deliveries.stop(0)

        assert (await engine.alarms.get(done.id)).status is AlarmStatus.FIRED
        given_back = await engine.alarms.get(open_one.id)
        assert (given_back.status, given_back.is_ringing, given_back.failure_count) == (AlarmStatus.ACTIVE, False, 0)
        slow.gate.set()
        other = Engine(database, buckets=settings.buckets)
        await deliver(other)
        assert (await other.alarms.get(open_one.id)).status is AlarmStatus.FIRED
        assert len({call.wake_id for call in slow.calls}) == 1
        await other.duties.deliveries.stop(0)


async def test_a_destination_that_hangs_keeps_nobody_waiting(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    database.settings = replace(settings, alarm_slots=20, alarm_slots_per_destination=5)
    engine = Engine(database, buckets=settings.buckets)
    async with open_endpoint() as hanging:
        hanging.gate.clear()
        for _ in range(40):
            await set_one(engine, hanging)
        await clock.advance(MINUTE)
        for _ in range(8):
            await set_one(engine, endpoint, delay=SECOND)
        await clock.advance(SECOND)

        while not await engine.duties.deliveries.step():
            pass
        await endpoint.until(5)

        assert len(hanging.calls) <= 5
        await engine.duties.deliveries.stop(0)


async def test_a_destination_that_is_down_is_left_alone_and_its_alarms_lose_no_try(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    endpoint.status = 503
    alarms = [await set_one(engine, endpoint) for _ in range(40)]
    await clock.advance(MINUTE)

    await deliver(engine)  # as many as its slots, of which the first may have ended while others were begun
    await deliver(engine)

    found = [await engine.alarms.get(alarm.id) for alarm in alarms]
    assert len(endpoint.calls) < 40
    failed = [alarm for alarm in found if alarm.failure_count == 1]
    deferred = [alarm for alarm in found if alarm.failure_count == 0]
    assert len(failed) == len(endpoint.calls) < 40
    assert all(str(alarm.last_error).startswith("deferred: http://127.0.0.1:") for alarm in deferred)
    assert all(alarm.status is AlarmStatus.ACTIVE and alarm.next_fire_at for alarm in found)


async def test_the_default_target_is_for_those_who_know_it(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    database.settings = replace(settings, alarm_target=endpoint.url, alarm_token="hush", alarm_networks="")
    knows = Engine(database, buckets=settings.buckets)
    database.settings = settings
    unaware = Engine(database, buckets=settings.buckets)
    await set_one(knows, endpoint, url=None)
    await clock.advance(MINUTE)

    await deliver(unaware)
    assert endpoint.calls == []
    await deliver(knows)

    [call] = endpoint.calls
    assert call.headers["authorization"] == "Bearer hush"
    for engine in (knows, unaware):
        await engine.duties.deliveries.stop(0)


async def test_a_bearer_is_for_the_default_target_only(
    database: Database, settings: Settings, endpoint: Endpoint, clock: FrozenClock
) -> None:
    database.settings = replace(settings, alarm_target=endpoint.url, alarm_token="hush")
    engine = Engine(database, buckets=settings.buckets)
    await set_one(engine, endpoint)
    await clock.advance(MINUTE)

    await deliver(engine)

    assert "authorization" not in endpoint.calls[0].headers
    await engine.duties.deliveries.stop(0)


def shared(turns: str, wanted: int, room: Mapping[str, int], **given: Any) -> dict[str, int]:
    """`xa ya` are the alarms of x and of y at a."""
    found = share([Turn(*each) for each in turns.split()], wanted, room.__getitem__, **given)
    return {turn.owner + turn.destination: quota for turn, quota in found.items()}


def test_slots_are_given_out_by_turns() -> None:
    room = {"a": 100, "b": 2, "c": 0, "d": 100}

    assert shared("xa xb xc xd", 12, room) == {"xa": 5, "xb": 2, "xd": 5}
    assert shared("xa xb xc xd", 2, room) == {"xa": 1, "xb": 1}
    assert shared("xa xb xc xd", 500, room) == {"xa": 100, "xb": 2, "xd": 100}
    assert shared("", 5, room) == {}


def test_owners_come_before_destinations() -> None:
    room = dict.fromkeys("abcd", 100)

    assert shared("xa xb xc yd", 6, room) == {"xa": 1, "xb": 1, "xc": 1, "yd": 3}
    assert shared("xa xb xc yd", 500, room) == {"xa": 100, "xb": 100, "xc": 100, "yd": 100}


def test_the_owner_with_fewer_in_flight_is_first() -> None:
    room = dict.fromkeys("ab", 100)

    assert shared("xa yb", 10, room, in_flight=Counter(x=8)) == {"xa": 1, "yb": 9}
    assert shared("xa yb", 3, room, in_flight=Counter(x=8)) == {"yb": 3}
    assert shared("xa", 10, room, in_flight=Counter(x=8, y=1)) == {"xa": 10}


def test_owners_share_the_slots_of_one_destination() -> None:
    assert shared("xa ya", 10, {"a": 4}) == {"xa": 2, "ya": 2}


def test_some_slots_are_kept_for_destinations_and_some_for_owners_with_nothing_in_flight() -> None:
    room = dict.fromkeys("abcdefgh", 100)
    given: dict[str, Any] = {"reserved": 4, "for_others": 2, "is_busy": "a".__eq__, "in_flight": Counter(x=1)}

    assert shared("xa", 10, room, **given) == {"xa": 6}
    assert shared("xa xb xc xd", 4, room, **given) == {"xb": 1, "xc": 1}
    assert shared("xa xb xc xd yh", 4, room, **given) == {"yh": 1, "xb": 1}
    assert shared("xa xb xc xd yh", 1, room, **given) == {"yh": 1}


async def test_an_owner_with_many_destinations_that_hang_keeps_no_other_waiting(
    database: Database,
    settings: Settings,
    endpoint: Endpoint,
    clock: FrozenClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wake_turns, "RUSH", 0)
    database.settings = replace(settings, alarm_slots=16)
    engine = Engine(database, buckets=settings.buckets)
    async with a_server_that_never_answers() as port:
        for number in range(1, 41):
            await set_one(engine, endpoint, owner="evil", url=f"http://127.0.0.{number}:{port}/")
        await clock.advance(MINUTE)
        while not await engine.duties.deliveries.step():
            pass
        assert len(engine.duties.deliveries._in_flight) == 14  # all but those that are kept for others

        await set_one(engine, endpoint, delay=SECOND)
        await clock.advance(SECOND)
        await engine.duties.deliveries.ready()
        await engine.duties.deliveries.step()
        await endpoint.until(1)

        await engine.duties.deliveries.stop(0)


async def test_one_owner_with_many_destinations_has_all_of_them_in_their_turn(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a look finds only a part of them, and another owner is there."""
    monkeypatch.setattr(wake_turns, "TURNS", 4)
    monkeypatch.setattr(wake_turns, "RUSH", 0)
    began: list[tuple[str, str]] = []
    monkeypatch.setattr(
        engine.duties.deliveries, "_start", lambda ringing, _: began.append((ringing.owner, ringing.destination))
    )
    for port in range(1, 12):
        await engine.alarms.set(NewAlarm(owner="many", url=f"http://127.0.0.1:{port}/", delay=MINUTE))
    await engine.alarms.set(NewAlarm(owner="one", url="http://127.0.0.1:1/", delay=MINUTE))
    await clock.advance(MINUTE)

    for _ in range(10):
        await engine.duties.deliveries.step()

    assert len(began) == len(set(began)) == 12
    assert ("one", "http://127.0.0.1:1") in began[:3]


async def test_every_destination_has_its_turn(
    database: Database, settings: Settings, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake_turns, "TURNS", 3)
    monkeypatch.setattr(wake_turns, "RUSH", 0)
    monkeypatch.setattr(wakes_module, "LANES", 1)
    database.settings = replace(settings, alarm_batch=2)
    engine = Engine(database, buckets=settings.buckets)
    began: list[str] = []
    monkeypatch.setattr(engine.duties.deliveries, "_start", lambda ringing, _: began.append(ringing.destination))
    for port in range(1, 8):
        for _ in range(2):
            url = f"http://127.0.0.1:{port}/"
            await engine.alarms.set(NewAlarm(url=url, delay=MINUTE))
    await clock.advance(MINUTE)

    for _ in range(8):
        await engine.duties.deliveries.step()

    assert len(set(began[:10])) == 7  # before anyone has had two
    assert len(began) == 14
    await engine.duties.deliveries.stop(0)


async def test_what_came_of_wakes_and_how_late_they_began_is_measured(
    engine: Engine, endpoint: Endpoint, clock: FrozenClock
) -> None:
    for n in range(3):
        await set_one(engine, endpoint, label=f"tea {n}")
    await clock.advance(MINUTE + 2 * SECOND)
    await deliver(engine)
    endpoint.status = 500
    await set_one(engine, endpoint, max_failures=1)
    await clock.advance(MINUTE)
    await deliver(engine)
    await clock.advance(30 * SECOND)  # its only retry
    await deliver(engine)

    measured = engine.instruments
    assert measured.wake_outcomes == {"delivered": 3, "failed": 1, "given_up": 1}
    assert (sum(measured.wakes.counts), measured.wakes.seconds) == (5, 6.0)
