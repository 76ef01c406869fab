"""Schedulers are killed while two years go by: does every occurrence make its one job, and say what became of it?

Three processes fire, and one of them is killed about every second. The clock of the database is moved by hand from one
instant to another, and stands still until nothing is due. So what has to be in the log at each instant is known, and
compared: `almanac.py` says when a timetable comes round, `foretold.py` what becomes of it. Schedules are paused,
changed and removed while they are fired; the answer to each such call says which came first, and that has to be true.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from pulse.model.errors import Conflict
from pulse.model.schedules import Schedule
from tests.chaos import checks
from tests.chaos.almanac import DAY, HOUR, MINUTE
from tests.chaos.asking import until
from tests.chaos.figures import SCALE, scaled
from tests.chaos.foretold import Foretold, Stretch
from tests.chaos.stage import Stage
from tests.chaos.timetables import TOPICS, Span, instant, kinds_of, make, occurrences, seconds
from tests.clock import FrozenClock

SCHEDULERS = 3
SOON = 0.1  # seconds after the clock was moved: about as long as it takes to fire what is due
COMMAND = (sys.executable, "-m", "tests.chaos.scheduler")
FOR_EVER = f"{20 * 365 * DAY}s"
KEPT = {f"PULSE_KEEP_{what}": FOR_EVER for what in ("FIRES", "COMPLETED", "CANCELLED", "DEAD_LETTERED")}
IS_SETTLED = """
select not exists (select from pulse.schedules where next_run_at <= pulse.now() and paused_at is null)
    and not exists (
        select from pulse.schedules where buffered_for is not null and paused_at is null
            and not exists (select from pulse.jobs where jobs.schedule_id = schedules.id and finished_at is null)
    )
"""
FIRES = """
select schedule_id, extract(epoch from occurrence)::bigint as occurrence, outcome, occurrences,
    extract(epoch from newest)::bigint as newest, cause
from pulse.fires
"""
JOBS = """
select schedule_id, extract(epoch from scheduled_for)::bigint as occurrence,
    extract(epoch from run_at - scheduled_for)::float as spread
