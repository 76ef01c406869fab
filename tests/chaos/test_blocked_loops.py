"""A handler keeps its worker's event loop from turning (F19): does it, and do its neighbours, keep their leases?"""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos import checks
from tests.chaos.app import block_the_loop, in_a_thread, on_the_loop, spin_on_the_loop
from tests.chaos.figures import scaled
from tests.chaos.stage import LEASE, SLOTS, Stage
from tests.chaos.story import SLOW_CLAIMS

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WORKERS = 3
LONG = 3 * LEASE


async def test_a_blocked_loop_keeps_its_leases(stage: Stage) -> None:
    await block_loops(stage)


@pytest.mark.xfail(reason="known: such claims are charged unbegun; docs/operations/faults.md")
async def test_a_loop_is_blocked_while_jobs_are_on_their_way(stage: Stage) -> None:
    await block_while_claiming(stage, times=scaled(10))


@pytest.mark.parametrize(("bug", "finding"), [("no heartbeat", "jobs of healthy workers that were reaped")])
async def test_blocked_loops_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await block_loops(stage)


async def block_loops(stage: Stage) -> None:
    """One worker sleeps in `time.sleep`, one spins, each beside threads that take as long; a third one watches."""
    await stage.fleet.start_many(WORKERS)
    await asyncio.sleep(LEASE)
    submitted = await stage.submit(in_a_thread.call([LONG]) for _ in range(WORKERS * SLOTS["threads"]))
    for mistake in (block_the_loop, spin_on_the_loop):
        submitted += await stage.submit([mistake.call(LONG)])
        await asyncio.sleep(0.5)  # whose loop stands still claims nothing, so the second one goes elsewhere
    await stage.wait_until_finished(3 * LONG)

    story = await stage.story()
    blocked = [job for job in story.jobs.values() if job["task"].endswith("_the_loop")]
    stage.figure("seconds a loop stood still", LONG)
    stage.figure("jobs that took as long beside", len(submitted) - len(blocked))
    stage.figure("most attempts of a job", max(job["attempt"] for job in story.jobs.values()))
    again = [
        f"{job['task']}: attempt {job['attempt']}, {job['last_error']}"
        for job in story.jobs.values()
        if job["attempt"] != 1
    ]
    checks.hold(
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.say("jobs that did not end at their first attempt", again),
    )


async def block_while_claiming(stage: Stage, *, times: int) -> None:
    """A handler blocks the loop while the answer to a claim is on its way: those jobs are held by a worker that does
    not know it yet. Claims are slow and everything else is brief, so that there is nearly always one on its way."""
    await stage.conn.execute(SLOW_CLAIMS)
    await stage.fleet.start_many(2)
    submitted = []
    for _ in range(times):
        calls = [block_the_loop.call(2 * LEASE, after=stage.random.uniform(0, 0.1))]
        calls += [task.call([0.005]) for task in (on_the_loop, in_a_thread) for _ in range(40)]
        submitted += await stage.submit(calls)
        await asyncio.sleep(2 * LEASE + 1)
    await stage.wait_until_finished()

    story = await stage.story()
    stage.figure("times a loop was blocked", times)
    stage.figure("seconds each", 2 * LEASE)
    stage.figure("jobs", len(submitted))
    stage.figure("claims given back, uncharged", sum(job["refunded"] for job in story.jobs.values()))
    stage.figure(
        "claims taken from a worker that lives", sum(failure.error == checks.EXPIRED for failure in story.failures)
    )
    stage.figure("handlers begun after their job was completed", len(checks.begun_too_late(story)))
    checks.hold(
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, stage.fleet.absences),
        checks.charged_without_a_start(story),
    )
