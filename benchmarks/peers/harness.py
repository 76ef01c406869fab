"""How is a peer measured? With the same scenarios, clock and answer for each, on the peers' Python, without Pulse."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from importlib.metadata import version
from typing import Any, Protocol

import asyncpg
import uvloop

# The payload of benchmarks/drain.py, which cannot be imported, because Pulse is not installed here.
PAYLOAD = '{"order_id": "6f1f6b0e-8f4b-4c40-9df4-0d2c54b34c5a", "to": "someone@example.com", "retries": 3}'
CHUNK = 5_000  # jobs per call when many are submitted at once, as in benchmarks/drain.py for Pulse
WARM_UP = 20  # jobs that are not measured, so that every statement is prepared
PATIENCE = 30.0  # seconds for one job to reach an idle worker


class Start:
    """Holds a connected worker back until the start, and records when its last job was done."""

    def __init__(self) -> None:
        self.was_given = False
        self.last_done_at: float | None = None

    async def wait(self) -> None:
        if self.was_given:
            return
        print("ready", flush=True)
        if not await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            sys.exit("the process that measures has ended before the start")
        self.was_given = True

    def done(self) -> None:
        """Record that Postgres has confirmed jobs as done."""
        self.last_done_at = time.monotonic()


class Producer(Protocol):
    async def submit(self) -> None: ...

    async def submit_many(self, count: int) -> None: ...


class Peer(Protocol):
    """A job queue to measure. Its tables are in a schema of its name."""

    name: str
    module: str  # for `python -m`
    tables: tuple[str, ...]
    count_done: str  # SQL

    def add_options(self, drain: argparse.ArgumentParser) -> None: ...

    def settings(self, options: argparse.Namespace) -> dict[str, Any]: ...

    async def create_tables(self, dsn: str) -> None: ...

    def producer(self, dsn: str) -> AbstractAsyncContextManager[Producer]: ...

    async def drain(self, options: argparse.Namespace, start: Start) -> None:
        """Drain the queue in this process: wait for `start` before the first claim, return when no job is left."""

    async def serve(self, dsn: str, on_job: Callable[[], None]) -> None:
        """Run an idle worker that calls `on_job` in the handler of each job, until cancelled."""


def main(peer: Peer) -> None:
    options = read_options(peer)
    scenarios = {"install": install, "drain": drain, "work": work, "latency": latency, "enqueue": enqueue}
    print(json.dumps(uvloop.run(scenarios[options.command](peer, options))))


def read_options(peer: Peer) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {peer.module}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="install|drain|latency|enqueue")
    commands.add_parser("install", help="drop the peer's schema and create it anew")
    for drain in (commands.add_parser("drain", help="drain a backlog"), commands.add_parser("work")):
        drain.add_argument("--jobs", type=int, default=20_000)
        drain.add_argument("--processes", type=int, default=2)
        peer.add_options(drain)
    latency = commands.add_parser("latency", help="measure from the submitting call to the handler in an idle worker")
    latency.add_argument("--jobs", type=int, default=500)
    latency.add_argument("--rate", type=float, default=50.0, help="jobs per second")
    enqueue = commands.add_parser("enqueue", help="submit jobs one at a time, and many at once")
    enqueue.add_argument("--jobs", type=int, default=5_000)
    for command in commands.choices.values():
        command.add_argument("dsn")
    return parser.parse_args()


async def install(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    admin = await connect(peer, options.dsn)
    await admin.execute(f"drop schema if exists {peer.name} cascade; create schema {peer.name}")
    await peer.create_tables(options.dsn)
    return await answer(peer, options, admin)


async def drain(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    admin = await connect(peer, options.dsn)
    await clear(peer, admin)
    async with peer.producer(options.dsn) as producer:
        await producer.submit_many(options.jobs)
    await vacuum(peer, admin)
    seconds = await time_workers(peer, options)
    done = await admin.fetchval(peer.count_done)
    if done != options.jobs:
        sys.exit(f"{peer.name} finished {done} of {options.jobs} jobs")
    return await answer(peer, options, admin, seconds=seconds)


async def time_workers(peer: Peer, options: argparse.Namespace) -> float:
    """Return the seconds from the start to the last job done, by the monotonic clock that all processes share."""
    workers = [await start_worker(peer) for _ in range(options.processes)]
    try:
        for worker in workers:
            await next_line(worker)  # the worker is ready
        started_at = time.monotonic()
        for worker in workers:
            worker.stdin.write(b"go\n")
        last_done = [json.loads(await next_line(worker)) for worker in workers]
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                worker.terminate()  # matters after an error only: a worker that has answered ends by itself
            await worker.wait()
    return max((each for each in last_done if each is not None), default=started_at) - started_at


async def start_worker(peer: Peer) -> Any:
    """Start this program with the same options and the command `work`."""
    command = (sys.executable, "-m", peer.module, "work", *sys.argv[2:])
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)


async def next_line(worker: Any) -> bytes:
    line: bytes = await worker.stdout.readline()
    if not line:
        sys.exit(f"a worker ended with {await worker.wait()}; its output is above")
    return line


async def work(peer: Peer, options: argparse.Namespace) -> float | None:
    start = Start()
    await peer.drain(options, start)
    return start.last_done_at


async def latency(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    admin = await connect(peer, options.dsn)
    await clear(peer, admin)
    await vacuum(peer, admin)
    timer, samples = JobTimer(), []
    async with asyncio.TaskGroup() as group, peer.producer(options.dsn) as producer:
        worker = group.create_task(peer.serve(options.dsn, timer.stop))
        for _ in range(WARM_UP):
            await timer.time(producer)
        started_at = time.monotonic()
        for number in range(options.jobs):
            await asyncio.sleep(started_at + number / options.rate - time.monotonic())
            samples.append(await timer.time(producer))
        seconds = time.monotonic() - started_at
        worker.cancel()
    return await answer(peer, options, admin, seconds=seconds, samples=samples)


class JobTimer:
    """Measures the time from the call that submits a job to its handler, one job at a time."""

    def __init__(self) -> None:
        self.handled_at: asyncio.Future[float] = asyncio.Future()

    def stop(self) -> None:
        if not self.handled_at.done():
            self.handled_at.set_result(time.perf_counter())

    async def time(self, producer: Producer) -> float:
        self.handled_at = asyncio.Future()
        called_at = time.perf_counter()
        await producer.submit()
        return await asyncio.wait_for(self.handled_at, PATIENCE) - called_at


async def enqueue(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    admin = await connect(peer, options.dsn)
    await clear(peer, admin)
    async with peer.producer(options.dsn) as producer:
        for _ in range(WARM_UP):
            await producer.submit()
        samples = []
        started_at = time.perf_counter()
        for _ in range(options.jobs):
            called_at = time.perf_counter()
            await producer.submit()
            samples.append(time.perf_counter() - called_at)
        seconds = time.perf_counter() - started_at
        await clear(peer, admin)
        started_at = time.perf_counter()
        await producer.submit_many(options.jobs)
        many_seconds = time.perf_counter() - started_at
    return await answer(peer, options, admin, seconds=seconds, samples=samples, many_seconds=many_seconds)


async def answer(
    peer: Peer,
    options: argparse.Namespace,
    admin: Any,
    *,
    seconds: float | None = None,
    samples: list[float] | None = None,
    many_seconds: float | None = None,
) -> dict[str, Any]:
    """Return the same keys for every scenario, null for figures it does not have, and close the connection."""
    jobs = getattr(options, "jobs", None)
    server = await server_settings(admin)
    await admin.close()
    return {
        "peer": peer.name,
        "version": version(peer.name),
        "scenario": options.command,
        "jobs": jobs,
        "seconds": seconds and round(seconds, 4),
        "rate": jobs and seconds and round(jobs / seconds, 1),
        **percentiles(samples),
        "many_seconds": many_seconds and round(many_seconds, 4),
        "many_rate": jobs and many_seconds and round(jobs / many_seconds, 1),
        "settings": peer.settings(options) | server,
    }


def percentiles(samples: list[float] | None) -> dict[str, float | None]:
    if not samples:
        return {"p50_ms": None, "p95_ms": None, "p99_ms": None}
    cuts = statistics.quantiles(samples, n=100, method="inclusive")
    return {f"p{number}_ms": round(1000 * cuts[number - 1], 3) for number in (50, 95, 99)}


async def server_settings(admin: Any) -> dict[str, str]:
    """Return the settings on which durability depends, so that a reader can check them."""
    names = ("server_version", "fsync", "synchronous_commit", "full_page_writes")
    return {name: await admin.fetchval("select current_setting($1)", name) for name in names}


async def connect(peer: Peer, dsn: str) -> Any:
    return await asyncpg.connect(dsn, server_settings={"search_path": peer.name})


async def clear(peer: Peer, admin: Any) -> None:
    await admin.execute(f"truncate {', '.join(peer.tables)} cascade")


async def vacuum(peer: Peer, admin: Any) -> None:
    """Vacuum, analyze and write everything to disk, as benchmarks/drain.py does for Pulse."""
    for table in peer.tables:
        await admin.execute(f"vacuum (analyze) {table}")
    await admin.execute("checkpoint")