from pulse.jobs
"""
IN_2011 = seconds(datetime(2011, 1, 1, tzinfo=UTC))
IN_SPRING = seconds(datetime(2011, 3, 12, tzinfo=UTC))  # New York, Berlin, London, Gaza, Lord Howe, Casablanca, Apia


@pytest.mark.chaos
@pytest.mark.slow
async def test_schedulers_are_killed_for_two_years(stage: Stage) -> None:
    span = Span(IN_2011, IN_2011 + round(2 * 365 * DAY * min(1.0, SCALE)))
    await kill_schedulers(stage, span, schedules=scaled(500), pause=1.0)


@pytest.mark.slow
async def test_schedulers_are_killed_for_a_few_weeks(stage: Stage) -> None:
    await kill_schedulers(stage, Span(IN_SPRING, IN_SPRING + 23 * DAY), schedules=50, pause=0.3)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("cursor first", "occurrences without a job"),
        ("jobs first", "occurrences with several jobs"),
        ("deaf to pauses", "lines that nobody foretold"),
    ],
)
async def test_schedulers_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_schedulers(stage, Span(IN_SPRING, IN_SPRING + 60 * DAY), schedules=150, pause=0.5)


async def kill_schedulers(stage: Stage, span: Span, *, schedules: int, pause: float) -> None:
    world = World(stage, span)
    await world.begin(schedules)
    async with killing(world, pause) as kills:
        while world.now < span.end:
            await world.move()
            await asyncio.gather(world.settle(), *(act() for act in world.acts(while_firing=True)))
            world.fire()
            await world.compare()
            for act in world.acts(while_firing=False):
                await act()
            if stage.random.random() < 0.5:
                await world.finish_jobs()
            await world.compare()

    fires, jobs = await stage.conn.fetch(FIRES), await stage.conn.fetch(JOBS)
    stage.figure("schedules", len(world.all))
    stage.figure("simulated days", (span.end - span.begin) // DAY)
    stage.figure("  instants the clock stood at", world.moves)
    stage.figure("occurrences in the log", sum(row["occurrences"] for row in fires if row["outcome"] != "BUFFERED"))
    stage.figure("jobs made", len(jobs))
    stage.figure("schedulers killed", kills["all"])
    stage.figure("  while something was due", kills["busy"])
    stage.figure("changes while they fired", world.contested.total())
    stage.figure("  that came first", world.contested["came first"])
    stage.figure("  that came second", world.contested["came second"])
    checks.hold(world.problems, _jobs(world, jobs), _log(world, fires), await _counts(stage), stage.fleet.unexpected())


Act = Callable[[Foretold], Coroutine[Any, Any, None]]


class World:
    """The schedules of a run, in the database and as foretold."""

    def __init__(self, stage: Stage, span: Span) -> None:
        self.stage, self.span = stage, span
        self.random, self.schedules = stage.random, stage.engine.schedules
        self.clock = FrozenClock(stage.conn)
        self.now = span.begin
        self.moves = 0
        self.all: list[Foretold] = []
        self.problems: list[str] = []
        self.contested: Counter[str] = Counter()
        self.was_moved = asyncio.Event()
        self._numbers = count()
        self._is_acting: set[Foretold] = set()

    async def begin(self, schedules: int) -> None:
        self.stage.fleet.command = COMMAND
        self.stage.fleet.environment |= KEPT
        await self.stage.conn.execute("drop trigger append on pulse.jobs")  # what becomes of jobs is not looked at here
        await self._set_clock(self.span.begin)
        for kind in kinds_of(schedules):
            await self._create(kind)
        await self.stage.fleet.start_many(SCHEDULERS)

    async def move(self) -> None:
        """A moment, some hours, some days; or to an occurrence, or just after it."""
        choice = self.random.random()
        if choice < 0.2:
            now = self._next_of(self.random.choice(self.all)) + self.random.choice((0, 0, 1, 9, 10, 11))
        elif choice < 0.3:
            now = self.now + self.random.randrange(1, 30 * MINUTE)
        elif choice < 0.45:
            now = self.now + self.random.randrange(1, 12 * HOUR)
        elif choice < 0.95:
            now = self.now + self.random.randrange(DAY, 5 * DAY)
        else:
            now = self.now + self.random.randrange(5 * DAY, 12 * DAY)
        self.moves += 1
        self.was_moved.set()
        await self._set_clock(min(now, self.span.end))

    def _next_of(self, each: Foretold) -> int:
        ahead = [at for at in each.occurrences[each.passed : each.passed + 1] if at > self.now]
        return min(ahead[0], self.now + 8 * DAY) if ahead else self.now + HOUR

    async def _set_clock(self, now: int) -> None:
        self.now, self.clock.instant = now, instant(now)
        await self.clock.freeze()
        for each in self.all:
            each.fresh.clear()
        self._is_acting.clear()
        self.stage.engine.notifications.notify_due_soon(timedelta())

    async def settle(self) -> None:
        """Until nothing is due."""
        await until(
            lambda: self.stage.engine.schedules._database.run(_is_settled),
            60,
            lambda: f"something is still due at {instant(self.now)}\n{self.stage.fleet.last_words()}",
        )

    def fire(self) -> None:
        for each in self.all:
            each.fire(self.now)

    async def compare(self) -> None:
        """What was logged at this instant with what had to be."""
        rows = await self.stage.conn.fetch(f"{FIRES} where logged_at = pulse.now()")
        found = {(row["schedule_id"], row["occurrence"], row["outcome"]): _stretch(row) for row in rows}
        wanted = {(each.id, *line): stretch for each in self.all for line, stretch in each.fresh.items()}
        if found != wanted and len(self.problems) < 20:
            names = {each.id: each.name for each in self.all}
            self.problems += _differences(f"at {instant(self.now)}", found, wanted, names)

    # --- what is done to schedules

    def acts(self, *, while_firing: bool) -> Iterable[Callable[[], Awaitable[None]]]:
        """A few things to do, each to another schedule."""
        busy = max(1, len(self.all) // 100)
        kinds = [self._pause, self._resume, self._retime, self._change, self._trigger, self._delete, self._backfill]
        weights = [4, 4, 3, 4, 2, 1, 0 if while_firing else 1]
        for kind in self.random.choices(kinds, weights, k=self.random.randint(0, 2 * busy)):
            delay = self.random.choice((0.0, self.random.uniform(0, SOON))) if while_firing else 0.0
            if (each := self._free(kind, while_firing=while_firing)) is not None:
                self._is_acting.add(each)
                yield lambda kind=kind, each=each, delay=delay: self._act(kind, each, delay)  # type: ignore[misc]
        if not while_firing and self.random.random() < 0.3:
            kind_of_new = self.random.choice(kinds_of(50))
            yield lambda: self._create(kind_of_new)

    async def _act(self, kind: Act, each: Foretold, delay: float) -> None:
        await asyncio.sleep(delay)
        async with asyncio.timeout(60):
            while True:
                with suppress(Conflict):  # a scheduler holds this schedule while the machine stands still: try again
                    return await kind(each)

    def _free(self, kind: Act, *, while_firing: bool) -> Foretold | None:
        """One to which this can be done and has one outcome, or two that the answer tells apart."""
        for each in self.random.sample(self.all, min(50, len(self.all))):
            if each.is_gone or each in self._is_acting or (while_firing and each.overlap != "allow"):
                continue
            can_be_done: dict[Act, bool] = {
                self._pause: not each.is_paused,
                self._resume: each.is_paused,
                self._retime: each.is_endless and each.catch_up != "skip",
                self._change: each.is_endless,  # one that is over cannot be changed, and it may be over by now
                self._trigger: each.overlap == "allow" and self.now not in each.occurrences,
                self._delete: True,
                self._backfill: each.overlap == "allow" and each.catch_up == "skip",
            }
            if can_be_done[kind]:
                return each
        return None

    async def _create(self, kind: str) -> None:
        new, foretold = make(self.random, f"{kind} {next(self._numbers)}", kind, self.now, self.span)
        schedule, _ = await self.schedules.create(new)
        foretold.id = schedule.id
        self.all.append(foretold)

    async def _pause(self, each: Foretold) -> None:
        self._tell(each, _has_moved(await self.schedules.pause(each.name), self.now))
        each.is_paused = True

    async def _resume(self, each: Foretold) -> None:
        await self.schedules.resume(each.name)
        is_owed = each.is_owed(self.now)
        each.resume(self.now)
        if is_owed:
            await self.settle()
        if each.buffered is not None:
            await self.settle()
            if not each.is_busy:
                each.finish()

    async def _delete(self, each: Foretold) -> None:
        self._tell(each, _has_moved(await self.schedules.delete(each.name), self.now))
        each.is_gone = each.is_over = True

    async def _retime(self, each: Foretold) -> None:
        every = timedelta(seconds=self.random.randint(5 * HOUR, 50 * HOUR))
        found = await self.schedules.edit(each.name, {"every": every})
        self._tell(each, found.fired > each.fired)
        each.retime(occurrences({"every": every}, self.now, self.span), self.now)

    async def _change(self, each: Foretold) -> None:
        changes = self.random.choice(({"priority": self.random.randint(1, 9)}, {"topic": self.random.choice(TOPICS)}))
        await self.schedules.edit(each.name, changes)

    async def _trigger(self, each: Foretold) -> None:
        await self.schedules.trigger(each.name)
        each.trigger(self.now)

    async def _backfill(self, each: Foretold) -> None:
        start = max(each.created_at + 1, self.now - 6 * HOUR)
        if start < self.now:
            await self.schedules.backfill(each.name, start=instant(start), end=instant(self.now), limit=1_000)
            each.backfill(start, self.now)

    def _tell(self, each: Foretold, has_fired: bool) -> None:
        """Who came first, where that made a difference."""
        if each.is_due(self.now):
            self.contested["came second" if has_fired else "came first"] += 1
            if has_fired:
                each.fire(self.now)

    async def finish_jobs(self) -> None:
        """Those that are in the way of others."""
        overlapping = [each for each in self.all if each.overlap != "allow"]
        rows = await self.stage.conn.fetch(
            "select id from pulse.jobs where schedule_id = any($1::uuid[]) and finished_at is null",
            [each.id for each in overlapping],
        )
        await self.stage.engine.jobs.cancel_many([row["id"] for row in rows])
        self.stage.engine.notifications.notify_due_soon(timedelta())
        await self.settle()
        for each in overlapping:
            each.finish()


@asynccontextmanager
async def killing(world: World, pause: float) -> AsyncIterator[Counter[str]]:
    """One about every so many seconds, soon after the clock was moved; and another in its place."""
    kills: Counter[str] = Counter()
    fleet, random = world.stage.fleet, world.random.__class__(world.random.random())

    async def kill() -> None:
        while True:
            await asyncio.sleep(random.uniform(0, 0.5) * pause)
            world.was_moved.clear()
            await world.was_moved.wait()
            await asyncio.sleep(random.uniform(0, SOON))
            if ready := [member for member in fleet.alive if member.ready_at]:
                is_settled = await world.schedules._database.run(_is_settled)
                random.choice(ready).kill()
                fleet.start()
                kills["all"] += 1
                kills["busy"] += not is_settled

    task = asyncio.create_task(kill())
    try:
        yield kills
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _is_settled(conn: Any) -> bool:
    [row] = await conn.fetch(IS_SETTLED)
    return bool(row[0])


def _has_moved(schedule: Schedule, now: int) -> bool:
    """Its cursor, as it was when the answer was given."""
    return schedule.next_run_at is None or seconds(schedule.next_run_at) > now


# --- what is looked at


def _jobs(world: World, rows: Iterable[Any]) -> list[str]:
    """Each occurrence that had to make a job has one, and only those."""
    made = Counter((row["schedule_id"], row["occurrence"]) for row in rows)
    wanted = {(each.id, at) for each in world.all for at, outcome in each.lines if outcome == "FIRED"}
    names: dict[UUID | None, str] = {each.id: each.name for each in world.all}
    jitters = {each.id: each.jitter for each in world.all if each.jitter}
    missing, beyond = wanted - made.keys(), made.keys() - wanted
    several = [key for key, number in made.items() if number > 1]
    far = [
        f"{names[row['schedule_id']]} {instant(row['occurrence'])} by {row['spread']} s"
        for row in rows
        if not 0 <= row["spread"] < jitters.get(row["schedule_id"], float("inf")) and not _by_hand(world, row)
    ]
    world.stage.figure("missing", len(missing))
    world.stage.figure("double", len(several))
    return [
        *checks.say("occurrences without a job", _named(missing, names)),
        *checks.say("jobs without an occurrence", _named(beyond, names)),
        *checks.say("occurrences with several jobs", _named(several, names)),
        *checks.say("jobs spread too far", far),
    ]


def _by_hand(world: World, row: Any) -> bool:
    """A job that was backfilled starts at once, however long ago its occurrence was."""
    return any(each.id == row["schedule_id"] and each.catch_up == "skip" for each in world.all)


def _log(world: World, rows: Iterable[Any]) -> list[str]:
    """Every line is as foretold, and together they stand for all that has passed."""
    found = {(row["schedule_id"], row["occurrence"], row["outcome"]): _stretch(row) for row in rows}
    wanted = {(each.id, *line): stretch for each in world.all for line, stretch in each.lines.items()}
    names = {each.id: each.name for each in world.all}
    totals: Counter[UUID] = Counter()
    for row in rows:
        if row["cause"] == "timetable" and row["outcome"] != "BUFFERED":
            totals[row["schedule_id"]] += row["occurrences"]
    short = [
        f"{each.name}: {totals[each.id]} of {each.passed}"
        for each in world.all
        if each.id and not each.was_retimed and not each.is_over
        if totals[each.id] + (each.buffered is not None) != each.passed
    ]
    return [*_differences("in the end", found, wanted, names), *checks.say("logs that do not add up", short)]


async def _counts(stage: Stage) -> list[str]:
    rows = await stage.conn.fetch("select topic, count(*) from pulse.jobs group by topic")
    counted = {each.topic: sum(each.counts.values()) for each in await stage.engine.jobs.counts()}
    return [] if counted == dict(rows) else [f"the counts say {counted}, the rows {dict(rows)}"]


Key = tuple[UUID | None, int, str]


def _differences(
    when: str, found: dict[Key, Stretch], wanted: dict[Key, Stretch], names: dict[UUID | None, str]
) -> list[str]:
    def show(keys: Iterable[Key], stretches: dict[Key, Stretch]) -> list[str]:
        return [f"{names.get(key[0])}: {instant(key[1])} {key[2]} {stretches[key]}" for key in keys]

    other = [key for key in found.keys() & wanted.keys() if found[key] != wanted[key]]
    return [
        *checks.say(f"lines are missing {when}", show(wanted.keys() - found.keys(), wanted)),
        *checks.say(f"lines that nobody foretold {when}", show(found.keys() - wanted.keys(), found)),
        *checks.say(f"lines that say something else {when}", show(other, found)),
    ]


def _stretch(row: Any) -> Stretch:
    return row["occurrences"], row["newest"]


def _named(keys: Iterable[tuple[UUID | None, int]], names: dict[UUID | None, str]) -> list[str]:
    return [f"{names.get(schedule)}: {instant(at)}" for schedule, at in keys]
