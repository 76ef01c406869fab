"""How fast is the engine beside bare SQL? Both claim and complete 100 jobs at a time, in turn, without handlers."""

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
from pulse.engine.jobs.claims import Claims
from pulse.model.jobs import Claim, NewJob, Outcome, Report
from pulse.settings import Settings
from pulse.store.connections.pool import Database, connect_options
from pulse.store.statements import parse

LEAN = {found.name: found for found in parse((Path(__file__).parent / "lean_drain.sql").read_text(), "pulse")}
BATCH = 100
SLICE = 5_000
PAYLOAD = '{"order_id": "6f1f6b0e-8f4b-4c40-9df4-0d2c54b34c5a", "to": "someone@example.com", "retries": 3}'


class Round(NamedTuple):
    """One backlog, drained by the engine and by bare SQL in slices that take turns."""

    jobs: int
    engine_seconds: float
    lean_seconds: float

    @property
    def ratio(self) -> float:
        return self.lean_seconds / self.engine_seconds


class Summary(NamedTuple):
    rounds: list[Round]
    transactions_per_job: float
    rollbacks: int

    @property
    def ratio(self) -> float:
        return statistics.median(each.ratio for each in self.rounds)


async def compare(settings: Settings, *, jobs: int, rounds: int, connections: int) -> Summary:
    """Compare the engine and bare SQL on the same machine and as nearly as possible at the same time."""
    settings = replace(settings, pool_size=connections, notify=False)
    admin = await asyncpg.connect(settings.database_url)
    found = [await drain_both(admin, settings, jobs, connections) for _ in range(rounds)]
    transactions, rollbacks = await count_transactions(admin, settings, jobs, connections)
    await admin.close()
    return Summary(found, transactions / jobs, rollbacks)


async def drain_both(admin: Any, settings: Settings, jobs: int, connections: int) -> Round:
    """Drain both in slices of a tenth of a second, because other load on the machine changes within seconds."""
    await fill(admin, settings, jobs)
    await fill_lean(admin, jobs)
    conns = [await asyncpg.connect(**connect_options(settings)) for _ in range(connections)]
    async with await Database.connect(settings) as database:
        engine = Engine(database, buckets=1)
        seconds = {"engine": 0.0, "lean": 0.0}
        for number in range(0, jobs, SLICE):
            size = min(SLICE, jobs - number)
            order = ("engine", "lean") if number // SLICE % 2 else ("lean", "engine")
            for which in order:
                left = Left(size)
                consumers = (
                    [consume_engine(engine.claims, left) for _ in range(connections)]
                    if which == "engine"
                    else [consume_lean(conn, left) for conn in conns]
                )
                seconds[which] += await timed(consumers)
                assert left.jobs == 0, f"{which} left {left.jobs} of {size}"
    for conn in conns:
        await conn.close()
    return Round(jobs, seconds["engine"], seconds["lean"])


class Left:
    """Counts the jobs of a slice that are not claimed yet."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def take(self) -> int:
        taken = min(BATCH, self.jobs)
        self.jobs -= taken
        return taken


async def consume_engine(claims: Claims, left: Left) -> None:
    while slots := left.take():
        claimed = await claims.claim("bench", worker="bench", slots=slots)
        left.jobs += slots - len(claimed)
        await complete(claims, claimed)


async def complete(claims: Claims, claimed: list[Claim]) -> None:
    done = [Report(id=c.id, lease_id=c.lease_id, outcome=Outcome.COMPLETE, result="true") for c in claimed]
    await claims.report(done)


async def consume_lean(conn: Any, left: Left) -> None:
    while slots := left.take():
        rows = await conn.fetch(LEAN["claim"].sql, "bench", slots, "bench", timedelta(seconds=30))
        left.jobs += slots - len(rows)
        ids, lease_ids = [row["id"] for row in rows], [row["lease_id"] for row in rows]
        await conn.fetch(LEAN["complete"].sql, ids, lease_ids, ["true"] * len(ids))


async def count_transactions(admin: Any, settings: Settings, jobs: int, connections: int) -> tuple[int, int]:
    """Count the transactions and rollbacks of one drain by the engine, which is not timed."""
    await fill(admin, settings, jobs)
    before = await transactions(admin)
    async with await Database.connect(settings) as database:
        engine, left = Engine(database, buckets=1), Left(jobs)
        await asyncio.gather(*[consume_engine(engine.claims, left) for _ in range(connections)])
    after = await transactions(admin)
    return after[0] - before[0], after[1] - before[1]


async def fill(admin: Any, settings: Settings, jobs: int) -> None:
    """Fill the tables with a new backlog, the same for both."""
    await admin.execute("truncate pulse.jobs, pulse.tallies, pulse.counts, pulse.attempts")
    async with await Database.connect(settings) as database:
        producer = Engine(database, buckets=1).jobs
        for start in range(0, jobs, 5_000):
            await producer.submit([NewJob(task="bench", payload=PAYLOAD)] * min(5_000, jobs - start))
    await vacuum(admin, "pulse.jobs")


async def fill_lean(admin: Any, jobs: int) -> None:
    await admin.execute(LEAN["create_schema"].sql)
    await admin.execute(LEAN["fill"].sql, "bench", jobs)
    await vacuum(admin, "lean.jobs")


async def vacuum(admin: Any, table: str) -> None:
    """Vacuum, analyze and write everything to disk, so that both start in the same state."""
    await admin.execute(f"vacuum (analyze) {table}")
    await admin.execute("checkpoint")


async def timed(consumers: list[Any]) -> float:
    started = time.perf_counter()
    await asyncio.gather(*consumers)
    return time.perf_counter() - started


async def transactions(admin: Any) -> tuple[int, int]:
    """Return the commits and rollbacks so far. A backend reports its last ones when it ends, so wait for all others."""
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
