"""Do eight processes that claim from one topic slow each other down? Each job is claimed once, without rollbacks."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from typing import Any, NamedTuple

import asyncpg

from benchmarks.drain import BATCH, complete, fill, transactions
from pulse.engine.engine import Engine
from pulse.engine.jobs.claims import Claims
from pulse.settings import Settings
from pulse.store.connections.pool import Database


class Run(NamedTuple):
    processes: int
    jobs: int
    completed: int
    seconds: float
    rollbacks: int

    @property
    def rate(self) -> float:
        return self.completed / self.seconds


async def compare(settings: Settings, *, jobs: int, rounds: int, processes: int) -> list[Run]:
    admin = await asyncpg.connect(settings.database_url)
    runs = [await drain(admin, settings, jobs, count) for _ in range(rounds) for count in (1, processes)]
    await admin.close()
    return runs


async def drain(admin: Any, settings: Settings, jobs: int, processes: int) -> Run:
    await fill(admin, settings, jobs)
    before = await transactions(admin)
    workers = [await start(settings) for _ in range(processes)]
    for worker in workers:
        await worker.stdout.readline()  # it is connected
    started = time.perf_counter()
    for worker in workers:
        worker.stdin.write(b"go\n")
    counts = [json.loads(await worker.stdout.readline()) for worker in workers]
    seconds = time.perf_counter() - started
    await asyncio.gather(*(worker.wait() for worker in workers))
    completed = await admin.fetchval("select count(*) from pulse.jobs where status = 'COMPLETED' and attempt = 1")
    assert sum(counts) == completed == jobs, (
        f"of {jobs} jobs, {sum(counts)} were claimed and {completed} completed once"
    )
    return Run(processes, jobs, completed, seconds, (await transactions(admin))[1] - before[1])


async def start(settings: Settings) -> Any:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.processes",
        str(settings.database_url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def work(url: str) -> None:
    """Connect, wait for a line, drain, and print how many jobs were drained. This runs in each process."""
    async with await Database.connect(Settings(database_url=url, pool_size=1, notify=False)) as database:
        engine = Engine(database, buckets=1)
        await engine.claims.claim("nothing", worker="bench", slots=1)  # prepares the statement
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        print(json.dumps(await drain_alone(engine.claims)), flush=True)


async def drain_alone(claims: Claims) -> int:
    done = 0
    while claimed := await claims.claim("bench", worker="bench", slots=BATCH):
        await complete(claims, claimed)
        done += len(claimed)
    return done


def ratio(runs: list[Run]) -> float:
    pairs = zip(runs[1::2], runs[::2], strict=True)
    return statistics.median(many.rate / one.rate for many, one in pairs)


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
