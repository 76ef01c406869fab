"""A process dies, or loses its connection, at every place of a fire: is anything lost, is anything made twice?"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from pulse.engine.engine import Engine
from pulse.model.schedules import CatchUp, FireOutcome, Overlap
from pulse.settings import Settings
from tests.clock import FrozenClock
from tests.engine.test_schedules import MINUTE, NOON, create, log, made

ROOT = Path(__file__).parents[2]
STATEMENTS = ("begin", "due_schedules", "busy_schedules", "fire_regular", "fire_schedules", "commit")
PLACES = [*product(("before", "after"), STATEMENTS), ("sent", "commit"), ("answered", "commit")]
COMMITTED = (("after", "commit"), ("answered", "commit"))
Die = Callable[[str, str, str], int]


@pytest.fixture(scope="module")
def processes() -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "tests.system.fire_and_die")
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.fixture
def fire_and_die(processes: subprocess.Popen[str], settings: Settings) -> Die:
    def fire(when: str, what: str, how: str) -> int:
        assert processes.stdin
        assert processes.stdout
        processes.stdin.write(f"{settings.database_url} {when} {what} {how}\n")
        processes.stdin.flush()
        return int(processes.stdout.readline())

    return fire


@pytest.mark.parametrize("how", ["killed", "cut off"])
@pytest.mark.parametrize(("when", "what"), PLACES)
async def test_a_fire_that_ends_anywhere_is_made_good_by_the_next(
    engine: Engine, clock: FrozenClock, fire_and_die: Die, when: str, what: str, how: str
) -> None:
    clock.instant = NOON
    await clock.freeze()
    await create(engine, name="a", overlap=Overlap.SKIP)
    await create(engine, name="b", every=MINUTE, catch_up=CatchUp.REPLAY)
    await create(engine, name="c", run_at=NOON + MINUTE, jitter=timedelta(minutes=5))
    await create(engine, name="d", cron="1 12 * * *")
    await clock.advance(3 * MINUTE)

    code = fire_and_die(when, what, how.replace(" ", "_"))
    if (when, what) in COMMITTED or how == "cut off":
        assert len(await made(engine)) == 6
    while await engine.duties.fires.step() <= timedelta(seconds=1):
        pass

    assert code == (-signal.SIGKILL if how == "killed" else 0)
    jobs = await made(engine)
    assert sorted((job.schedule_id, job.scheduled_for) for job in jobs) == sorted(
        {(job.schedule_id, job.scheduled_for) for job in jobs}
    )
    assert len(jobs) == 1 + 3 + 1 + 1
    found = {name: await engine.schedules.get(name) for name in "abcd"}
    assert {name: schedule.fired for name, schedule in found.items()} == {"a": 1, "b": 3, "c": 1, "d": 1}
    lines = [line for name in "abcd" for line in await log(engine, name) if line.outcome is FireOutcome.FIRED]
    assert {line.job_id for line in lines} == {job.id for job in jobs}
