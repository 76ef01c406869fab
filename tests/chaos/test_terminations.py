"""Workers are told to stop while they are busy (F21): do they end in time, and does anybody pay for it?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any
from uuid import UUID

import pytest

from pulse.model.jobs import JobStatus
from pulse.sdk.task import Call
from tests.chaos import checks
from tests.chaos.app import in_a_thread, on_the_loop
from tests.chaos.figures import scaled
from tests.chaos.fleet import THE_COMMAND, Member
from tests.chaos.stage import GRACE, Stage
from tests.chaos.story import pid_of

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WORKERS = 2
WAITING = 40  # jobs at least
MARGIN = 2.0  # seconds beyond the grace, for the last reports and the process itself
AWAY = GRACE + 10 + 2 + 2 + MARGIN  # with the patience of the last reports, that of a claim and that of the duties
LIMITS = {1: GRACE + MARGIN, 2: MARGIN}  # by the number of signals
CODES = {1: 0, 2: 1}  # 1: told twice, it did not let everything finish


async def test_workers_are_told_to_stop(stage: Stage) -> None:
    await terminate_workers(stage, once=scaled(50), twice=scaled(10))


async def test_a_worker_is_told_to_stop_while_the_database_is_away(stage: Stage) -> None:
    await terminate_in_an_outage(stage)


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("charged release", "PENDING jobs that were charged"),
        ("no release", "left RUNNING"),
        ("no drain", "left RUNNING"),
        ("slow drain", "did not end"),
    ],
)
async def test_terminations_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await terminate_workers(stage, once=3, twice=3)


async def terminate_workers(stage: Stage, *, once: int, twice: int) -> None:
    """Told once, a worker lets its handlers finish. Told twice, it gives them back."""
    fleet = stage.fleet
    fleet.command = THE_COMMAND
    await fleet.start_many(WORKERS)
    orders = [1] * once + [2] * twice
    stage.random.shuffle(orders)
    problems: list[str] = []
    longest = {1: 0.0, 2: 0.0}
    async with steady_load(stage) as submitted:
        for signals in orders:
            await asyncio.sleep(stage.random.uniform(0.1, 0.8))
            member = stage.random.choice(fleet.alive)
            code, seconds = await member.terminate(signals, LIMITS[signals])
            longest[signals] = max(longest[signals], seconds)
            problems += _look_at_end(member, signals, code)
            problems += await _look_at_rows(stage, member.pid)
            await fleet.start_many(1)
    await stage.wait_until_finished()

    story = await stage.story()
    stage.figure("workers told to stop", once)
    stage.figure("longest until one had ended, s", longest[1])
    stage.figure(f"  the limit: grace {GRACE:g} + {MARGIN:g}, s", LIMITS[1])
    stage.figure("workers told twice", twice)
    stage.figure("longest until one had ended, s", longest[2])
    stage.figure("jobs", len(submitted))
    stage.figure("claims given back, uncharged", sum(job["refunded"] for job in story.jobs.values()))
    stage.figure(
        "jobs charged more than once", sum(job["attempt"] - job["refunded"] > 1 for job in story.jobs.values())
    )
    checks.hold(
        problems,
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.charged_without_a_start(story),
        fleet.unexpected(),
    )


async def terminate_in_an_outage(stage: Stage) -> None:
    """With results in its hands that it cannot report. They are lost with it, and the jobs are done again."""
    stage.fleet.command = THE_COMMAND
    [member] = await stage.fleet.start_many(1)
    submitted = await stage.submit(task.call([0.5]) for task in (on_the_loop, in_a_thread) for _ in range(4))
    await asyncio.sleep(0.3)
    await asyncio.to_thread(stage.server.kill)
    await asyncio.sleep(0.5)
    code, seconds = await member.terminate(1, AWAY)
    await asyncio.to_thread(stage.server.revive)
    await stage.reconnect()
    await stage.fleet.start_many(1)
    await stage.wait_until_finished()

    story = await stage.story()
    stage.figure("seconds until it had ended", seconds)
    stage.figure("  the limit: grace, reports, patience, margin", AWAY)
    stage.figure("exit code", str(code))
    stage.figure("results that were lost with it", sum(failure.error == checks.EXPIRED for failure in story.failures))
    checks.hold(
        [f"it did not end within {AWAY:g} s"] if code is None else [],
        [f"it ended with {code}, as if nothing had been lost"] if code == 0 else [],
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
    )


def _look_at_end(member: Member, signals: int, code: int | None) -> list[str]:
    if code is None:
        member.kill()
        return [f"process {member.pid} did not end within {LIMITS[signals]:g} s of {signals} SIGTERM"]
    return [] if code == CODES[signals] else [f"process {member.pid} ended with code {code} after {signals} SIGTERM"]


async def _look_at_rows(stage: Stage, pid: int) -> list[str]:
    """Right after its end. Nothing fails here, so whatever waits has been charged nothing."""
    rows = await stage.conn.fetch(
        "select id, status, attempt, refunded, locked_by from pulse.jobs where finished_at is null"
    )
    left = [f"{row['id']}" for row in rows if row["status"] == "RUNNING" and pid_of(row["locked_by"]) == pid]
    charged = [
        f"{row['id']}: {row['attempt']} - {row['refunded']}"
        for row in rows
        if row["status"] == "PENDING" and row["attempt"] != row["refunded"]
    ]
    return [
        *checks.say(f"jobs left RUNNING by process {pid}", left),
        *checks.say(f"PENDING jobs that were charged, after the end of process {pid}", charged),
    ]


@asynccontextmanager
async def steady_load(stage: Stage) -> AsyncIterator[list[UUID]]:
    """There is always more waiting than the workers can take."""
    submitted: list[UUID] = []

    async def feed() -> None:
        while True:
            waiting = await stage.engine.jobs.counts()
            if sum(count.counts.get(JobStatus.PENDING, 0) for count in waiting) < WAITING:
                submitted.extend(await stage.submit(_some_work(stage.random)))
            await asyncio.sleep(0.05)

    feeding = asyncio.create_task(feed())
    try:
        yield submitted
        assert not feeding.done(), f"nothing could be submitted: {feeding.exception()}"
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


def _some_work(random: Random) -> list[Call[Any]]:
    """Mostly brief, and some that are sure to be there when a worker is told."""
    return [
        random.choice((on_the_loop, in_a_thread)).call(
            [random.uniform(0.2, 1) if random.random() < 0.2 else random.uniform(0.005, 0.05)]
        )
        for _ in range(WAITING)
    ]
