"""Document 003, about the engine that computes when alarms fire: once, after a delay or at an instant, or by a cron
expression in a time zone; and what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import AlarmStatus, NewAlarm
from pulse.model.errors import InvalidAlarm
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.endpoint import Endpoint
from tests.seeds.doors import URL, Doors, open_doors
from tests.seeds.helpers import DAY, HOUR, MINUTE, NOON, deliver, set_one
from tests.seeds.sayings import says

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def doors(settings: Settings, noon: FrozenClock) -> AsyncIterator[Doors]:
    async with open_doors(settings) as doors:
        yield doors


async def first_fire(engine: Engine, cron: str, tz: str = "UTC") -> datetime:
    """When an alarm that is set now fires first, as its row has it."""
    alarm = (await engine.alarms.set(NewAlarm(cron=cron, tz=tz, url=URL))).alarm
    assert alarm.next_fire_at is not None
    return alarm.next_fire_at


async def next_fires(engine: Engine, clock: FrozenClock, start: datetime, cron: str, tz: str, count: int) -> list[str]:
    """The first instants after `start`, each found from the one before."""
    clock.instant, found = start, []
    for _ in range(count):
        await clock.freeze()
        clock.instant = await first_fire(engine, cron, tz)
        found.append(clock.instant.isoformat().replace("+00:00", "Z"))
    return found


def in_own_words(text: str) -> set[str]:
    """Python calls delay_seconds `delay`."""
    return {text, text.replace("delay_seconds", "delay")}


def all_say(found: dict[str, str], text: str, python: str | None = None) -> None:
    """Check that every door says it in these words, and Python in its own, where it has a sentence for that."""
    own = found.pop("python", text)
    assert found, "somebody was asked"
    assert {door: said for door, said in found.items() if text not in said} == {}
    assert any(words in own for words in ([python] if python else in_own_words(text))), own


# --- the two kinds


@says("003", 24, "“In 10 minutes” is a delay in seconds: the instant is now and the delay, in UTC.")
async def test_a_delay_counts_from_now(doors: Doors) -> None:
    assert set((await doors.set(delay_seconds=600)).values()) == {NOON + 10 * MINUTE}
    written = await doors.http.done("POST", "/v1/alarms", {"delay_seconds": 600, "url": URL}, status=201)
    assert written["next_fire_at"] == "2026-03-02T12:10:00Z"


@says("003", 25, "“At 3 in the afternoon” is an absolute instant, as RFC 3339 writes it.")
async def test_an_instant_is_taken_as_it_is(doors: Doors) -> None:
    found = await doors.set(fire_at="2026-03-02T15:00:00+02:00")

    assert set(found.values()) == {datetime(2026, 3, 2, 13, tzinfo=UTC)}
    assert len(found) == 5


@says("003", 26, "“Every day at 9” is a cron expression.")
async def test_every_day_at_nine_is_a_cron_expression(doors: Doors) -> None:
    assert set((await doors.set(cron_expr="0 9 * * *")).values()) == {datetime(2026, 3, 3, 9, tzinfo=UTC)}


# --- what is refused of once alarms


@says("003", 27, "Both of them: “once alarm takes either delay_seconds or fire_at, not both”.")
async def test_a_delay_and_an_instant_together_are_refused(doors: Doors) -> None:
    found = await doors.refusals(delay_seconds=60, fire_at="2026-03-02T15:00:00Z")

    assert "--delay and --fire-at exclude each other" in found.pop("cli"), "which speaks of its own flags"
    all_say(
        found,
        "once alarm takes either delay_seconds or fire_at, not both",
        python="when? give one of delay, fire_at and cron, not delay and fire_at",
    )


@says("003", 28, "Neither of them: “once alarm requires delay_seconds or fire_at”.")
async def test_neither_a_delay_nor_an_instant_is_refused(doors: Doors) -> None:
    found = await doors.refusals()

    assert "give --delay 10m, --fire-at" in found.pop("cli"), "which speaks of its own flags"
    all_say(found, "once alarm requires delay_seconds or fire_at", python="when? give one of delay, fire_at and cron")
    zero = await doors.refusals("cli", delay_seconds=0)
    all_say(zero, "once alarm requires delay_seconds or fire_at")


@says("003", 30, "An instant that is not strictly in the future: “fire_at … is not in the future”.")
async def test_an_instant_that_is_not_in_the_future_is_refused(doors: Doors) -> None:
    for fire_at in ("2026-03-02T11:59:59+00:00", "2026-03-02T12:00:00+00:00"):
        all_say(await doors.refusals(fire_at=fire_at), f"fire_at {fire_at} is not in the future")


NOT_RFC_3339 = """\
tomorrow | 2030-01-01 | 2030-01-01T09:00Z | 2030-01-01T09:00:00 | 2030-01-01T09:00:00+0200 | 2030-W01-1T09:00:00Z
2030-01-01T24:00:00Z | 2030-01-01T09:00:60Z | 2030-13-01T09:00:00Z | 2030-02-30T09:00:00Z | 20300101T090000Z
1893456000 | 2030-01-01T09:00:00Z  | 2030-01-01T09:00:00.Z | 2030-01-01T9:00:00Z | ٢٠٣٠-01-01T09:00:00Z
""".replace("\n", " | ").split(" | ")[:-1]


@says("003", 31, "RFC 3339 is read strictly: seconds and an offset, and dates and times that exist.")
async def test_what_is_not_rfc_3339_is_refused(doors: Doors) -> None:
    assert len(NOT_RFC_3339) == 16

    for text in NOT_RFC_3339:
        status, code, message = await doors.http.refused("POST", "/v1/alarms", {"url": URL, "fire_at": text})
        assert (status, code) == (400, "invalid_alarm")
        assert message.startswith(f"invalid fire_at {text!r} (want RFC3339)")
    await doors.http.done("POST", "/v1/alarms", {"url": URL, "fire_at": "2030-01-01T09:00:00.25-03:30"}, status=201)


# --- cron


@says("003", 32, "The next instant of a cron expression is strictly after now, and is told in UTC.")
async def test_the_next_instant_is_strictly_after_now(engine: Engine, noon: FrozenClock) -> None:
    found = await first_fire(engine, "0 12 * * *")

    assert (found, found.utcoffset()) == (NOON + DAY, timedelta())
    in_berlin = await first_fire(engine, "30 13 * * *", "Europe/Berlin")
    assert (in_berlin, in_berlin.utcoffset()) == (NOON + 30 * MINUTE, timedelta())


@says("003", 33, "The six expressions of its table mean what the table says.")
async def test_the_six_expressions_of_the_table(engine: Engine, clock: FrozenClock) -> None:
    clock.instant = datetime(2026, 3, 6, 9, 7, tzinfo=UTC)  # a Friday
    await clock.freeze()

    assert await first_fire(engine, "0 9 * * *") == datetime(2026, 3, 7, 9, tzinfo=UTC)
    assert await first_fire(engine, "*/15 * * * *") == datetime(2026, 3, 6, 9, 15, tzinfo=UTC)
    assert await first_fire(engine, "0 9 * * 1-5") == datetime(2026, 3, 9, 9, tzinfo=UTC)
    assert await first_fire(engine, "@hourly") == datetime(2026, 3, 6, 10, tzinfo=UTC)
    assert await first_fire(engine, "@daily") == datetime(2026, 3, 7, tzinfo=UTC)
    assert await first_fire(engine, "@every 10m") == datetime(2026, 3, 6, 9, 17, tzinfo=UTC)


@says("003", 34, "The descriptors from @yearly to @hourly are known.")
async def test_the_descriptors_are_known(engine: Engine, noon: FrozenClock) -> None:
    next_year, tomorrow = datetime(2027, 1, 1, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
    wanted = {
        "@yearly": next_year,
        "@annually": next_year,
        "@monthly": datetime(2026, 4, 1, tzinfo=UTC),
        "@weekly": datetime(2026, 3, 8, tzinfo=UTC),  # a Sunday
        "@daily": tomorrow,
        "@midnight": tomorrow,
        "@hourly": NOON + HOUR,
    }

    assert {expression: await first_fire(engine, expression) for expression in wanted} == wanted


@says("003", 35, "@every 10m is every ten minutes, from when it was set.")
async def test_every_ten_minutes_goes_on_from_when_it_was_set(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock
) -> None:
    alarm = await set_one(engine, endpoint, cron="@every 10m")
    await noon.advance(10 * MINUTE + timedelta(seconds=7))  # a little late, which must not add up

    await deliver(engine)

    assert (await engine.alarms.get(alarm.id)).next_fire_at == NOON + 20 * MINUTE


@says("003", 36, "09:00 in New York on 1 January is 14:00 in UTC.")
async def test_nine_in_new_york_is_fourteen_in_utc(doors: Doors, clock: FrozenClock) -> None:
    clock.instant = NEW_YEAR
    await clock.freeze()

    found = await doors.set(cron_expr="0 9 * * *", tz="America/New_York")

    assert set(found.values()) == {datetime(2026, 1, 1, 14, tzinfo=UTC)}


@says("003", 37, "An empty time zone is UTC.")
async def test_an_empty_zone_is_utc(doors: Doors) -> None:
    found = await doors.set(cron_expr="0 9 * * *", tz="")

    assert set(found.values()) == {datetime(2026, 3, 3, 9, tzinfo=UTC)}


@says("003", 38, "A time zone that does not exist is an error.")
async def test_an_unknown_zone_is_refused(doors: Doors) -> None:
    all_say(await doors.refusals(cron_expr="0 9 * * *", tz="Mars/Olympus"), "unknown time zone 'Mars/Olympus': write")


@says("003", 39, "An empty expression: “empty cron expression”.")
async def test_an_empty_expression_is_refused(doors: Doors) -> None:
    all_say(await doors.refusals("grpc", "mcp", cron_expr=""), "empty cron expression")
    unset = await doors.refusals("http", "cli", "python", cron_expr="")  # to these, what is empty was not given
    all_say(unset, "once alarm requires delay_seconds or fire_at")


@says("003", 40, "An expression that cannot be read: “invalid cron expression …”.")
async def test_an_unreadable_expression_is_refused(doors: Doors) -> None:
    all_say(await doors.refusals(cron_expr="61 * * * *"), "invalid cron expression '61 * * * *': minute")


@says("003", 41, "An expression that never comes: “cron … yields no future time”.")
async def test_an_expression_that_never_comes_is_refused(doors: Doors) -> None:
    all_say(await doors.refusals(cron_expr="0 0 30 2 *"), "cron '0 0 30 2 *' yields no future time")


# --- when it is computed


@says("003", 42, "Everything is checked when an alarm is created, and its next instant is stored in the row.")
async def test_an_alarm_is_checked_when_it_is_set_and_its_instant_is_stored(
    engine: Engine, noon: FrozenClock, conn: Connection
) -> None:
    for cron, tz in [("61 * * * *", "UTC"), ("0 0 30 2 *", "UTC"), ("@daily", "Mars/Olympus"), ("", "UTC")]:
        with pytest.raises(InvalidAlarm):
            await first_fire(engine, cron, tz)
    await first_fire(engine, "0 9 * * *")

    rows = await conn.fetch("select next_fire_at from pulse.alarms")

    assert [row["next_fire_at"] for row in rows] == [datetime(2026, 3, 3, 9, tzinfo=UTC)]


@says(
    "003",
    43,
    "A cron alarm is computed anew after each fire; one that can no longer be read is retired, not wedged.",
    verdict="deviates",
    decision="0028",
    because="retired as `failed` with the reason, and not as `fired`: somebody has to know.",
)
async def test_an_expression_that_can_no_longer_be_read_is_retired_with_its_reason(
    engine: Engine, endpoint: Endpoint, noon: FrozenClock, conn: Connection
) -> None:
    alarm = await set_one(engine, endpoint, cron="* * * * *")
    neighbour = await set_one(engine, endpoint, cron="* * * * *")
    await conn.fetch("update pulse.alarms set tz = 'Atlantis/Center' where id = $1", alarm.id)
    for _ in range(3):
        await noon.advance(MINUTE)
        await deliver(engine)

    ended = await engine.alarms.get(alarm.id)
    assert (ended.status, ended.next_fire_at, ended.last_fired_at) == (AlarmStatus.FAILED, None, NOON + MINUTE)
    assert "Atlantis/Center" in str(ended.last_error)
    assert (await engine.alarms.get(neighbour.id)).last_fired_at == NOON + 3 * MINUTE
    assert len(endpoint.calls) == 4


@says("003", 44, "Grammar and the rule of days are those of robfig/cron.")
async def test_grammar_and_days_are_robfigs(engine: Engine, clock: FrozenClock) -> None:
    async def days(cron: str, count: int = 3) -> list[str]:
        return [each[5:16] for each in await next_fires(engine, clock, NEW_YEAR, cron, "UTC", count)]

    assert await days("0 0 13 * 5") == ["01-02T00:00", "01-09T00:00", "01-13T00:00"], "a 13th, or a Friday"
    assert await days("0 0 13 * *") == ["01-13T00:00", "02-13T00:00", "03-13T00:00"]
    assert await days("0 0 */10 * 5", 2) == ["01-02T00:00", "01-09T00:00"], "or: a step clears the star"
    assert await days("0 0 ? FEB mon") == ["02-02T00:00", "02-09T00:00", "02-16T00:00"]
    assert await days("5/20 6-7 * * *", 4) == ["01-01T06:05", "01-01T06:25", "01-01T06:45", "01-01T07:05"]
    assert await days("CRON_TZ=Europe/Berlin 0,30 1 * * *", 2) == ["01-01T00:30", "01-02T00:00"]
    for refused in ("* * * *", "0 0 * * 7", "@fortnightly", "60 * * * *", "5-1 * * * *"):
        with pytest.raises(InvalidAlarm, match="invalid cron expression"):
            await first_fire(engine, refused)


@says(
    "003",
    45,
    "At clock changes it does what robfig/cron does: 02:30 is left out in spring and 01:30 comes twice in autumn.",
    verdict="deviates",
    decision="0024",
    because="a fixed local time happens exactly once.",
)
async def test_at_clock_changes_a_fixed_time_happens_once(engine: Engine, clock: FrozenClock) -> None:
    spring, autumn = datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 10, 31, 12, tzinfo=UTC)

    assert await next_fires(engine, clock, spring, "30 2 * * *", "America/New_York", 2) == [
        "2026-03-08T07:00:00Z",  # there is no 02:30: at the change
        "2026-03-09T06:30:00Z",
    ]
    assert await next_fires(engine, clock, autumn, "30 1 * * *", "America/New_York", 2) == [
        "2026-11-01T05:30:00Z",
        "2026-11-02T06:30:00Z",
    ]


# --- as it is from this release on


@says("003", 29, "An instant that is not RFC 3339: “invalid fire_at … (want RFC3339)”.")
async def test_an_instant_that_cannot_be_read_is_refused_alike_by_every_door(doors: Doors) -> None:
    for text in ("tomorrow", "2030-01-01T09:00:00"):
        found = await doors.refusals("grpc", fire_at=text)  # where an instant is not a text
        all_say(found, f"invalid fire_at {text!r} (want RFC3339)")
