"""Is everything found that is looked for, page by page, however little of it is looked at for one page?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse.engine import list_pages as searches
from pulse.engine.engine import Engine
from pulse.model.alarms import NewAlarm
from pulse.model.errors import InvalidFilter
from pulse.model.list_filters import AlarmSearch, AlarmState, ScheduleSearch, ScheduleState
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.factories import a_new_job

NAMES = ["a", "a!", "a/1", "a/2", "a/É", "b", "\U0010ffff"]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


async def make(engine: Engine, name: str, **given: Any) -> None:
    new = NewSchedule(name=name, job=a_new_job(**given), every=timedelta(hours=1))
    await engine.schedules.create(new)


async def found_schedules(engine: Engine, **wanted: Any) -> list[list[str]]:
    """The names, page by page."""
    pages, after = [], None
    while True:
        page = await engine.schedules.search(ScheduleSearch(**wanted), after=after, limit=3)
        pages.append([each.name for each in page.schedules])
        if (after := page.next) is None:
            return pages


async def found_alarms(engine: Engine, **wanted: Any) -> list[str | None]:
    found: list[str | None] = []
    after = None
    while True:
        page = await engine.alarms.search(AlarmSearch(**wanted), after=after, limit=3)
        found += [each.name for each in page.alarms]
        if (after := page.next) is None:
            return found


async def test_names_are_found_by_how_they_begin_and_by_what_they_have(engine: Engine) -> None:
    for name in NAMES:
        await make(engine, name, task="Ärger" if name == "b" else "mail")

    assert await found_schedules(engine) == [["a", "a!", "a/1"], ["a/2", "a/É", "b"], ["\U0010ffff"]]
    assert await found_schedules(engine, text="a/*") == [["a/1", "a/2", "a/É"]]
    assert await found_schedules(engine, text="a*") == [["a", "a!", "a/1"], ["a/2", "a/É"]]
    assert await found_schedules(engine, text="*") == await found_schedules(engine)
    assert await found_schedules(engine, text="/é") == [["a/É"]]
    assert await found_schedules(engine, text="ärg") == [["b"]]
    assert await found_schedules(engine, text="%") == [[]]


async def test_a_page_that_looked_at_enough_goes_on_with_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefgh":
        await make(engine, name)
    await engine.schedules.pause("g")
    monkeypatch.setattr(searches, "SCAN_LIMIT", 4)

    assert await found_schedules(engine, state=ScheduleState.PAUSED) == [[], ["g"], []]
    assert sum(await found_schedules(engine, state=ScheduleState.ACTIVE), []) == list("abcdefh")  # noqa: RUF017


async def test_broken_ones_are_found_among_themselves(engine: Engine, conn: Connection) -> None:
    for name in "abcdef":
        await make(engine, name)
    await conn.execute("update pulse.schedules set status = 'BROKEN', next_run_at = null where name > 'b'")

    assert await found_schedules(engine, state=ScheduleState.BROKEN) == [["c", "d", "e"], ["f"]]
    assert await found_schedules(engine, state=ScheduleState.BROKEN, text="e") == [["e"]]


async def test_how_late_each_fired_last(engine: Engine, clock: FrozenClock) -> None:
    await make(engine, "a")
    await make(engine, "never")
    await engine.schedules.pause("never")
    await clock.advance(timedelta(hours=1, seconds=7))
    await engine.duties.fires.fire_due()

    schedules = (await engine.schedules.search(ScheduleSearch())).schedules

    assert await engine.schedules.lateness(schedules) == {schedules[0].id: timedelta(seconds=7)}


async def test_alarms_of_one_instant_are_on_one_page_each(
    engine: Engine, clock: FrozenClock, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever fails together has the same time, which is all that the index has."""
    for number in range(10):
        new = NewAlarm(
            owner="ada" if number % 2 else "eve", name=str(number), delay=timedelta(hours=1), url="http://127.0.0.1/"
        )
        await engine.alarms.set(new)
    monkeypatch.setattr(searches, "SCAN_LIMIT", 4)
    names = [str(number) for number in range(10)]

    assert await found_alarms(engine) == names[::-1]
    assert await found_alarms(engine, owner="ada") == names[::-2]
    assert await found_alarms(engine, state=AlarmState.PAUSED) == []
    await conn.execute("update pulse.alarms set failure_count = 1")
    assert await found_alarms(engine, state=AlarmState.FAILING) == names
    assert await found_alarms(engine, state=AlarmState.FAILING, owner="eve") == names[::2]
    await conn.execute("update pulse.alarms set status = 'failed', next_fire_at = null, finished_at = pulse.now()")
    assert await found_alarms(engine, state=AlarmState.FAILED) == names[::-1]
    assert await found_alarms(engine, state=AlarmState.FAILED, text="3") == ["3"]
    assert await found_alarms(engine, state=AlarmState.FAILING) == []


async def test_the_end_of_another_list_is_refused(engine: Engine) -> None:
    for after in ("nonsense", "00000000-0000-0000-0000-000000000000 2026-01-01", "x 2026-01-01T00:00:00+00:00"):
        with pytest.raises(InvalidFilter):
            await engine.alarms.search(AlarmSearch(), after=after)
