"""A fire beside everything else that is done to a schedule, statement by statement, in every order.

Whoever locks the schedule first is first, and the other one sees what it left. So each order has the one outcome that
the two would have had one after the other. A fire that found the schedule locked comes back to it, as the loop does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from itertools import combinations
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.schedules.fires import FireDuty
from pulse.engine.schedules.use_cases import Schedules
from pulse.model.schedules import CatchUp, Declared, Overlap
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.engine.test_schedules import MINUTE, NOON, a_schedule, at, log, made

APART = {"read_clock", "find_schedules", "fired_occurrences", "delete_schedules", "insert_schedules"}  # touch nothing
NAME = "each minute"
TABLES = ("jobs", "schedules", "fires", "deploys", "tallies")


class Actor:
    """One transaction, which stops in front of each of its statements until it is told to go on."""

    def __init__(self, conn: Connection, observer: Connection, engine: Engine, act: Act) -> None:
        self._conn = conn
        self._observer = observer
        self._pid = conn._raw.get_server_pid()
        self._permits = asyncio.Semaphore(0)
        self._stands = asyncio.Event()
        self.settings = engine.settings
        self.fires = FireDuty(self, engine.notifications)  # type: ignore[arg-type]
        self.schedules = Schedules(self, engine.notifications, buckets=engine.schedules.buckets)  # type: ignore[arg-type]
        self.task = asyncio.create_task(act(self))

    async def go_on(self) -> None:
        """One statement further, or to where that has to wait."""
        if self._stands.is_set():
            self._stands.clear()
            self._permits.release()
        await self._settle()

    async def finish(self) -> object:
        while not self.task.done():
            await self.go_on()
        return self.task.result()

    async def _settle(self) -> None:
        while not self._stands.is_set() and not self.task.done():
            standing = asyncio.create_task(self._stands.wait())
            await asyncio.wait([standing, self.task], timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
            standing.cancel()
            if await self._observer.fetch("select where cardinality(pg_blocking_pids($1)) > 0", self._pid):
                return

    # --- what the engine sees of it

    async def run_together(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        await self._conn.execute("begin")
        try:
            answer = await work(self)
            await self._stop()
        except BaseException:
            await self._conn.execute("rollback")
            raise
        await self._conn.execute("commit")
        return answer

    async def rows(self, name: str, /, **parameters: object) -> list[asyncpg.Record]:
        if name not in APART:
            await self._stop()
        return await self._conn.rows(name, **parameters)

    async def _stop(self) -> None:
        self._stands.set()
        await self._permits.acquire()


Act = Callable[[Actor], Coroutine[Any, Any, object]]


async def fire(actor: Actor) -> object:
    return await actor.fires.fire_due()


async def pause(actor: Actor) -> object:
    return (await actor.schedules.pause(NAME)).fired


async def resume(actor: Actor) -> object:
    return (await actor.schedules.resume(NAME)).next_run_at


async def edit(actor: Actor) -> object:
    return (await actor.schedules.edit(NAME, {"cron": "*/10 * * * *", "topic": "elsewhere"})).fired


async def change(actor: Actor) -> object:
    return (await actor.schedules.edit(NAME, {"topic": "elsewhere", "priority": 7})).fired


async def delete(actor: Actor) -> object:
    return (await actor.schedules.delete(NAME)).fired


async def trigger(actor: Actor) -> object:
    return (await actor.schedules.trigger(NAME)).occurrence


async def backfill(actor: Actor) -> object:
    return (await actor.schedules.backfill(NAME, start=NOON, end=at(12, 2, 10))).occurrences


async def sync(actor: Actor) -> object:
    declared = [Declared(schedule=a_schedule(name="another"))]
    return await actor.schedules.sync("shop", declared)


async def sync_anew(actor: Actor) -> object:
    declared = [Declared(schedule=a_schedule(cron="*/10 * * * *", overlap=Overlap.SKIP))]
    return await actor.schedules.sync("shop", declared)


# By name: what is done, and how many statements with its commit stand against the fire's three.
CASES: dict[str, tuple[Act, int]] = {
    "pause": (pause, 3),
    "resume": (resume, 4),
    "edit": (edit, 3),
    "change": (change, 3),
    "delete": (delete, 2),
    "trigger": (trigger, 3),
    "backfill": (backfill, 3),
    "sync": (sync, 5),
    "sync anew": (sync_anew, 5),
    "fire": (fire, 3),
}


class Scene:
    """A schedule of which two occurrences are due, 12:01 and 12:02; and two transactions about to look at it."""

    def __init__(self, engine: Engine, conns: list[Connection], case: str) -> None:
        self._engine, self._conns, self._case = engine, conns, case

    async def set(self) -> list[Actor]:
        *conns, observer = self._conns
        await observer.execute("; ".join(f"delete from pulse.{table}" for table in TABLES))
        new = a_schedule(catch_up=CatchUp.REPLAY)
        if "sync" in self._case:
            await self._engine.schedules.sync("shop", [Declared(schedule=new)])
        else:
            await self._engine.schedules.create(new)
        if self._case == "resume":
            await self._engine.schedules.pause(NAME)
        await observer.execute(f"update pulse.schedules set next_run_at = '{at(12, 1).isoformat()}'")
        acts = (fire, CASES[self._case][0])
        actors = [Actor(conn, observer, self._engine, act) for conn, act in zip(conns, acts, strict=True)]
        for actor in actors:
            await actor._settle()
        return actors


@pytest.fixture
async def scene(case: str, engine: Engine, settings: Settings, clock: FrozenClock) -> AsyncIterator[Scene]:
    clock.instant = NOON + 2 * MINUTE
    await clock.freeze()
    async with AsyncExitStack() as stack:
        conns = [await stack.enter_async_context(open_connection(settings)) for _ in range(3)]
        yield Scene(engine, conns, case)


async def outcome(engine: Engine, results: list[object]) -> tuple[object, ...]:
    """What can be seen afterwards."""
    jobs = [(job.scheduled_for, job.topic, job.priority) for job in await made(engine)]
    found = (await engine.schedules.list_page()).schedules
    rows = [(each.name, each.status, each.next_run_at, each.paused_at, each.fired) for each in found]
    lines = [
        (line.occurrence, line.outcome, line.cause, line.occurrences)
        for each in found
        for line in await log(engine, each.name)
    ]
    return results[1], jobs, rows, lines


async def run(engine: Engine, actors: list[Actor], order: tuple[int, ...]) -> tuple[object, ...]:
    for number in order:
        await actors[number].go_on()
    results = [await actor.finish() for actor in actors]
    await engine.duties.fires.fire_due()  # what was locked when the fire came by
    return await outcome(engine, results)


def orders(others: int) -> list[tuple[int, ...]]:
    """Every way in which three statements of a fire can stand between those of the other."""
    length = 3 + others
    return [
        tuple(0 if place in fires else 1 for place in range(length))
        for fires in map(set, combinations(range(length), 3))
    ]


@pytest.mark.parametrize("case", CASES)
async def test_whoever_locks_a_schedule_first_is_first(engine: Engine, scene: Scene, case: str) -> None:
    others = CASES[case][1]
    locks_at = 2 if "sync" in case else 1  # a sync takes its app's line first
    serial = {}
    for first in (0, 1):
        order = sorted([0] * 3 + [1] * others, reverse=bool(first))
        serial[first] = await run(engine, await scene.set(), tuple(order))

    for each in orders(others):
        found = await run(engine, await scene.set(), each)
        locked_first = 0 if each.index(0) < _nth(each, 1, locks_at) else 1
        assert found == serial[locked_first], f"{each}"


def _nth(order: tuple[int, ...], actor: int, number: int) -> int:
    return [place for place, each in enumerate(order) if each == actor][number - 1]


@pytest.mark.parametrize(
    ("case", "jobs"),
    [
        ("pause", []),
        ("resume", []),
        ("edit", []),
        ("change", [(at(12, 1), "elsewhere"), (at(12, 2), "elsewhere")]),
        ("delete", []),
        ("trigger", [(at(12, 1), "mail"), (at(12, 2), "mail"), (NOON + 2 * MINUTE, "mail")]),
        ("backfill", [(at(12, 1), "mail"), (at(12, 2), "mail")]),
        ("sync", []),
        ("sync anew", []),
        ("fire", [(at(12, 1), "mail"), (at(12, 2), "mail")]),
    ],
)
async def test_what_was_committed_before_a_fire_counts(engine: Engine, scene: Scene, jobs: list[object]) -> None:
    firing, other = await scene.set()

    await other.finish()
    await firing.finish()

    assert [(job.scheduled_for, job.topic) for job in await made(engine)] == jobs
