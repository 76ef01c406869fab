"""Are the counts those of the rows, to the job, whatever changes rows while they are claimed?"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import Claim, JobStatus
from pulse.settings import Settings
from pulse.store import doctor
from pulse.store.connections.pool import Connection, Database
from pulse.store.schema.migrate import migrate
from tests.conftest import open_connection, recreate_database
from tests.factories import a_new_job, a_report, lease_of

TOPICS = [f"mail {number}" for number in range(8)]  # of sixteen buckets, several are used
FEW = 20  # jobs that wait in a topic: so few that claims and changes meet at each of them

# What changes rows that wait, without moving them: the updates of pulse.enqueue, free_keys and the like.
TOUCH = "update pulse.jobs set key_held_until = null where bucket = $1 and topic = $2 and status = 'PENDING'"
ENQUEUE = """select pulse.enqueue($1, '{}', '{"unique_key": "k", "unique_window": 0.001}')"""


async def miscounts(conn: Connection, *statuses: JobStatus) -> list[tuple[object, ...]]:
    """Topic, state, how many the counts say, how many there are: where these differ."""
    wanted = statuses or list(JobStatus)
    return [tuple(each) for each in await doctor.miscounts(conn, buckets=range(16), statuses=wanted, limit=10)]


class Race:
    """Claims, releases and reports of jobs whose rows others change all the time."""

    def __init__(self, engine: Engine, claims: int) -> None:
        self.engine, self.left = engine, claims
        self.random = random.Random(claims)

    async def run(self, settings: Settings) -> None:
        await self.fill()
        async with AsyncExitStack() as stack:
            others = [await stack.enter_async_context(open_connection(settings)) for _ in range(3)]
            changing = [asyncio.create_task(self.change(conn, number)) for number, conn in enumerate(others)]
            await asyncio.gather(*(self.work() for _ in range(6)))
            await asyncio.gather(*changing)

    async def fill(self) -> None:
        await self.engine.jobs.submit([a_new_job(topic=topic, max_attempts=1000) for topic in TOPICS] * FEW)

    async def work(self) -> None:
        """Claim a few; report some, so that others take their place, and give the rest back."""
        while self.left > 0:
            topic = self.random.choice(TOPICS)
            claims = await self.engine.claims.claim(topic, worker="w1", slots=self.random.randint(1, 10))
            self.left -= len(claims)
            reported = [claim for claim in claims if self.random.random() < 0.5]
            await self.end(reported, [claim for claim in claims if claim not in reported])
            if reported or not claims:
                await self.engine.jobs.submit([a_new_job(topic=topic)] * (len(reported) or 1))

    async def end(self, reported: list[Claim], released: list[Claim]) -> None:
        if reported:
            await self.engine.claims.report([a_report(claim) for claim in reported])
        if released:
            await self.engine.claims.release([lease_of(claim) for claim in released])

    async def change(self, conn: Connection, number: int) -> None:
        while self.left > 0:
            topic = self.random.choice(TOPICS)
            if number:
                [row] = await conn.fetch("select pulse.bucket_of_topic($1, $2)", topic, self.engine.jobs.buckets)
                await conn.fetch(TOUCH, row[0], topic)
            else:
                await conn.fetch(ENQUEUE, topic)


@asynccontextmanager
async def a_database_of(buckets: int, settings: Settings, worker_id: str) -> AsyncIterator[Settings]:
    url = await recreate_database(f"counts_{worker_id}")
    own = replace(settings, database_url=url, buckets=buckets)
    await migrate(own)
    yield own


@pytest.mark.parametrize("buckets", [1, 16])
@pytest.mark.parametrize(
    "claims", [500, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.slow])], ids=["few", "many"]
)
async def test_the_counts_are_exact_after_claims_raced_changes_of_their_rows(
    migrated: Settings, worker_id: str, buckets: int, claims: int
) -> None:
    async with a_database_of(buckets, migrated, worker_id) as own, await Database.connect(own) as database:
        engine = Engine(database, buckets=buckets)
        race = Race(engine, claims)

        await race.run(own)
        wrong = await database.run(miscounts)
        await engine.duties.tally()
        wrong_when_folded = await database.run(miscounts)

    assert race.left <= 0
    assert (wrong, wrong_when_folded) == ([], [])


# --- when they are wrong all the same


SPOILERS = {
    "a count that is too high": "insert into pulse.counts values (0, 'mail', 'RUNNING', 5)",
    "a tally that is too many": (
        "insert into pulse.tallies (bucket, topic, from_status, to_status, jobs, moved_at) "
        "values (0, 'mail', 'PENDING', 'RUNNING', 5, now())"
    ),
    "rows removed by hand": "delete from pulse.jobs",
}


@pytest.mark.parametrize("spoiler", SPOILERS)
async def test_counts_that_are_wrong_are_found_and_mended(engine: Engine, conn: Connection, spoiler: str) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(3)])
    [claim] = await engine.claims.claim("mail", worker="w1", slots=1)
    assert await miscounts(conn) == []
    await conn.execute(SPOILERS[spoiler])
    assert await miscounts(conn) != []

    [mended] = await conn.fetch("select pulse.recount()")
    [again] = await conn.fetch("select pulse.recount()")

    assert mended[0] > 0
    assert again[0] == 0
    assert await miscounts(conn) == []
    await engine.duties.tally()
    assert await miscounts(conn) == []
    await engine.claims.release([lease_of(claim)])
    assert await miscounts(conn) == []


async def test_a_state_is_compared_only_if_it_is_asked_for(engine: Engine, conn: Connection) -> None:
    await engine.jobs.submit([a_new_job()])
    await conn.execute("insert into pulse.counts values (0, 'mail', 'COMPLETED', 5), (0, 'mail', 'CANCELLED', 2)")

    assert await miscounts(conn, JobStatus.COMPLETED, JobStatus.PENDING) == [("mail", "COMPLETED", 5, 0)]
