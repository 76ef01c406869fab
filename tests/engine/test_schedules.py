"""Can schedules be made, changed, paused and removed, and does each occurrence make one job?"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse.engine.engine import Engine
from pulse.engine.schedules import Schedules
from pulse.model.jobs import Job, JobFilter, JobStatus
from pulse.model.schedules import (
    CatchUp,
    Fire,
    FireOutcome,
    NewSchedule,
    Schedule,
)
from tests.clock import FrozenClock
from tests.factories import a_new_job, claim_one

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday, half a minute past


@pytest.fixture(autouse=True)
async def at_noon(clock: FrozenClock) -> None:
    clock.instant = NOON
    await clock.freeze()


@pytest.fixture
def schedules(engine: Engine) -> Schedules:
    return engine.schedules


def a_schedule(**given: Any) -> NewSchedule:
    if not {"cron", "every", "at", "after"} & given.keys():
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
    page = await engine.jobs.find(JobFilter(), limit=500)
    return sorted((job for job in page.jobs if job.schedule_id), key=lambda job: job.scheduled_for or NOON)


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
