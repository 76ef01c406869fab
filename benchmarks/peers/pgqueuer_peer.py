"""Measures PgQueuer: `python -m benchmarks.peers.pgqueuer_peer install|drain|latency|enqueue DSN`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import asyncpg
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver  # type: ignore[import-not-found]
from pgqueuer.domain.settings import db_settings  # type: ignore[import-not-found]
from pgqueuer.ports.repository import EntrypointExecutionParameter  # type: ignore[import-not-found]
from pgqueuer.qm import QueueManager  # type: ignore[import-not-found]
from pgqueuer.queries import Queries  # type: ignore[import-not-found]
from pgqueuer.types import QueueExecutionMode  # type: ignore[import-not-found]

from benchmarks.peers import harness

TASK = "noop"
PAYLOAD = harness.PAYLOAD.encode()
# Its default. Zero would save a task per job, but workers would run each other's jobs.
HEARTBEAT = timedelta(seconds=30)
IDLE_BATCH = 10  # its default; 1 and 100 were no quicker
# Statistics are aggregated on demand, not by a worker during a run.
ON_DEMAND = timedelta(0)
IN_SCHEMA = {"search_path": "pgqueuer"}


class PgQueuer:
    name = "pgqueuer"
    module = "benchmarks.peers.pgqueuer_peer"
    tables: tuple[str, ...] = ("pgqueuer", "pgqueuer_log", "pgqueuer_statistics")
    count_done = (
        "select count(distinct job_id) from pgqueuer_log "
        "where status = 'successful' and not exists (select from pgqueuer)"
    )

    def add_options(self, drain: argparse.ArgumentParser) -> None:
        drain.add_argument("--batch", type=int, default=500, help="jobs per claim and per report")
        drain.add_argument("--connections", type=int, default=8, help="per process; one of them listens")

    def settings(self, options: argparse.Namespace) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if options.command == "drain":
            chosen = {"processes": options.processes, "batch": options.batch, "connections": options.connections}
            chosen |= {"mode": "drain", "max_concurrent_tasks": None}
        elif options.command == "latency":
            chosen = {"processes": 1, "batch": IDLE_BATCH, "connections": 1, "asked_rate": options.rate}
        elif options.command == "enqueue":
            chosen = {"connections": 1, "many_batch": harness.CHUNK}
        return chosen | {
            "durability": db_settings().durability.value,
            "driver": f"asyncpg {version('asyncpg')}",
            "uvloop": version("uvloop"),
        }

    async def create_tables(self, dsn: str) -> None:
        async with connect(dsn) as queries:
            await queries.install()

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Producer]:
        async with connect(dsn) as queries:
            yield Producer(queries)

    async def drain(self, options: argparse.Namespace, start: harness.Start) -> None:
        """Drain with a pool: while one batch is claimed, the last one is reported."""
        size = options.connections
        async with asyncpg.create_pool(options.dsn, min_size=size, max_size=size, server_settings=IN_SCHEMA) as pool:
            queries = WatchedQueries(AsyncpgPoolDriver(pool), start)
            await asyncio.gather(*(queries.prepare(options.batch) for _ in range(size)))
            manager = QueueManager(queries)
            manager.entrypoint(TASK)(noop)
            await manager.run(
                mode=QueueExecutionMode.drain,
                batch_size=options.batch,
                heartbeat_timeout=HEARTBEAT,
                log_aggregation_interval=ON_DEMAND,
            )

    async def serve(self, dsn: str, on_job: Callable[[], None]) -> None:
        """Serve with one connection: with a pool of 3, which asyncpg resets after each use, the median was 0.5 ms
        longer."""

        async def handle(job: Any) -> None:
            on_job()

        async with connect(dsn) as queries:
            manager = QueueManager(queries)
            manager.entrypoint(TASK)(handle)
            await manager.run(batch_size=IDLE_BATCH, heartbeat_timeout=HEARTBEAT, log_aggregation_interval=ON_DEMAND)


async def noop(job: Any) -> None:
    pass


class WatchedQueries(Queries):  # type: ignore[misc]
    """PgQueuer's own statements, held back until the start and recorded at the end: two calls per batch."""

    def __init__(self, driver: Any, start: harness.Start) -> None:
        super().__init__(driver)
        self.start = start

    async def prepare(self, batch: int) -> None:
        """Claim for a task without jobs. Called once for each connection, it prepares the claim on each."""
        await super().dequeue(batch, {"nothing": EntrypointExecutionParameter(0)}, uuid4(), None, HEARTBEAT)

    async def dequeue(self, *args: Any, **options: Any) -> Any:
        await self.start.wait()
        return await super().dequeue(*args, **options)

    async def log_jobs(self, job_status: Any) -> None:
        await super().log_jobs(job_status)
        self.start.done()


class Producer:
    def __init__(self, queries: Any) -> None:
        self.queries = queries

    async def submit(self) -> None:
        await self.queries.enqueue(TASK, PAYLOAD)

    async def submit_many(self, count: int) -> None:
        for first in range(0, count, harness.CHUNK):
            size = min(harness.CHUNK, count - first)
            await self.queries.enqueue([TASK] * size, [PAYLOAD] * size, [0] * size)


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[Any]:
    conn = await asyncpg.connect(dsn, server_settings=IN_SCHEMA)
    try:
        yield Queries(AsyncpgDriver(conn))
    finally:
        await conn.close()


if __name__ == "__main__":
    harness.main(PgQueuer())
