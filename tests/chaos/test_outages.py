"""The database is killed under load and comes back (F5): does everything stand that was acknowledged?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from pulse.model.errors import Unavailable
from tests.chaos import checks, notes
from tests.chaos.asking import until
from tests.chaos.figures import scaled
from tests.chaos.stage import LEASE, Stage
from tests.chaos.test_kills import mixed_work

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

WORKERS = 2
BATCH = 25
BACK_WITHIN = 15.0  # seconds from the server's return to the next accepted result


async def test_the_database_is_killed(stage: Stage) -> None:
    await kill_the_database(stage, outages=scaled(5))


@pytest.mark.parametrize(
    ("bug", "finding"),
    [
        ("asynchronous commit", "results that were taken"),
        ("no patience", "no result was taken"),
    ],
)
async def test_outages_find(stage: Stage, bug: str, finding: str) -> None:
    with stage.finding(finding):
        await kill_the_database(stage, outages=3)


async def kill_the_database(stage: Stage, *, outages: int) -> None:
    fleet = stage.fleet
    await fleet.start_many(WORKERS)
    down: list[float] = []
    back: list[float] = []
    async with traffic(stage) as sent:
        for _ in range(outages):
            await asyncio.sleep(stage.random.uniform(1, 3))
            began_at = time.monotonic()
            await asyncio.to_thread(stage.server.kill)
            await asyncio.sleep(stage.random.uniform(0, 1.5 * LEASE))
            await asyncio.to_thread(stage.server.revive)
            down.append(time.monotonic() - began_at)
            back.append(await _until_back(stage))
        await asyncio.sleep(1)
    await stage.reconnect()
    await stage.wait_until_finished()

    story = await stage.story()
    taken = {note.job_id for note in story.notes if note.kind == "report" and note.word.startswith("COMPLETE:A")}
    ended = [member.pid for member in fleet.members if not member.is_alive]
    stage.figure("times the database was killed", outages)
    stage.figure("longest it was away, s", max(down))
    stage.figure("longest from its return to the next result, s", max(back))
    stage.figure("jobs acknowledged to who submitted them", len(sent.acknowledged))
    stage.figure("  submits that failed and said so", sent.refused)
    stage.figure("results acknowledged to workers", len(taken))
    stage.figure("leases that ended", sum(failure.error == checks.EXPIRED for failure in story.failures))
    stage.figure("handlers that ran to their end twice", checks.twice_to_the_end(story))
    checks.hold(
        checks.always(story, dict.fromkeys(sent.acknowledged, "COMPLETED")),
        [f"workers ended: {ended}\n{fleet.last_words()}"] if ended else [],
        [f"submits failed with something else: {sent.surprises}"] if sent.surprises else [],
    )


async def _until_back(stage: Stage) -> float:
    """How long until a worker has a result accepted again."""
    since, began_at = time.time(), time.monotonic()

    async def is_one_taken() -> bool:
        return any(note.kind == "report" and note.at > since for note in notes.read(stage.folder))

    await until(is_one_taken, BACK_WITHIN, lambda: f"no result was taken\n{stage.fleet.last_words()}")
    return time.monotonic() - began_at


@dataclass
class Sent:
    acknowledged: set[UUID] = field(default_factory=set)
    refused: int = 0
    surprises: list[str] = field(default_factory=list)


@asynccontextmanager
async def traffic(stage: Stage) -> AsyncIterator[Sent]:
    """Submits without a pause that matters, and remembers what was acknowledged."""
    sent = Sent()

    async def send() -> None:
        while True:
            try:
                sent.acknowledged |= set(await stage.submit(mixed_work(stage.random, BATCH)))
            except Unavailable:
                sent.refused += 1
            except Exception as error:
                sent.surprises.append(repr(error))
            await asyncio.sleep(0.06)

    sending = asyncio.create_task(send())
    try:
        yield sent
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
