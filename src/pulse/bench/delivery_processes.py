"""Which processes deliver alarms in a benchmark? One with the duties of every process, and a bare HTTP client.

`python -m pulse.bench.delivery_processes engine` delivers due alarms until SIGTERM; with `bare FILE` it posts the
requests of the file. Each is a process of its own, so that its memory can be measured; its last line is its cost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import aiohttp
import msgspec

from pulse.delivery.webhook import CONNECT, HEADERS, KEEP_ALIVE
from pulse.engine.engine import open_engine
from pulse.event_loop import run, tune_garbage_collector
from pulse.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

NETWORKS = "127.0.0.0/8"
LINE_LIMIT = 16 << 20  # bytes
PROFILE = "PULSE_BENCH_PROFILE"  # names a file for the figures of cProfile


class Cost(msgspec.Struct, frozen=True):
    """The memory and the time that a process took."""

    peak_mb: float
    cpu_seconds: float
    seconds: float = 0.0


class Task(msgspec.Struct, frozen=True):
    """The requests that the bare client sends."""

    urls: list[str]
    requests: int
    body: str


# --- in their own processes


async def deliver() -> None:
    """Run the duties of every process until SIGTERM."""
    logging.getLogger("pulse").setLevel(logging.ERROR)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_engine(Settings.from_env()) as engine:
        engine.start()
        tune_garbage_collector()
        _print_line("ready")
        await stop.wait()
    _print_line(msgspec.json.encode(_cost()).decode())


async def post(task: Task) -> None:
    """Send the requests with as little work as the same HTTP library allows: no limit for each destination, no check of
    addresses, no signature, no deadline and no record."""
    slots = Settings.from_env().alarm_slots
    connector = aiohttp.TCPConnector(limit=slots, keepalive_timeout=KEEP_ALIVE)
    options = {"timeout": aiohttp.ClientTimeout(total=None, connect=CONNECT), "cookie_jar": aiohttp.DummyCookieJar()}
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False, **options) as session:  # type: ignore[arg-type]
        _print_line("ready")
        started = time.perf_counter()
        numbers = iter(range(task.requests))
        await asyncio.gather(*[_post_some(session, task, numbers) for _ in range(slots)])
        seconds = time.perf_counter() - started
    _print_line(msgspec.json.encode(_cost(seconds)).decode())


async def _post_some(session: aiohttp.ClientSession, task: Task, numbers: Iterator[int]) -> None:
    body = task.body.encode()
    for number in numbers:
        url = f"{task.urls[number % len(task.urls)]}/wake"
        async with session.post(url, data=body, allow_redirects=False) as response:
            await response.read()


def _cost(seconds: float = 0.0) -> Cost:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Cost(round(peak, 1), round(used.ru_utime + used.ru_stime, 2), seconds)


def _print_line(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the protocol


# --- seen from the process that measures


class DeliveryProcess:
    """A process that delivers alarms, seen from the process that measures."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def stop(self) -> Cost:
        self._process.send_signal(signal.SIGTERM)
        return await _read_cost(self._process)


@asynccontextmanager
async def delivery_process(settings: Settings) -> AsyncIterator[DeliveryProcess]:
    process = await _start(settings, "engine")
    try:
        yield DeliveryProcess(process)
    finally:
        await _end(process)


async def post_bare(settings: Settings, task: Task) -> Cost:
    with NamedTemporaryFile(prefix="pulse-bench-") as file:
        file.write(msgspec.json.encode(task))
        file.flush()
        process = await _start(settings, "bare", file.name)
        try:
            return await _read_cost(process)
        finally:
            await _end(process)


async def _start(settings: Settings, *words: str) -> asyncio.subprocess.Process:
    env = {
        "PULSE_DATABASE_URL": str(settings.database_url),
        "PULSE_SCHEMA": settings.schema,
        "PULSE_POOL_SIZE": str(settings.pool_size),
        "PULSE_NOTIFY": str(int(settings.notify)),
        "PULSE_ALARM_NETWORKS": NETWORKS,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pulse.bench.delivery_processes", *words),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | env,
        limit=LINE_LIMIT,
    )
    if await _line(process) != b"ready\n":
        raise RuntimeError("a process of the benchmark did not start; its error is above")
    return process


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _read_cost(process: asyncio.subprocess.Process) -> Cost:
    cost = msgspec.json.decode(await _line(process), type=Cost)
    await process.wait()
    return cost


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def main(words: list[str]) -> None:
    work = deliver() if words[0] == "engine" else post(msgspec.json.decode(Path(words[1]).read_bytes(), type=Task))
    if not (path := os.environ.get(PROFILE)):
        run(work)
        return
    import cProfile

    profile = cProfile.Profile()
    profile.runcall(run, work)
    profile.dump_stats(f"{path}.{words[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
