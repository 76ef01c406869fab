"""How much of bare SQL's speed does the engine keep? Claim 100, complete 100, no handler, both ways in turn."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

from pulse.engine.engine import Engine
from pulse.engine.jobs import Jobs
from pulse.model.jobs import NewJob, Outcome, Report
from pulse.settings import Settings
from pulse.store.pool import Database, connect_options
from pulse.store.statements import parse

LEAN = {found.name: found for found in parse((Path(__file__).parent / "lean_drain.sql").read_text(), "pulse")}
BATCH = 100
PAYLOAD = '{"order_id": "6f1f6b0e-8f4b-4c40-9df4-0d2c54b34c5a", "to": "someone@example.com", "retries": 3}'


class Drain(NamedTuple):
    jobs: int
    seconds: float
    transactions: int
    rollbacks: int

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


class Summary(NamedTuple):
    engine: list[Drain]
    lean: list[Drain]

    @property
    def ratio(self) -> float:
        pairs = zip(self.engine, self.lean, strict=True)
        return statistics.median(engine.rate / lean.rate for engine, lean in pairs)


async def compare(settings: Settings, *, jobs: int, rounds: int, connections: int) -> Summary:
    """Alternate, so that whatever else the machine does hits both; the ratio is taken round by round."""
    settings = replace(settings, pool_size=connections, notify=False)
    summary = Summary([], [])
    admin = await asyncpg.connect(settings.database_url)
    for number in range(rounds):
        order = (drain_engine, drain_lean) if number % 2 else (drain_lean, drain_engine)
        for drain in order:
            found = await drain(admin, settings, jobs, connections)
            (summary.engine if drain is drain_engine else summary.lean).append(found)
    await admin.close()
    return summary


async def drain_engine(admin: Any, settings: Settings, jobs: int, connections: int) -> Drain:
    await fill(admin, settings, jobs)
    before = await transactions(admin)
    async with await Database.connect(settings) as database:
        engine = Engine(database, buckets=1)
        done, seconds = await timed([consume_engine(engine.jobs) for _ in range(connections)])
    return await summarize(admin, before, done, seconds)


async def consume_engine(jobs: Jobs) -> int:
    done = 0
    while claims := await jobs.claim("bench", worker="bench", slots=BATCH):
        await jobs.report(
            [Report(id=c.id, lease_id=c.lease_id, outcome=Outcome.COMPLETE, result="true") for c in claims]
        )
        done += len(claims)
    return done


async def drain_lean(admin: Any, settings: Settings, jobs: int, connections: int) -> Drain:
    await fill(admin, settings, jobs)
    await admin.execute(LEAN["create_schema"].sql)
    await admin.execute(LEAN["fill"].sql, "bench", jobs)
    await settle(admin, "lean.jobs")
    before = await transactions(admin)
    conns = [await asyncpg.connect(**connect_options(settings)) for _ in range(connections)]
    done, seconds = await timed([consume_lean(conn) for conn in conns])
    for conn in conns:
        await conn.close()
    return await summarize(admin, before, done, seconds)


async def consume_lean(conn: Any) -> int:
    done = 0
    while rows := await conn.fetch(LEAN["claim"].sql, "bench", BATCH, "bench", timedelta(seconds=30)):
        ids, lease_ids = [row["id"] for row in rows], [row["lease_id"] for row in rows]
        await conn.fetch(LEAN["complete"].sql, ids, lease_ids, ["true"] * len(ids))
        done += len(rows)
    return done


async def fill(admin: Any, settings: Settings, jobs: int) -> None:
    """The same fresh backlog for both."""
    await admin.execute("truncate pulse.jobs, pulse.tallies, pulse.counts, pulse.attempts")
    async with await Database.connect(settings) as database:
        producer = Engine(database, buckets=1).jobs
        for start in range(0, jobs, 5_000):
            await producer.submit([NewJob(task="bench", payload=PAYLOAD)] * min(5_000, jobs - start))
    await settle(admin, "pulse.jobs")


async def settle(admin: Any, table: str) -> None:
    """On disk, vacuumed and analysed, so that both ways start alike and pay alike for the first touch of a page."""
    await admin.execute(f"vacuum (analyze) {table}")
    await admin.execute("checkpoint")


async def timed(consumers: list[Any]) -> tuple[int, float]:
    started = time.perf_counter()
    done = sum(await asyncio.gather(*consumers))
    return done, time.perf_counter() - started


async def summarize(admin: Any, before: tuple[int, int], done: int, seconds: float) -> Drain:
    after = await transactions(admin)
    return Drain(done, seconds, after[0] - before[0], after[1] - before[1])


async def transactions(admin: Any) -> tuple[int, int]:
    """Commits and rollbacks so far. A backend reports when it ends, so wait until ours is the only one left."""
    while await admin.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and backend_type = 'client backend'"
    ):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1.1)  # and statistics are written at most once a second
    row = await admin.fetchrow(
        "select xact_commit, xact_rollback from pg_stat_database where datname = current_database()"
    )
    return row["xact_commit"], row["xact_rollback"]
