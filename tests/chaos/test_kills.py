"""Workers are killed (F1): is anything lost, is anything done again that was done, how soon is the rest taken up?"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from pulse.sdk.task import Call
from tests.chaos import checks
from tests.chaos.app import in_a_thread, on_the_loop
from tests.chaos.asking import until
from tests.chaos.figures import scaled
from tests.chaos.fleet import Member
from tests.chaos.stage import LEASE, WATCHDOG, Stage

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WORKERS = 4
SLACK = 2.0
SETTLED = LEASE + 2 * WATCHDOG  # a watchdog judges nobody before it has lived for a lease


async def test_workers_are_killed(stage: Stage) -> None:
    await kill_workers(stage, jobs=scaled(5_000), kills=scaled(200))


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("no watchdog", "jobs never finished"),
        ("hasty watchdog", "jobs of healthy workers that were reaped"),
        ("slow watchdog", "the longest took"),
        ("two step watchdog", "jobs moved after they had ended"),
    ],
)
async def test_kills_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_workers(stage, jobs=250, kills=10, patience=12)


async def kill_workers(stage: Stage, *, jobs: int, kills: int, patience: float = 60) -> None:
    """Jobs come in bursts, and somewhere within each a worker is killed, so that it dies with work in its hands."""
    fleet = stage.fleet
    await fleet.start_many(WORKERS)
    submitted = []
    for number in range(kills):
        victim = await choose_victim(stage)
        burst = jobs * (number + 1) // kills - jobs * number // kills
        submitted += await stage.submit(mixed_work(stage.random, burst))
        await asyncio.sleep(stage.random.uniform(0, 0.1))
        victim.kill()
        fleet.start()
        await asyncio.sleep(stage.random.uniform(0.2, 1.0))
    await stage.wait_until_finished(patience)

    story = await stage.story()
    seconds, never = checks.recoveries(story, fleet.deaths)
    limit, longest = LEASE + WATCHDOG + SLACK, max(seconds, default=0.0)
    stage.figure("jobs", len(submitted))
    stage.figure("workers killed", len(fleet.deaths))
    stage.figure("claims taken from the dead", len(seconds))
    stage.figure("longest until one ran again, s", longest)
    stage.figure(f"  the limit: lease {LEASE:g} + watchdog {WATCHDOG:g} + {SLACK:g}, s", limit)
    stage.figure("handlers that ran to their end twice", checks.twice_to_the_end(story))
    stage.figure("most attempts of a job", max(job["attempt"] for job in story.jobs.values()))
    late = [took for took in seconds if took > limit]
    checks.hold(
        checks.always(story, dict.fromkeys(submitted, "COMPLETED")),
        checks.reaped_alive(story, fleet.absences),
        never,
        [f"{len(late)} jobs of dead workers ran later than {limit:g} s; the longest took {longest:.2f} s"]
        if late
        else [],
        fleet.unexpected(),
    )


def mixed_work(random: Random, number: int) -> list[Call[Any]]:
    return [random.choice((on_the_loop, in_a_thread)).call([random.uniform(0.005, 0.05)]) for _ in range(number)]


async def choose_victim(stage: Stage) -> Member:
    """Any that is ready, as long as another one is left whose watchdog has lived for a lease: if nobody lives that
    long, nobody judges leases, and there would be no limit to measure against."""
    candidates: list[Member] = []

    async def are_there_some() -> list[Member]:
        ready = [member for member in stage.fleet.alive if member.ready_at]
        settled = {member for member in ready if member.has_been_ready_for(SETTLED)}
        candidates[:] = [member for member in ready if settled - {member}]
        return candidates

    await until(are_there_some, 30, "no two workers lived for a lease")
    return stage.random.choice(candidates)
