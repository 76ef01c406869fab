"""A handler takes its process with it (F18): does it end as a dead letter, and what does it cost its neighbours?"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from pulse.sdk.task import Call
from tests.chaos import checks
from tests.chaos.app import (
    BRIEF,
    in_a_process,
    in_a_thread,
    kill_from_a_thread,
    kill_from_the_loop,
    on_the_loop,
    segfault,
)
from tests.chaos.figures import scaled
from tests.chaos.stage import Stage
from tests.chaos.story import Story

pytestmark = [pytest.mark.chaos, pytest.mark.slow]


async def test_handlers_that_crash_their_own_process(stage: Stage) -> None:
    await crash_processes(stage, crashing=scaled(20), neighbours=scaled(300))


async def test_handlers_that_kill_their_worker(stage: Stage) -> None:
    await kill_from_within(stage, poison=scaled(4), neighbours=scaled(300))


@pytest.mark.parametrize(
    ("bug", "finding"), [("nameless crash", "SIGSEGV"), ("broken pool", "neighbours that were charged")]
)
async def test_crashes_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await crash_processes(stage, crashing=5, neighbours=90)


@pytest.mark.parametrize(("bug", "finding"), [("endless budget", "jobs never finished")])
async def test_killers_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_from_within(stage, poison=1, neighbours=10, patience=25)


async def crash_processes(stage: Stage, *, crashing: int, neighbours: int) -> None:
    await stage.fleet.start_many(1)
    calls = [*_neighbours(stage, neighbours), *(segfault.call() for _ in range(crashing))]
    stage.random.shuffle(calls)
    submitted = await stage.submit(calls)
    await stage.wait_until_finished(120)

    story = await stage.story()
    poison = {job_id for job_id, job in story.jobs.items() if job["task"].endswith("segfault")}
    charged = _charged(story)
    wrong = [
        f"{job_id}: charged {charged[job_id]}, {story.jobs[job_id]['last_error']!r}"
        for job_id in poison
        if charged[job_id] != BRIEF.max_attempts or "SIGSEGV" not in str(story.jobs[job_id]["last_error"])
    ]
    touched = [f"{job_id}: charged {charged[job_id]}" for job_id in story.jobs.keys() - poison if charged[job_id] != 1]
    stage.figure("jobs whose handler segfaults", len(poison))
    stage.figure("crashes", sum(note.job_id in poison for note in story.starts))
    stage.figure("neighbours, each charged once", len(submitted) - len(poison) - len(touched))
    checks.hold(
        checks.always(story, _expected(submitted, poison)),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.say("segfaults that were not charged thrice, or whose last error does not name SIGSEGV", wrong),
        checks.say("neighbours that were charged for it", touched),
    )


async def kill_from_within(stage: Stage, *, poison: int, neighbours: int, patience: float = 120) -> None:
    """Two workers, started again whenever they die, as a supervisor would.

    A dead worker cannot say which of its jobs killed it, so all that it held are charged: neighbours get attempts
    enough to outlast that.
    """
    await stage.fleet.start_many(2)
    async with supervised(stage):
        killers = [kill_from_the_loop.call() if number % 2 else kill_from_a_thread.call() for number in range(poison)]
        calls = [*_neighbours(stage, neighbours, kinds=(on_the_loop, in_a_thread)), *killers]
        stage.random.shuffle(calls)
        submitted = await stage.submit(calls)
        await stage.wait_until_finished(patience)

    story = await stage.story()
    killing = {job_id for job_id, job in story.jobs.items() if "kill_from" in job["task"]}
    charged = _charged(story)
    wrong = [
        f"{job_id}: charged {charged[job_id]}, {story.jobs[job_id]['last_error']!r}"
        for job_id in killing
        if charged[job_id] != BRIEF.max_attempts or story.jobs[job_id]["last_error"] != checks.EXPIRED
    ]
    others = story.jobs.keys() - killing
    stage.figure("jobs whose handler kills its worker", len(killing))
    stage.figure("workers it has killed", len(stage.fleet.deaths))
    stage.figure("neighbours", len(others))
    stage.figure("  charged for a neighbour's deed", sum(charged[job_id] > 1 for job_id in others))
    stage.figure("  most that one was charged", max(charged[job_id] for job_id in others))
    checks.hold(
        checks.always(story, _expected(submitted, killing)),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.say(f"killers that were not charged {BRIEF.max_attempts} times as {checks.EXPIRED!r}", wrong),
    )


def _neighbours(stage: Stage, number: int, kinds: Any = (on_the_loop, in_a_thread, in_a_process)) -> list[Call[Any]]:
    return [kinds[index % len(kinds)].call([stage.random.uniform(0.005, 0.2)]) for index in range(number)]


def _charged(story: Story) -> dict[UUID, int]:
    return {job_id: job["attempt"] - job["refunded"] for job_id, job in story.jobs.items()}


def _expected(submitted: list[UUID], poison: set[UUID]) -> dict[UUID, str]:
    return {job_id: "DEAD_LETTERED" if job_id in poison else "COMPLETED" for job_id in submitted}


@asynccontextmanager
async def supervised(stage: Stage) -> AsyncIterator[None]:
    """Whoever dies by SIGKILL is started again."""

    async def supervise() -> None:
        while True:
            for member in stage.fleet.members:
                if member.killed_at is None and not member.is_alive:
                    assert member.process.returncode == -signal.SIGKILL, stage.fleet.last_words()
                    member.killed_at = time.time()
                    stage.fleet.start()
            await asyncio.sleep(0.02)

    supervising = asyncio.create_task(supervise())
    try:
        yield
        assert not supervising.done(), f"a worker died another death: {supervising.exception()}"
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
