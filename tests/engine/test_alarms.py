"""Can alarms be set, changed and ended, and is what was asked for checked when it is written?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import DEFAULT_OWNER, Alarm, AlarmFilter, AlarmStatus, NewAlarm
from pulse.model.errors import (
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
)
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from pulse.testing import database as scratch
from tests.clock import FrozenClock

NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday, half a minute past
HOUR = timedelta(hours=1)
URL = "https://example.com/hook"


@pytest.fixture(autouse=True)
async def at_noon(clock: FrozenClock) -> None:
    clock.instant = NOON
    await clock.freeze()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Where names are looked up there is no network: addresses need none."""
    return replace(settings, alarm_networks="127.0.0.0/8", alarm_target="http://127.0.0.1:9/wake")


def an_alarm(**given: Any) -> NewAlarm:
    if not {"delay", "fire_at", "cron"} & given.keys():
        given["delay"] = HOUR
    return NewAlarm(**{"owner": "ada", "url": "http://127.0.0.1:9/hook"} | given)


async def set_one(engine: Engine, **given: Any) -> Alarm:
    return (await engine.alarms.set(an_alarm(**given))).alarm


async def count(engine: Engine) -> int:
    return len((await engine.alarms.list_page()).alarms)


async def test_a_delay_counts_from_database_time(engine: Engine) -> None:
    alarm = await set_one(engine, delay=timedelta(seconds=600), label="tea", payload='{"cup": 1}')

    assert (alarm.status, alarm.kind, alarm.label) == (AlarmStatus.ACTIVE, "once", "tea")
    assert alarm.next_fire_at == alarm.occurrence == NOON + timedelta(seconds=600)
    assert (alarm.failure_count, alarm.max_failures, alarm.last_error, alarm.last_fired_at) == (0, 5, None, None)
    assert await engine.alarms.get(alarm.id) == alarm


async def test_an_instant_is_kept_as_it_is(engine: Engine) -> None:
    alarm = await set_one(engine, fire_at=datetime.fromisoformat("2026-03-02T20:30:00+02:00"))

    assert alarm.next_fire_at == datetime(2026, 3, 2, 18, 30, tzinfo=UTC)


