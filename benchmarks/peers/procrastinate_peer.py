"""Measures Procrastinate: `python -m benchmarks.peers.procrastinate_peer install|drain|latency|enqueue DSN`."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found]
from procrastinate.manager import JobManager  # type: ignore[import-not-found]
from psycopg_pool import AsyncConnectionPool  # type: ignore[import-not-found, unused-ignore]

from benchmarks.peers import harness

TASK = "noop"
ARGUMENTS = json.loads(harness.PAYLOAD)
# These are low because on two cores, 10 jobs on 10 connections drained more slowly in every series of runs.
CONCURRENCY = 4
CONNECTIONS = 2
IN_SCHEMA = {"options": "-c search_path=procrastinate"}


class Procrastinate:
    name = "procrastinate"
    module = "benchmarks.peers.procrastinate_peer"
    tables: tuple[str, ...] = ("procrastinate_jobs", "procrastinate_events", "procrastinate_workers")
    count_done = (
        "select count(*) from procrastinate_jobs "
        "where not exists (select from procrastinate_jobs where status <> 'succeeded')"
    )

    def add_options(self, drain: argparse.ArgumentParser) -> None:
        drain.add_argument("--batch", type=int, help="ignored: Procrastinate claims one job at a time")
        drain.add_argument("--concurrency", type=int, default=CONCURRENCY, help="jobs at once, per process")
        drain.add_argument("--connections", type=int, default=CONNECTIONS, help="per process")

    def settings(self, options: argparse.Namespace) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if options.command == "drain":
            chosen = {"processes": options.processes, "batch": 1, "listen_notify": False}
            chosen |= {"concurrency": options.concurrency, "connections": options.connections}
        elif options.command == "latency":
            chosen = {"processes": 1, "concurrency": CONCURRENCY, "connections": CONNECTIONS, "listen_notify": True}
            chosen |= {"asked_rate": options.rate}
        elif options.command == "enqueue":
            chosen = {"connections": 1, "many_batch": harness.CHUNK}
        return chosen | {
            "delete_jobs": "never",
            "autocommit": True,
            "pool_check": False,
            "driver": f"psycopg {version('psycopg')} (binary)",
            "uvloop": version("uvloop"),
        }

    async def create_tables(self, dsn: str) -> None:
        async with open_app(dsn, connections=1) as app:
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producer(self, dsn: str) -> AsyncIterator[Producer]:
        async with open_app(dsn, connections=1) as app:
            yield Producer(app.task(name=TASK)(noop))

    async def drain(self, options: argparse.Namespace, start: harness.Start) -> None:
        async with open_app(options.dsn, connections=options.connections) as app:
            app.task(name=TASK)(noop)
            app.job_manager = WatchedJobs(app.connector, start)
            await app.run_worker_async(concurrency=options.concurrency, wait=False, listen_notify=False)

    async def serve(self, dsn: str, on_job: Callable[[], None]) -> None:
        async def handle(**arguments: Any) -> None:
            on_job()

        async with open_app(dsn, connections=CONNECTIONS) as app:
            app.task(name=TASK)(handle)
            await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


async def noop(**arguments: Any) -> None:
    pass


class WatchedJobs(JobManager):  # type: ignore[misc]
    """Procrastinate's own statements, held back until the start and recorded at the end: two calls per job of 1 ms."""

    def __init__(self, connector: Any, start: harness.Start) -> None:
        super().__init__(connector)
        self.start = start

    async def fetch_job(self, *args: Any, **options: Any) -> Any:
        await self.start.wait()
        return await super().fetch_job(*args, **options)

    async def finish_job(self, *args: Any, **options: Any) -> None:
        await super().finish_job(*args, **options)
        self.start.done()


class Producer:
    def __init__(self, task: Any) -> None:
        self.task = task

    async def submit(self) -> None:
        await self.task.defer_async(**ARGUMENTS)

    async def submit_many(self, count: int) -> None:
        for first in range(0, count, harness.CHUNK):
            await self.task.batch_defer_async(*[ARGUMENTS] * min(harness.CHUNK, count - first))


@asynccontextmanager
async def open_app(dsn: str, *, connections: int) -> AsyncIterator[Any]:
    """Open an app on a pool of ours. Its own pool would check the connection before each statement and open a
    transaction around it; all its calls are single statements, so with this pool each commits by itself."""
    pool: Any = AsyncConnectionPool(
        dsn, kwargs=IN_SCHEMA, min_size=connections, max_size=connections, configure=autocommit, open=False
    )
    app = App(connector=PsycopgConnector())
    async with pool, app.open_async(pool):
        await pool.wait()
        yield app


async def autocommit(conn: Any) -> None:
    await conn.set_autocommit(True)


if __name__ == "__main__":
    # It warns that its app is made in the main script, which does not matter: the app is not looked up by name.
    logging.getLogger("procrastinate.blueprints").setLevel(logging.ERROR)
    harness.main(Procrastinate())
