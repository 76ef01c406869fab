"""Do schedule_tick and alarm_tick say how often due schedules and alarms are looked for without wake-ups?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse.engine.duties.duties import Duties
from pulse.engine.duties.polls import Poll
from pulse.engine.engine import Engine
from pulse.model.alarms import NewAlarm
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.clock import FrozenClock
from tests.factories import a_new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock_here() -> Clock:
    """This process's own."""
    return Clock()


def a_poll(clock: Clock, tick: timedelta = 20 * SECOND, *, is_listening: bool = False) -> Poll:
    return Poll(tick, lambda: is_listening, clock)


# --- one poll


def test_the_first_look_is_taken_at_once_and_the_next_after_a_tick(clock_here: Clock) -> None:
    poll = a_poll(clock_here)

    assert poll.begin()
    assert poll.end(None) == 20 * SECOND
    clock_here.seconds += 19
    assert not poll.begin()
    assert poll.end(None) == SECOND
    clock_here.seconds += 1
    assert poll.begin()


def test_what_is_known_to_fall_due_sooner_is_looked_at_then(clock_here: Clock) -> None:
    poll = a_poll(clock_here)

    poll.begin()
    assert poll.end(3 * SECOND) == 3 * SECOND
    clock_here.seconds += 3
    assert poll.begin()


def test_what_is_due_and_stays_so_is_looked_at_again_after_a_tick(clock_here: Clock) -> None:
    poll = a_poll(clock_here)

    poll.begin()
    assert poll.end(-MINUTE) == 20 * SECOND


def test_a_wake_up_lets_the_next_look_be_taken(clock_here: Clock) -> None:
    poll = a_poll(clock_here)
    poll.begin()
    poll.end(None)

    poll.reset()

    assert poll.begin()


def test_who_listens_looks_whenever_asked_and_sleeps_as_others_say(clock_here: Clock) -> None:
    poll = a_poll(clock_here, is_listening=True)

    assert [poll.begin(), poll.end(None), poll.begin()] == [True, timedelta.max, True]
    assert poll.end(3 * SECOND) == 3 * SECOND


# --- the duties of a process without NOTIFY, while another process sets what falls due


class Watched:
    """Duties of which it is noted whether they send for those who fire and deliver."""

    def __init__(self, database: Database, settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        database.settings = settings
        engine = Engine(database, buckets=settings.buckets)
        self.duties: Duties = engine.duties
        self.sent_for: list[str] = []
        for poll in (self.duties._schedule_poll, self.duties._alarm_poll):
            monkeypatch.setattr(poll, "_clock", clock)
        for name, loop in (("fire", self.duties._fire), ("wake", self.duties.deliveries.loop)):
            monkeypatch.setattr(loop, "run_within", self._note(name))

    def _note(self, name: str) -> Callable[[timedelta], None]:
        return lambda _: self.sent_for.append(name)

    async def promote(self) -> tuple[timedelta, list[str]]:
        self.sent_for.clear()
        return await self.duties.promote(), list(self.sent_for)


@pytest.fixture
def watched(
    database: Database, settings: Settings, clock_here: Clock, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Watched]:
    def make(**given: Any) -> Watched:
        return Watched(database, replace(settings, notify=False, buckets=1, **given), clock_here, monkeypatch)

    return make


async def set_both(settings: Settings, clock: FrozenClock) -> None:
    """By another process, which tells nobody, and then their instant comes."""
    async with await Database.connect(settings) as database:
        other = Engine(database, buckets=settings.buckets)
        await other.alarms.set(NewAlarm(url="http://127.0.0.1:9/", delay=MINUTE))
        await other.schedules.create(NewSchedule(name="once", delay=MINUTE, job=a_new_job()))
    await clock.advance(MINUTE)


@pytest.mark.parametrize(("slow", "quick"), [("alarm_tick", "fire"), ("schedule_tick", "wake")])
async def test_each_tick_sets_how_often_its_own_are_looked_for(
    watched: Callable[..., Watched], settings: Settings, clock: FrozenClock, clock_here: Clock, slow: str, quick: str
) -> None:
    await clock.freeze()
    mine = watched(**{slow: 20 * SECOND}, alarm_networks="127.0.0.0/8", tick=SECOND / 2)
    assert await mine.promote() == (SECOND / 2, [])
    await set_both(replace(settings, alarm_networks="127.0.0.0/8"), clock)

    seen: dict[float, list[str]] = {}
    for _ in range(40):  # each half second, as jobs are looked for
        clock_here.seconds += 0.5
        if found := (await mine.promote())[1]:
            seen[clock_here.seconds - 100] = found

    other = "wake" if quick == "fire" else "fire"
    assert seen == {second: [quick] for second in range(1, 20)} | {20.0: sorted([quick, other])}


async def test_a_tick_shorter_than_that_of_jobs_is_kept(watched: Callable[..., Watched], clock: FrozenClock) -> None:
    await clock.freeze()
    mine = watched(alarm_tick=SECOND / 10, tick=SECOND / 2)

    assert (await mine.promote())[0] == SECOND / 10


async def test_a_wake_up_of_this_process_is_heard_whatever_the_tick(
    watched: Callable[..., Watched], settings: Settings, clock: FrozenClock, clock_here: Clock
) -> None:
    await clock.freeze()
    mine = watched(alarm_tick=MINUTE, schedule_tick=MINUTE, alarm_networks="127.0.0.0/8")
    mine.duties.loops()
    await mine.promote()
    await set_both(replace(settings, alarm_networks="127.0.0.0/8"), clock)
    assert (await mine.promote())[1] == []

    mine.duties._notifications.notify_due_soon(SECOND)

    assert (await mine.promote())[1] == ["fire", "wake"]


@pytest.mark.parametrize(("batch", "taken"), [(1, [1, 1, 1, 0]), (2, [2, 1, 0, 0]), (2_000, [3, 0, 0, 0])])
async def test_the_batch_sets_how_many_schedules_one_transaction_fires(
    database: Database, settings: Settings, clock: FrozenClock, batch: int, taken: list[int]
) -> None:
    await clock.freeze()
    database.settings = replace(settings, schedule_batch=batch)
    engine = Engine(database, buckets=settings.buckets)
    for name in "abc":
        await engine.schedules.create(NewSchedule(name=name, delay=MINUTE, job=a_new_job()))
    await clock.advance(MINUTE)

    assert [await engine.duties.fires.fire_due() for _ in range(4)] == taken