async def test_a_timetable_begins_with_its_first_occurrence_in_its_zone(engine: Engine) -> None:
    alarm = await set_one(engine, cron="0 9 * * *", tz="America/New_York")

    assert (alarm.kind, alarm.tz) == ("cron", "America/New_York")
    assert alarm.next_fire_at == datetime(2026, 3, 2, 14, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delay": HOUR, "fire_at": NOON + HOUR}, "once alarm takes either delay_seconds or fire_at, not both"),
        ({"delay": None}, "once alarm requires delay_seconds or fire_at"),
        ({"delay": timedelta()}, "once alarm requires delay_seconds or fire_at"),
        ({"fire_at": NOON}, "fire_at 2026-03-02T12:00:30+00:00 is not in the future"),
        ({"fire_at": NOON - HOUR}, "fire_at 2026-03-02T11:00:30+00:00 is not in the future"),
        ({"cron": ""}, "empty cron expression"),
        ({"cron": "61 * * * *"}, "invalid cron expression"),
        ({"cron": "0 0 30 2 *"}, "yields no future time"),
        ({"cron": "* * * * *", "tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"cron": "* * * * *", "delay": HOUR}, "cron alarm takes cron_expr"),
    ],
)
async def test_times_that_cannot_be_are_refused_and_change_nothing(
    engine: Engine, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidAlarm, match=message.replace("(", r"\(").replace("+", r"\+")):
        await set_one(engine, **given)

    assert await count(engine) == 0


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"url": "https://user:secret@example.com/"}, InvalidTarget),
        ({"url": "ftp://example.com/"}, InvalidTarget),
        ({"url": "https://10.0.0.1/"}, InvalidTarget),
        ({"url": "https://[::ffff:10.0.0.1]/"}, InvalidTarget),
        ({"url": "https://example.com:22/"}, InvalidTarget),
        ({"headers": {"x-a": "1\r\nx-b: 2"}}, InvalidOption),
        ({"headers": {"Content-Length": "1"}}, InvalidOption),
        ({"payload": '"' + "x" * (64 << 10) + '"'}, InvalidPayload),
        ({"payload": "{"}, InvalidPayload),
        ({"owner": ""}, InvalidName),
        ({"name": str(uuid4())}, InvalidName),
        ({"max_failures": -1}, InvalidOption),
        ({"max_failures": 101}, InvalidOption),
        ({"label": "x" * 501}, InvalidOption),
        ({"label": "\x00"}, InvalidOption),
        ({"idempotency_key": ""}, InvalidOption),
        ({"delay": timedelta(days=4_000)}, InvalidOption),
        ({"delay": timedelta(seconds=-1)}, InvalidInput),
    ],
)
async def test_what_cannot_be_delivered_is_refused_and_changes_nothing(
    engine: Engine, given: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await set_one(engine, **given)

    assert await count(engine) == 0


async def test_without_a_default_target_a_url_is_needed(database: Database, settings: Settings) -> None:
    database.settings = replace(settings, alarm_target=None)
    engine = Engine(database, buckets=settings.buckets)

    with pytest.raises(InvalidAlarm, match="PULSE_ALARM_TARGET"):
        await set_one(engine, url=None)


async def test_the_same_key_and_body_answer_with_the_first_alarm(engine: Engine, clock: FrozenClock) -> None:
    first = await engine.alarms.set(an_alarm(fire_at=NOON + HOUR, idempotency_key="k", payload='{"a": 1, "b": 2}'))
    await clock.advance(2 * HOUR)  # its time is past, which changes nothing

    again = await engine.alarms.set(an_alarm(fire_at=NOON + HOUR, idempotency_key="k", payload='{"b":2,"a":1}'))

    assert (first.is_new, again.is_new) == (True, False)
    assert again.alarm == first.alarm


async def test_another_body_under_the_same_key_is_a_conflict(engine: Engine) -> None:
    await set_one(engine, idempotency_key="k")

    with pytest.raises(AlarmExists, match="'k'"):
        await set_one(engine, idempotency_key="k", label="other")

    assert await count(engine) == 1


async def test_a_key_is_its_owners(engine: Engine) -> None:
    ada, bob = [await set_one(engine, idempotency_key="k", owner=owner) for owner in ("ada", "bob")]

    assert ada.id != bob.id


async def test_an_alarm_with_a_name_replaces_the_one_before(engine: Engine) -> None:
    first = await set_one(engine, name="trial ends", payload="1")

    second = await set_one(engine, name="trial ends", delay=2 * HOUR, payload="2")

    assert second.id == first.id
    assert (second.payload, second.revision, second.next_fire_at) == ("2", 2, NOON + 2 * HOUR)
    assert await count(engine) == 1
    assert (await set_one(engine, name="trial ends", owner="bob")).id != first.id


async def test_setting_the_same_by_name_changes_nothing(engine: Engine) -> None:
    first = await engine.alarms.set(an_alarm(name="n", fire_at=NOON + HOUR))
    again = await engine.alarms.set(an_alarm(name="n", fire_at=NOON + HOUR))

    assert (again.is_new, again.alarm) == (False, first.alarm)


async def test_a_cancelled_alarm_is_set_anew_by_its_name(engine: Engine) -> None:
    await set_one(engine, name="n")
    await engine.alarms.cancel("n", owner="ada")

    again = await set_one(engine, name="n")

    assert (again.status, again.revision) == (AlarmStatus.ACTIVE, 2)


async def test_cancelling_is_final_and_can_be_repeated(engine: Engine) -> None:
    alarm = await set_one(engine)

    cancelled = await engine.alarms.cancel(alarm.id)

    assert (cancelled.status, cancelled.next_fire_at) == (AlarmStatus.CANCELLED, None)
    assert await engine.alarms.cancel(alarm.id) == cancelled
    with pytest.raises(AlarmConflict, match="was cancelled"):
        await engine.alarms.fire(alarm.id)
    with pytest.raises(AlarmConflict, match="only an active alarm"):
        await engine.alarms.pause(alarm.id)


async def test_someone_elses_alarm_is_not_found(engine: Engine) -> None:
    alarm = await set_one(engine, name="hers")

    for deed in (
        engine.alarms.get,
        engine.alarms.cancel,
        engine.alarms.pause,
        engine.alarms.resume,
        engine.alarms.fire,
    ):
        for key in (alarm.id, str(alarm.id), "hers"):
            with pytest.raises(AlarmNotFound):
                await deed(key, owner="bob")
    with pytest.raises(AlarmNotFound):
        await engine.alarms.deliveries(alarm.id, owner="bob")
    assert await engine.alarms.get("hers", owner="ada") == alarm
    with pytest.raises(AlarmNotFound):
        await engine.alarms.get("hers")


async def test_without_an_owner_a_name_is_that_of_those_who_need_not_say_who_they_are(engine: Engine) -> None:
    made = (await engine.alarms.set(NewAlarm(name="n", delay=HOUR))).alarm

    assert made.owner == DEFAULT_OWNER
    assert await engine.alarms.get("n") == await engine.alarms.get("n", owner=DEFAULT_OWNER) == made


# --- calls whose answer is lost


@pytest.mark.parametrize("name", [None, "n"])
@pytest.mark.parametrize("when", [{"delay": HOUR}, {"fire_at": NOON + HOUR}, {"cron": "@hourly"}])
async def test_a_call_that_is_repeated_sets_one(
    engine: Engine, clock: FrozenClock, name: str | None, when: Any
) -> None:
    """Whether it makes an alarm or replaces one; even after its time has come."""
    if name:
        await set_one(engine, name=name)
    call, new = uuid4(), an_alarm(name=name, payload="[1]", **when)
    first = await engine.alarms.set(new, own_id=call)
    await clock.advance(2 * HOUR)

    again = await engine.alarms.set(new, own_id=call)

    assert again == first
    assert again.is_new
    assert await count(engine) == 1
    assert first.alarm.revision == (2 if name else 1)
    assert (first.alarm.id == call) is (name is None)


async def test_another_call_after_it_replaces_it_again(engine: Engine, clock: FrozenClock) -> None:
    new = an_alarm(name="n", fire_at=NOON + HOUR)
    await engine.alarms.set(new, own_id=uuid4())
    await clock.advance(2 * HOUR)

    with pytest.raises(InvalidAlarm, match="not in the future"):
        await engine.alarms.set(new, own_id=uuid4())


async def test_the_id_of_someone_elses_alarm_shows_nothing_of_it(engine: Engine) -> None:
    hers = await set_one(engine, payload='"secret"')

    with pytest.raises(InvalidOption, match="must be new for each alarm"):
        await engine.alarms.set(an_alarm(owner="bob"), own_id=hers.id)

    assert await count(engine) == 1


async def test_a_paused_timetable_goes_on_with_the_future_only(engine: Engine, clock: FrozenClock) -> None:
    alarm = await set_one(engine, cron="* * * * *")
    paused = await engine.alarms.pause(alarm.id)
    await clock.advance(HOUR)

    resumed = await engine.alarms.resume(alarm.id)

    assert (paused.paused_at, resumed.paused_at) == (NOON, None)
    assert resumed.next_fire_at == NOON + HOUR + timedelta(seconds=30)


async def test_a_paused_once_alarm_keeps_its_instant(engine: Engine, clock: FrozenClock) -> None:
    alarm = await set_one(engine)
    await engine.alarms.pause(alarm.id)
    await clock.advance(2 * HOUR)

    assert (await engine.alarms.resume(alarm.id)).next_fire_at == NOON + HOUR


async def test_fire_brings_a_once_alarm_forward_and_keeps_its_occurrence(engine: Engine) -> None:
    alarm = await set_one(engine)

    fired = await engine.alarms.fire(alarm.id)

    assert (fired.next_fire_at, fired.occurrence) == (NOON, NOON + HOUR)


async def test_a_persons_pause_is_not_undone_by_firing(engine: Engine) -> None:
    alarm = await engine.alarms.pause((await set_one(engine)).id)

    with pytest.raises(AlarmConflict, match="is paused: resume it first"):
        await engine.alarms.fire(alarm.id)

    assert await engine.alarms.get(alarm.id) == alarm


async def test_alarms_are_listed_by_owner_newest_first_in_pages(engine: Engine) -> None:
    mine = [await set_one(engine, label=str(n)) for n in range(5)]
    await set_one(engine, owner="bob")

    first = await engine.alarms.list_page(AlarmFilter(owner="ada"), limit=3)
    rest = await engine.alarms.list_page(AlarmFilter(owner="ada"), limit=3, after=first.next)

    assert [alarm.label for alarm in first.alarms + rest.alarms] == ["4", "3", "2", "1", "0"]
    assert rest.next is None
    assert [a.id for a in (await engine.alarms.list_page(AlarmFilter(label="2"))).alarms] == [mine[2].id]
    await engine.alarms.cancel(mine[0].id)
    assert len((await engine.alarms.list_page(AlarmFilter(status=AlarmStatus.ACTIVE, owner="ada"))).alarms) == 4
    with pytest.raises(InvalidFilter):
        await engine.alarms.list_page(after="x")
    with pytest.raises(InvalidFilter):
        await engine.alarms.deliveries(mine[0].id, after="x")


async def test_what_headers_say_is_not_shown(engine: Engine) -> None:
    alarm = await set_one(engine, headers={"Authorization": "Bearer x", "x-auth-token": "t"})

    assert alarm.headers == {"Authorization": "…", "x-auth-token": "…"}
    assert (await engine.alarms.get(alarm.id)).headers == alarm.headers


async def test_headers_that_come_back_as_they_are_shown_are_kept_for_the_same_url(
    engine: Engine, conn: Connection
) -> None:
    first = await set_one(engine, name="tea", headers={"x-key": "one", "x-b": "b"})

    again = await set_one(engine, name="tea", headers={**first.headers, "x-b": "c"}, label="new")

    assert (again.id, again.label) == (first.id, "new")
    [row] = await conn.fetch("select headers from pulse.alarms where id = $1", first.id)
    assert msgspec.json.decode(row["headers"]) == {"x-key": "one", "x-b": "c"}


@pytest.mark.parametrize(
    "other",
    [{"url": "http://127.0.0.1:9/b"}, {"name": "other"}, {"name": None}, {"owner": "bob"}, {"headers": {"y": "…"}}],
)
async def test_hidden_headers_go_nowhere_else(engine: Engine, other: dict[str, Any]) -> None:
    given: dict[str, Any] = {"name": "tea", "headers": {"x-key": "one"}}
    first = await set_one(engine, **given)

    with pytest.raises(InvalidAlarm, match="must have its value"):
        await set_one(engine, **given | {"headers": first.headers} | other)


async def test_a_schema_that_is_emptied_between_tests_can_still_sign(engine: Engine, settings: Settings) -> None:
    async with await Database.connect(settings) as database:
        await database.run(lambda conn: scratch.empty(conn, schema=settings.schema))

    assert len(await engine.alarms.secrets()) == 1


async def test_a_new_secret_signs_beside_the_old_one_for_a_while(engine: Engine, clock: FrozenClock) -> None:
    [old] = await engine.alarms.secrets()
    new, ending = await engine.alarms.rotate_secret(overlap=HOUR)

    assert ending.secret == old.secret
    assert (new.expires_at, ending.expires_at) == (None, NOON + HOUR)
    await clock.advance(HOUR)
    assert [each.secret for each in await engine.alarms.secrets()] == [new.secret]


async def test_a_lost_answer_does_not_set_two(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    own = UUID("01990000-0000-7000-8000-000000000000")
    monkeypatch.setattr(engine.alarms._mint, "ids", lambda _: [own])

    first, again = await set_one(engine), await set_one(engine)

    assert first.id == again.id == own
    assert await count(engine) == 1


@pytest.fixture(autouse=True)
async def one_secret(settings: Settings) -> AsyncIterator[None]:
    """As the migration leaves them."""
    yield
    async with await Database.connect(settings) as database:
        await database.run(lambda conn: conn.execute("delete from pulse.wake_secrets where number > 1"))
        await database.run(lambda conn: conn.execute("update pulse.wake_secrets set expires_at = null"))
