"""Can schedules be made, changed, paused and removed, and does each occurrence make one job?"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse.engine.duties import duties
from pulse.engine.duties.duties import AT_ONCE, PRUNE_EVERY
from pulse.engine.engine import Engine
from pulse.model.jobs import Job, JobFilter, JobStatus
from pulse.model.schedules import (
    CatchUp,
    Fire,
    FireOutcome,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleFilter,
    ScheduleStatus,
)
from pulse.store.connections.pool import Connection
from pulse.store.jobs.rows import ReadyTopic
from tests.clock import FrozenClock
from tests.factories import a_new_job, a_report, claim_one

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday, half a minute past


@pytest.fixture(autouse=True)
async def at_noon(clock: FrozenClock) -> None:
    clock.instant = NOON
    await clock.freeze()


def a_schedule(**given: Any) -> NewSchedule:
    if not {"cron", "every", "run_at", "delay"} & given.keys():
        given["cron"] = "* * * * *"
    defaults: dict[str, Any] = {"name": "each minute", "job": a_new_job()}
    return NewSchedule(**defaults | given)


async def create(engine: Engine, **given: Any) -> Schedule:
    return (await engine.schedules.create(a_schedule(**given)))[0]


async def fire(engine: Engine) -> int:
    """Everything that is due."""
    fired = 0
    while now := await engine.duties.fires.fire_due():
        fired += now
    return fired


async def made(engine: Engine) -> list[Job]:
    """The jobs of schedules, in the order of their occurrences."""
    page = await engine.jobs.list_page(JobFilter(), limit=500)
    return sorted((job for job in page.jobs if job.schedule_id), key=lambda job: job.scheduled_for or NOON)


async def test_jobs_are_listed_by_their_schedule_newest_first_in_pages(engine: Engine, clock: FrozenClock) -> None:
    """Also once the schedule is deleted, with everything else that is asked for, and in whichever bucket they are."""
    wanted = await create(engine, catch_up=CatchUp.REPLAY, job=a_new_job(topic="mail"))
    await create(engine, name="other", catch_up=CatchUp.REPLAY)
    await engine.jobs.submit([a_new_job()])
    await clock.advance(3 * MINUTE)
    await fire(engine)
    await engine.schedules.edit(wanted.id, {"topic": "post"})
    await clock.advance(2 * MINUTE)
    await fire(engine)
    await engine.schedules.delete(wanted.id)

    first = await engine.jobs.list_page(JobFilter(schedule_id=wanted.id), limit=3)
    second = await engine.jobs.list_page(JobFilter(schedule_id=wanted.id), limit=3, after=first.next)
    mail = await engine.jobs.list_page(JobFilter(schedule_id=wanted.id, topic="mail", status=JobStatus.PENDING))
    none = await engine.jobs.list_page(JobFilter(schedule_id=wanted.id, status=JobStatus.COMPLETED))

    assert [job.scheduled_for for job in first.jobs + second.jobs] == [at(12, minute) for minute in (5, 4, 3, 2, 1)]
    assert {job.schedule_id for job in first.jobs + second.jobs} == {wanted.id}
    assert [job.scheduled_for for job in mail.jobs] == [at(12, 3), at(12, 2), at(12, 1)]
    assert (second.next, none.jobs, none.next) == (None, [], None)


async def log(engine: Engine, name: str = "each minute") -> list[Fire]:
    return (await engine.schedules.fires(name, limit=500)).fires[::-1]


def accounted(fires: list[Fire]) -> int:
    return sum(fire.occurrences for fire in fires)


def at(hour: int, minute: int, second: int = 0) -> datetime:
    return NOON.replace(hour=hour, minute=minute, second=second)


# --- firing


async def test_an_occurrence_makes_one_job_that_knows_where_it_comes_from(engine: Engine, clock: FrozenClock) -> None:
    schedule = await create(engine, job=a_new_job(priority=7, max_attempts=5, tags=("x",), topic="post"))
    assert schedule.next_run_at == at(12, 1)
    assert await fire(engine) == 0
    await clock.advance(timedelta(seconds=30))
    assert await fire(engine) == 1
    assert await fire(engine) == 0
    [job] = await made(engine)
    assert (job.schedule_id, job.scheduled_for) == (schedule.id, at(12, 1))
    assert (job.task, job.topic, job.priority, job.max_attempts, job.tags) == ("mail", "post", 7, 5, '["x"]')
    claim = await claim_one(engine, "post")
    assert claim.scheduled_for == at(12, 1)
    after = await engine.schedules.get("each minute")
    assert (after.next_run_at, after.last_run_at, after.fired) == (at(12, 2), at(12, 1), 1)
    [line] = await log(engine)
    assert (line.outcome, line.job_id, line.job_status) == (FireOutcome.FIRED, job.id, JobStatus.RUNNING)
    assert line.late == timedelta()


async def test_many_schedules_fire_together_from_several_processes(engine: Engine, clock: FrozenClock) -> None:
    for number in range(30):
        await create(engine, name=f"s{number}", every=MINUTE)
    await clock.advance(MINUTE)
    assert sum(await asyncio.gather(*(engine.duties.fires.fire_due() for _ in range(4)))) == 30
    assert len({job.schedule_id for job in await made(engine)}) == 30 == len(await made(engine))


@pytest.mark.parametrize(
    ("catch_up", "jobs", "outcomes"),
    [
        (CatchUp.FIRE_ONCE, 1, {FireOutcome.FIRED: 1, FireOutcome.COALESCED: 59}),
        (CatchUp.REPLAY, 60, {FireOutcome.FIRED: 60}),
        (CatchUp.SKIP, 0, {FireOutcome.SKIPPED: 60}),
    ],
)
async def test_an_hour_away_is_caught_up_with_as_the_policy_says(
    engine: Engine, clock: FrozenClock, catch_up: CatchUp, jobs: int, outcomes: dict[FireOutcome, int]
) -> None:
    await create(engine, catch_up=catch_up)
    await clock.advance(HOUR)
    await fire(engine)
    found = await made(engine)
    assert len(found) == jobs
    lines = await log(engine)
    assert accounted(lines) == 60
    assert {kind: accounted([line for line in lines if line.outcome is kind]) for kind in outcomes} == outcomes
    assert max(line.newest for line in lines) == at(13, 0)
    assert (await engine.schedules.get("each minute")).next_run_at == at(13, 1)
    if catch_up is CatchUp.REPLAY:
        assert [job.scheduled_for for job in found] == [at(12, 0) + MINUTE * n for n in range(1, 61)]


@pytest.mark.parametrize(("late", "jobs"), [(timedelta(seconds=9), 1), (timedelta(seconds=11), 0)])
async def test_one_alone_is_skipped_if_it_is_late(
    engine: Engine, clock: FrozenClock, late: timedelta, jobs: int
) -> None:
    await create(engine, cron="1 12 * * *", catch_up=CatchUp.SKIP)
    await clock.advance(timedelta(seconds=30) + late)
    await fire(engine)
    assert len(await made(engine)) == jobs
    [line] = await log(engine)
    assert line.outcome is (FireOutcome.FIRED if jobs else FireOutcome.SKIPPED)
    assert (await engine.schedules.get("each minute")).next_run_at == at(12, 1) + 24 * HOUR


async def test_what_fires_is_counted_and_workers_are_told_by_the_most_urgent(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for priority in (3, 9, 1):
        await create(engine, name=f"p{priority}", job=a_new_job(topic="post", priority=priority))
    await create(engine, name="other", job=a_new_job(topic="other"))
    told: list[ReadyTopic] = []
    monkeypatch.setattr(engine.notifications, "notify_ready", told.extend)
    await clock.advance(MINUTE)
    await fire(engine)
    assert sorted(told) == [ReadyTopic("other", 0), ReadyTopic("post", 9)]
    counts = {topic.topic: topic.counts for topic in await engine.jobs.counts()}
    assert {topic: count[JobStatus.PENDING] for topic, count in counts.items()} == {"other": 1, "post": 3}
    assert sum(engine.instruments.fires.counts) == 4


async def test_two_hundred_broken_schedules_at_the_head_delay_nobody(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    """Their zone has gone, and half of them the database refuses as well."""
    for number in range(100):
        await create(engine, name=f"zone {number}", tz="Europe/Berlin")
        await create(engine, name=f"task {number}", job=a_new_job(task="forbidden"))
    for number in range(50):
        await create(engine, name=f"good {number}", job=a_new_job(task="allowed"), every=MINUTE)
    await conn.execute("update pulse.schedules set tz = 'Atlantis/Center' where name like 'zone %'")
    await conn.execute("alter table pulse.jobs add constraint forbidden check (task <> 'forbidden') not valid")
    try:
        await clock.advance(MINUTE)
        await engine.duties.fires.fire_due()  # one batch, however many parts it falls into
    finally:
        await conn.execute("alter table pulse.jobs drop constraint forbidden")

    assert len(await made(engine)) == 50
    page = await engine.schedules.list_page(ScheduleFilter(status=ScheduleStatus.BROKEN), limit=500)
    reasons = Counter("Atlantis" in (schedule.error or "") for schedule in page.schedules)
    assert reasons == {True: 100, False: 100}
    assert all(schedule.next_run_at is None for schedule in page.schedules)
    assert await fire(engine) == 0


async def test_an_interval_is_counted_from_its_last_target_and_not_from_when_it_fired(
    engine: Engine, clock: FrozenClock
) -> None:
    await create(engine, every=10 * MINUTE)
    for _ in range(5):
        await clock.advance(10 * MINUTE + timedelta(seconds=7))
        await fire(engine)

    assert [job.scheduled_for for job in await made(engine)] == [NOON + 10 * MINUTE * n for n in range(1, 6)]


async def test_jitter_spreads_the_starts_the_same_way_each_time_and_before_the_next(
    engine: Engine, clock: FrozenClock
) -> None:
    for number in range(20):
        await create(engine, name=f"s{number}", jitter=HOUR)
    await clock.advance(timedelta(seconds=30))
    await fire(engine)
    jobs = await made(engine)

    spread = [job.run_at - at(12, 1) for job in jobs]
    assert len(set(spread)) == 20
    assert all(timedelta() <= each < MINUTE for each in spread), "an hour would reach over the next minute"
    assert {job.status for job in jobs} == {JobStatus.SCHEDULED}


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({"max_occurrences": 2}, [at(12, 1), at(12, 2)]),
        ({"starts_at": at(12, 3), "ends_at": at(12, 5)}, [at(12, 3), at(12, 4)]),
        ({"run_at": at(12, 2)}, [at(12, 2)]),
        ({"delay": MINUTE}, [NOON + MINUTE]),
        ({"every": 2 * MINUTE, "ends_at": at(12, 6)}, [NOON + 2 * MINUTE, NOON + 4 * MINUTE]),
    ],
)
async def test_a_timetable_that_ends_is_completed_and_kept(
    engine: Engine, clock: FrozenClock, given: dict[str, Any], starts: list[datetime]
) -> None:
    await create(engine, **given)
    for _ in range(10):
        await clock.advance(MINUTE)
        await fire(engine)

    assert [job.scheduled_for for job in await made(engine)] == starts
    over = await engine.schedules.get("each minute")
    assert (over.status, over.next_run_at, over.fired) == (ScheduleStatus.COMPLETED, None, len(starts))
    assert accounted(await log(engine)) == len(starts)


@pytest.mark.parametrize(
    ("overlap", "outcomes"),
    [
        (Overlap.ALLOW, ["FIRED", "FIRED", "FIRED", "FIRED"]),
        (Overlap.SKIP, ["FIRED", "SKIPPED", "SKIPPED", "FIRED"]),
        (Overlap.BUFFER_ONE, ["FIRED", "BUFFERED", "FIRED", "SKIPPED", "BUFFERED"]),
    ],
)
async def test_what_happens_while_the_job_before_is_unfinished(
    engine: Engine, clock: FrozenClock, overlap: Overlap, outcomes: list[str]
) -> None:
    await create(engine, overlap=overlap)
    for _ in range(3):
        await clock.advance(MINUTE)
        await fire(engine)
    await engine.claims.report([a_report(await claim_one(engine))])
    await engine.duties.fires.fire_buffered()
    await clock.advance(MINUTE)
    await fire(engine)

    assert [line.outcome for line in await log(engine)] == outcomes
    waited = [job.scheduled_for for job in await made(engine)]
    assert (at(12, 2) in waited) == (overlap is not Overlap.SKIP)


async def test_old_lines_are_pruned_round_after_round_and_young_ones_stay(
    engine: Engine, clock: FrozenClock, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 3)  # schedules of a look, and lines of a round
    for number in range(7):
        await create(engine, name=f"s{number}", every=HOUR)
    for _ in range(4):
        await clock.advance(HOUR)
        await fire(engine)
    await engine.schedules.delete("s3")  # nobody asks for its lines any more; they go when they are old
    await clock.advance(engine.settings.keep_fires - 90 * MINUTE)

    sleeps = [await engine.duties.prune() for _ in range(12)]

    left = await conn.fetch("select count(*) from pulse.fires group by schedule_id")
    assert [row["count"] for row in left] == [2] * 7, "two of the four are younger than that"
    assert sleeps.count(AT_ONCE) >= 4
    assert await engine.duties.prune() == PRUNE_EVERY
