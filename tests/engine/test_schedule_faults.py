"""What could go wrong with schedules that a quiet test does not see: refusals, races, retries, edits at bad moments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.schedules import fires as fires_module
from pulse.engine.schedules.fires import FireDuty
from pulse.model.errors import PulseError
from pulse.model.schedules import CatchUp, Declared, FireOutcome, Overlap, ScheduleStatus
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from pulse.store.schedules import changes
from pulse.store.schedules import fires as fires_store
from pulse.store.schedules.fires import RefusedByDatabase
from pulse.timing import cron, zones
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.engine.test_schedules import HOUR, MINUTE, a_schedule, accounted, at, at_noon, create, fire, log, made
from tests.factories import a_new_job, a_report, claim_one
from tests.waiting import until

__all__ = ["at_noon"]  # it is noon here, too

SECOND = timedelta(seconds=1)
BUSY_GATE = 4711


async def finish_one(engine: Engine) -> None:
    await engine.claims.report([a_report(await claim_one(engine))])


async def fire_all(engine: Engine) -> int:
    """What is due, and what waits in buffers."""
    return await fire(engine) + await engine.duties.fires.fire_buffered()


async def occurrences(engine: Engine) -> list[object]:
    return [job.scheduled_for for job in await made(engine)]


# --- many at once


async def test_many_schedules_with_many_to_replay_fire_in_a_moment(engine: Engine, clock: FrozenClock) -> None:
    for number in range(60):
        await create(engine, name=f"s{number}", every=MINUTE, catch_up=CatchUp.REPLAY)
    await clock.advance(100 * MINUTE)

    async with asyncio.timeout(10):  # joined each with each it took minutes, and longer than any statement may
        assert await fire(engine) >= 60

    [row] = await engine.duties.fires._database.run(lambda conn: conn.fetch("select count(*) from pulse.jobs"))
    assert row[0] == 6_000


@pytest.mark.parametrize(("most", "minutes"), [(100, 60), (2, 1)])
async def test_what_one_transaction_makes_is_bounded(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, most: int, minutes: int
) -> None:
    monkeypatch.setattr(fires_module, "MAX_JOBS", most)
    for number in range(6):
        await create(engine, name=f"s{number}", every=MINUTE, catch_up=CatchUp.REPLAY)
    await clock.advance(minutes * MINUTE)

    assert [await engine.duties.fires.fire_due() for _ in range(4)] == [2, 2, 2, 0]
    assert len(await made(engine)) == 6 * minutes


@pytest.mark.parametrize("limit", ["jobs", "batch"])
async def test_the_duty_looks_again_at_once_if_more_was_due_than_it_takes(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit == "jobs":
        monkeypatch.setattr(fires_module, "MAX_JOBS", 1)
    else:
        monkeypatch.setattr(engine.duties.fires, "_batch", 1)
    for name in "ab":
        await create(engine, name=name, every=MINUTE)
    await clock.advance(MINUTE)

    waits = [await engine.duties.fires.step() for _ in range(3)]

    assert waits[0] == timedelta()
    assert waits[-1] == MINUTE
    assert len(await made(engine)) == 2


# --- buffers


async def test_what_waited_fires_when_overlap_is_allowed_meanwhile(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE)
    for _ in range(2):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.schedules.edit("each minute", {"overlap": Overlap.ALLOW})
    await finish_one(engine)

    assert await fire_all(engine) == 1
    assert await occurrences(engine) == [at(12, 1), at(12, 2)]
    assert (await engine.schedules.get("each minute")).buffered_for is None


async def test_what_waited_fires_beside_the_next_when_overlap_is_allowed_meanwhile(
    engine: Engine, clock: FrozenClock
) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE)
    for _ in range(2):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.schedules.edit("each minute", {"overlap": Overlap.ALLOW})
    await clock.advance(MINUTE)

    await fire(engine)
    assert await occurrences(engine) == [at(12, 1), at(12, 2), at(12, 3)]


async def test_a_broken_schedule_stays_broken_whatever_waits_in_its_buffer(
    engine: Engine, clock: FrozenClock, refusing: Callable[[str], Awaitable[None]]
) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE, job=a_new_job(task="bad"))
    for _ in range(2):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.claims.report([a_report(await claim_one(engine, "bad"))])
    await refusing("bad")
    await clock.advance(MINUTE)
    await fire_all(engine)
    await refusing("nobody")

    assert await fire_all(engine) == 0
    after = await engine.schedules.get("each minute")
    assert (after.status, after.buffered_for) == (ScheduleStatus.BROKEN, None)
    skipped = [line.occurrence for line in await log(engine) if line.outcome is FireOutcome.SKIPPED]
    assert skipped == [at(12, 2), at(12, 3)]


async def test_nothing_is_said_to_wait_that_will_never_come(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE, catch_up=CatchUp.REPLAY, max_occurrences=1)
    await clock.advance(2 * MINUTE)

    assert await fire(engine) == 1
    assert [line.outcome for line in await log(engine)] == [FireOutcome.FIRED]
    assert (await engine.schedules.get("each minute")).status is ScheduleStatus.COMPLETED


async def test_a_paused_schedule_keeps_what_waits_in_its_buffer(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE)
    for _ in range(2):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.schedules.pause("each minute")
    await finish_one(engine)

    assert await fire_all(engine) == 0
    await engine.schedules.resume("each minute")
    assert await fire_all(engine) == 1
    assert await occurrences(engine) == [at(12, 1), at(12, 2)]


async def test_a_deleted_schedule_takes_its_buffer_with_it(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, overlap=Overlap.BUFFER_ONE)
    for _ in range(2):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.schedules.delete("each minute")
    await finish_one(engine)

    assert await fire_all(engine) == 0
    assert await occurrences(engine) == [at(12, 1)]


# --- races


async def test_a_job_committed_before_the_schedule_was_locked_is_in_the_way(
    engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    """A statement reads as of its beginning and locks later: what happened in between must count all the same."""
    await create(engine, overlap=Overlap.SKIP)
    await clock.advance(MINUTE)
    async with open_connection(settings) as gate, open_connection(settings) as slow:
        await gate.execute(
            "create or replace function pulse.now() returns timestamptz language plpgsql stable as $$ begin "
            f"if current_setting('application_name') = 'slow' then perform pg_advisory_lock_shared({BUSY_GATE}), "
            f"pg_advisory_unlock_shared({BUSY_GATE}); end if; return timestamptz '{clock.instant.isoformat()}'; end $$"
        )
        await slow.execute("set application_name = 'slow'")
        await fires_store.due_schedules(slow, limit=1)  # planned, so that it waits only when it is carried out
        await gate.execute(f"select pg_advisory_lock({BUSY_GATE})")
        firing = asyncio.create_task(FireDuty(Alone(slow), engine.notifications).fire_due())  # type: ignore[arg-type]
        await until(lambda: _is_waiting(gate))

        await engine.schedules.trigger("each minute")
        await gate.execute(f"select pg_advisory_unlock({BUSY_GATE})")
        await firing

    assert [line.outcome for line in await log(engine)] == [FireOutcome.SKIPPED, FireOutcome.FIRED]
    assert len(await made(engine)) == 1


class Alone:
    """A database of one connection."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self.settings = Settings()

    async def run_together(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        async with self._conn.transaction():
            return await work(self._conn)


async def _is_waiting(conn: Connection) -> bool:
    return bool(await conn.fetch("select from pg_locks where locktype = 'advisory' and not granted"))


# --- what is tried again after a lost answer


@pytest.fixture
def lose_an_answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The next transaction is committed, and its connection is lost before that is said."""

    def lose() -> None:
        run, losses = Database.run, iter([True])

        async def run_and_lose(self: Database, work: Callable[[Connection], Awaitable[Any]], **given: Any) -> Any:
            async def lost(conn: Connection) -> Any:
                answer = await work(conn)
                if next(losses, False):
                    raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")
                return answer

            return await run(self, lost, **given)

        monkeypatch.setattr(Database, "run", run_and_lose)

    return lose


async def test_a_trigger_whose_answer_was_lost_makes_one_job(
    engine: Engine, clock: FrozenClock, lose_an_answer: Callable[[], None]
) -> None:
    await create(engine)
    await clock.unfreeze()  # the second try is made at another instant
    lose_an_answer()

    fired = await engine.schedules.trigger("each minute")

    assert [job.id for job in await made(engine)] == [fired.job_id]


async def test_a_create_whose_answer_was_lost_says_that_it_is_new(
    engine: Engine, lose_an_answer: Callable[[], None]
) -> None:
    lose_an_answer()

    _, is_new = await engine.schedules.create(a_schedule())

    assert is_new


async def test_a_fire_whose_answer_was_lost_is_not_repeated(
    engine: Engine, clock: FrozenClock, lose_an_answer: Callable[[], None]
) -> None:
    await create(engine)
    await clock.advance(MINUTE)
    lose_an_answer()

    await fire(engine)

    assert await occurrences(engine) == [at(12, 1)]
    assert (await engine.schedules.get("each minute")).fired == 1


async def test_a_sync_that_is_tried_again_reads_again(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first try read has changed by the second."""
    confirm, tries = changes.confirm_deploy, iter([True])
    await engine.schedules.sync("shop", [Declared(schedule=a_schedule(catch_up=CatchUp.REPLAY))])
    await clock.advance(MINUTE)

    async def fail_once(conn: Connection, **given: Any) -> None:
        if next(tries, False):
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        await confirm(conn, **given)

    rolled_back = Database.run

    async def fire_between(self: Database, work: Callable[[Connection], Awaitable[Any]], **given: Any) -> Any:
        async def tried(conn: Connection) -> Any:
            try:
                return await work(conn)
            except asyncpg.DeadlockDetectedError:
                monkeypatch.setattr(Database, "run", rolled_back)
                await fire(engine)
                raise

        return await rolled_back(self, tried, **given)

    monkeypatch.setattr(changes, "confirm_deploy", fail_once)
    monkeypatch.setattr(Database, "run", fire_between)
    changed = a_schedule(catch_up=CatchUp.REPLAY, job=a_new_job(priority=3))
    await engine.schedules.sync("shop", [Declared(schedule=changed)])

    after = await engine.schedules.get("each minute")
    assert (after.next_run_at, after.job.priority, after.fired) == (at(12, 2), 3, 1)


async def test_a_dry_run_is_not_a_deploy(engine: Engine) -> None:
    declared = [Declared(schedule=a_schedule())]
    await engine.schedules.sync("shop", declared, deploy=7, dry_run=True)

    report = await engine.schedules.sync("shop", declared, deploy=6)

    assert report.created == ["each minute"]


# --- refusals


@pytest.fixture
async def refusing(settings: Settings) -> Any:
    """The database refuses the jobs of one task."""
    conn = await asyncpg.connect(settings.database_url)

    async def refuse(task: str, error: str = "raise exception 'not this one'") -> None:
        await conn.execute(
            "create or replace function refuse_one() returns trigger language plpgsql as $$ begin "
            f"if new.task = '{task}' then {error}; end if; return new; end $$"
        )
        await conn.execute(
            "create or replace trigger refuse_one before insert on pulse.jobs "
            "for each row execute function refuse_one()"
        )

    yield refuse
    await conn.execute("drop trigger if exists refuse_one on pulse.jobs")
    await conn.close()


@pytest.mark.parametrize("errcode", ["P0001", "23514", "22003", "PU001"])
async def test_what_the_database_refuses_is_parked_alone(
    engine: Engine, clock: FrozenClock, refusing: Callable[..., Awaitable[None]], errcode: str
) -> None:
    await refusing("bad", f"raise exception 'not this one' using errcode = '{errcode}', detail = 'hunter2'")
    for number in range(9):
        await create(engine, name=f"s{number}", job=a_new_job(task="bad" if number in (2, 7) else "mail"))
    await clock.advance(MINUTE)

    await fire(engine)

    statuses = [(await engine.schedules.get(f"s{number}")).status for number in range(9)]
    assert [number for number in range(9) if statuses[number] is ScheduleStatus.BROKEN] == [2, 7]
    assert len(await made(engine)) == 7
    error = str((await engine.schedules.get("s2")).error)
    assert "not this one" in error
    assert "hunter2" not in error, "the detail may be the row with its payload"


@pytest.mark.parametrize("errcode", ["insufficient_privilege", "disk_full", "53200", "55P03", "undefined_table"])
async def test_trouble_that_is_no_ones_parks_no_one(
    engine: Engine, clock: FrozenClock, refusing: Callable[..., Awaitable[None]], errcode: str
) -> None:
    await refusing("mail", f"raise exception 'trouble' using errcode = '{errcode}'")
    await create(engine)
    await clock.advance(MINUTE)

    with pytest.raises(PulseError):
        await fire(engine)

    assert (await engine.schedules.get("each minute")).status is ScheduleStatus.ACTIVE
    await refusing("nobody")
    await fire(engine)
    assert await occurrences(engine) == [at(12, 1)]


@pytest.mark.parametrize("by_hand", ["trigger", "backfill"])
async def test_a_job_made_by_hand_that_is_refused_is_the_callers_error(
    engine: Engine, clock: FrozenClock, refusing: Callable[[str], Awaitable[None]], by_hand: str
) -> None:
    await refusing("mail")
    await create(engine)
    await clock.advance(HOUR)

    with pytest.raises(PulseError, match="not this one"):
        if by_hand == "trigger":
            await engine.schedules.trigger("each minute")
        else:
            await engine.schedules.backfill("each minute", start=at(12, 10), end=at(12, 20))


async def test_one_that_cannot_even_be_parked_does_not_hold_up_the_others(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = await create(engine, name="a")
    for name in "bcd":
        await create(engine, name=name)
    await clock.advance(MINUTE)
    fire_schedules = fires_store.fire_schedules

    async def refuse(conn: Connection, *, plans: Any, **given: Any) -> Any:
        if any(plan.id == stubborn.id for plan in plans):
            raise RefusedByDatabase("never")
        return await fire_schedules(conn, plans=plans, **given)

    async def refuse_all(*_: object) -> Any:
        raise RefusedByDatabase("one of them")

    monkeypatch.setattr(fires_store, "fire_schedules", refuse)
    monkeypatch.setattr(fires_store, "fire_regular", refuse_all)
    await engine.duties.fires.fire_due()

    assert len(await made(engine)) == 3


async def test_a_zone_that_is_gone_stops_only_its_own(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is still known to this process, and its file is not there any more."""
    await create(engine, name="a", cron="0 13 * * *", tz="Asia/Kathmandu")
    await create(engine, name="b")
    await clock.advance(24 * HOUR)
    load_zone = zones.load_zone

    def load(name: str) -> object:
        if name == "Asia/Kathmandu":
            raise ZoneInfoNotFoundError(f"No time zone found with key {name}")
        return load_zone(name)

    monkeypatch.setattr(zones, "load_zone", load)
    for cached in (zones.turns, cron._parse):
        cached.cache_clear()
    await fire(engine)

    assert (await engine.schedules.get("a")).status is ScheduleStatus.BROKEN
    assert "Kathmandu" in str((await engine.schedules.get("a")).error)
    assert (await engine.schedules.get("b")).status is ScheduleStatus.ACTIVE
    assert len(await made(engine)) == 1


# --- traces


async def test_what_fell_due_during_a_pause_is_accounted_for(engine: Engine, clock: FrozenClock) -> None:
    await create(engine)
    await engine.schedules.pause("each minute")
    await clock.advance(HOUR)

    await engine.schedules.resume("each minute")

    [line] = await log(engine)
    assert (line.occurrence, line.newest, line.occurrences) == (at(12, 1), at(13, 0), 60)
    assert (line.outcome, line.reason) == (FireOutcome.SKIPPED, "paused")


async def paused_over(engine: Engine, clock: FrozenClock, late: timedelta = HOUR, **given: Any) -> None:
    """A once schedule, paused until so long after its instant."""
    await create(engine, name="once", run_at=at(12, 30), **given)
    await engine.schedules.pause("once")
    await clock.advance(at(12, 30) + late - clock.instant)


@pytest.mark.parametrize("given", [{}, {"catch_up": "replay"}, {"ends_at": at(12, 31)}, {"max_occurrences": 1}])
async def test_a_once_schedule_that_was_paused_over_its_instant_runs_when_it_is_resumed(
    engine: Engine, clock: FrozenClock, given: dict[str, Any]
) -> None:
    await paused_over(engine, clock, **given)
    assert await fire(engine) == 0
    assert [each.at for each in await engine.schedules.preview("once")] == [at(12, 30)]

    resumed = await engine.schedules.resume("once")
    assert (resumed.status, resumed.next_run_at, resumed.paused_at) == (ScheduleStatus.ACTIVE, at(12, 30), None)
    assert await fire(engine) == 1

    [job] = await made(engine)
    assert (job.scheduled_for, job.submitted_at) == (at(12, 30), at(13, 30))
    [line] = await log(engine, "once")
    assert (line.occurrence, line.outcome, line.reason, line.late) == (at(12, 30), FireOutcome.FIRED, None, HOUR)
    ended = await engine.schedules.get("once")
    assert (ended.status, ended.next_run_at, ended.fired) == (ScheduleStatus.COMPLETED, None, 1)
    assert await fire(engine) == 0


@pytest.mark.parametrize(("late", "runs"), [(timedelta(seconds=10), True), (timedelta(seconds=11), False)])
async def test_a_once_schedule_that_skips_what_it_missed_is_over_when_it_is_resumed(
    engine: Engine, clock: FrozenClock, late: timedelta, runs: bool
) -> None:
    await paused_over(engine, clock, late, catch_up="skip")
    assert bool(await engine.schedules.preview("once")) == runs

    resumed = await engine.schedules.resume("once")
    await fire(engine)

    assert resumed.status is (ScheduleStatus.ACTIVE if runs else ScheduleStatus.COMPLETED)
    [line] = await log(engine, "once")
    assert (line.outcome, line.reason) == ((FireOutcome.FIRED, None) if runs else (FireOutcome.SKIPPED, "paused"))
    assert len(await made(engine)) == runs


async def test_a_once_schedule_that_was_backfilled_during_its_pause_does_not_run_again(
    engine: Engine, clock: FrozenClock
) -> None:
    await paused_over(engine, clock)
    await engine.schedules.backfill("once", start=at(12, 0), end=at(13, 0))
    assert await engine.schedules.preview("once") == []

    resumed = await engine.schedules.resume("once")
    await fire(engine)

    assert resumed.status is ScheduleStatus.COMPLETED
    assert len(await made(engine)) == 1
    assert accounted(await log(engine, "once")) == 1


async def test_a_once_schedule_that_is_edited_during_its_pause_runs_as_it_is_then(
    engine: Engine, clock: FrozenClock
) -> None:
    await paused_over(engine, clock)
    await engine.schedules.edit("once", {"priority": 7})

    await engine.schedules.resume("once")
    await fire(engine)

    assert [job.priority for job in await made(engine)] == [7]


async def test_a_once_schedule_that_is_given_another_instant_during_its_pause_waits_for_that(
    engine: Engine, clock: FrozenClock
) -> None:
    await paused_over(engine, clock)
    await engine.schedules.edit("once", {"run_at": at(14, 0)})

    resumed = await engine.schedules.resume("once")
    assert (await fire(engine), resumed.next_run_at) == (0, at(14, 0))
    await clock.advance(HOUR)
    await fire(engine)

    assert [job.scheduled_for for job in await made(engine)] == [at(14, 0)]
    assert accounted(await log(engine, "once")) == 2  # 12:30 was passed over by the edit


@pytest.mark.parametrize(("overlap", "outcome"), [("skip", FireOutcome.SKIPPED), ("buffer_one", FireOutcome.BUFFERED)])
async def test_overlap_has_its_say_about_what_runs_when_it_is_resumed(
    engine: Engine, clock: FrozenClock, overlap: str, outcome: FireOutcome
) -> None:
    await paused_over(engine, clock, overlap=overlap)
    await engine.schedules.trigger("once")  # and its job is unfinished

    await engine.schedules.resume("once")
    await fire(engine)

    assert [line.outcome for line in await log(engine, "once")] == [outcome, FireOutcome.FIRED]
    assert len(await made(engine)) == 1


async def test_a_once_schedule_that_is_resumed_before_its_instant_keeps_it(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, name="once", run_at=at(12, 30))
    await engine.schedules.pause("once")

    assert (await engine.schedules.resume("once")).next_run_at == at(12, 30)
    assert await log(engine, "once") == []


async def test_time_that_goes_back_repeats_nothing(engine: Engine, clock: FrozenClock) -> None:
    await create(engine)
    await clock.advance(MINUTE)
    await fire(engine)
    await clock.advance(-10 * MINUTE)
    assert await fire(engine) == 0
    await engine.schedules.edit("each minute", {"cron": "*/1 * * * *"})  # from the instant it seems to be
    await clock.advance(11 * MINUTE)
    await fire(engine)

    assert (await occurrences(engine)).count(at(12, 1)) == 1


async def test_a_topic_in_another_bucket_does_not_repeat_an_occurrence(engine: Engine, clock: FrozenClock) -> None:
    await create(engine)
    await clock.advance(MINUTE)
    await fire(engine)
    await engine.schedules.edit("each minute", {"topic": "elsewhere"})
    await engine.schedules.backfill("each minute", start=at(12, 1), end=at(12, 1, 1))

    assert await occurrences(engine) == [at(12, 1)]


async def test_the_end_is_not_an_occurrence_and_the_start_is(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, every=MINUTE, starts_at=at(12, 10), ends_at=at(12, 13), catch_up=CatchUp.REPLAY)
    await clock.advance(HOUR)
    await fire(engine)

    assert await occurrences(engine) == [at(12, 10), at(12, 11), at(12, 12)]
    assert (await engine.schedules.get("each minute")).status is ScheduleStatus.COMPLETED


async def test_a_start_in_the_past_only_says_where_to_count_from(engine: Engine, clock: FrozenClock) -> None:
    schedule = await create(engine, every=7 * MINUTE, starts_at=at(11, 0))

    assert schedule.next_run_at == at(12, 3)


async def test_intervals_are_elapsed_time_when_clocks_change(engine: Engine, clock: FrozenClock) -> None:
    clock.instant = at(0, 0).replace(month=3, day=29)  # Berlin leaves out an hour at 01:00 UTC
    await clock.freeze()
    await create(engine, every=HOUR, tz="Europe/Berlin", catch_up=CatchUp.REPLAY)
    await clock.advance(4 * HOUR)
    await fire(engine)

    assert await occurrences(engine) == [clock.instant - HOUR * n for n in (3, 2, 1, 0)]


async def test_a_limit_counts_what_is_replayed(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, catch_up=CatchUp.REPLAY, replay_limit=5, max_occurrences=3)
    await clock.advance(10 * MINUTE)
    await fire(engine)

    after = await engine.schedules.get("each minute")
    assert (after.fired, after.status) == (3, ScheduleStatus.COMPLETED)
    assert await occurrences(engine) == [at(12, 6), at(12, 7), at(12, 8)]


async def test_jitter_is_the_same_each_time_and_ends_before_the_next(engine: Engine, clock: FrozenClock) -> None:
    await create(engine, jitter=HOUR)
    await clock.advance(MINUTE - SECOND * 30)
    await fire(engine)
    [job] = await made(engine)

    assert at(12, 1) <= job.run_at < at(12, 2)
