"""Who does the waking in a benchmark? A process with the duties of every process, or a bare HTTP client beside it.

`python -m pulse.bench.wakers engine` delivers what is due until it is told to stop; `bare FILE` posts what the file
says. Each is a process of its own, so that its memory is its own, too; its last line says how much that was.
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
LONG = 16 << 20  # of a line
PROFILE = "PULSE_BENCH_PROFILE"  # a file for cProfile's figures


class Cost(msgspec.Struct, frozen=True):
    """What a process took."""

    peak_mb: float
    cpu_seconds: float
    seconds: float = 0.0


class Task(msgspec.Struct, frozen=True):
    """What the bare client is to do."""

    urls: list[str]
    requests: int
    body: str


# --- in their own processes


async def deliver() -> None:
    """The duties, until told to stop."""
    logging.getLogger("pulse").setLevel(logging.ERROR)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_engine(Settings.from_env()) as engine:
        engine.start()
        tune_garbage_collector()
        _say("ready")
        await stop.wait()
    _say(msgspec.json.encode(_cost()).decode())


async def post(task: Task) -> None:
    """The least that any client of the same library does for the same requests: no slots by destination, no guard, no
    signature, no deadline, nothing written down."""
    slots = Settings.from_env().alarm_slots
    connector = aiohttp.TCPConnector(limit=slots, keepalive_timeout=KEEP_ALIVE)
    options = {"timeout": aiohttp.ClientTimeout(total=None, connect=CONNECT), "cookie_jar": aiohttp.DummyCookieJar()}
    async with aiohttp.ClientSession(connector=connector, headers=HEADERS, auto_decompress=False, **options) as session:  # type: ignore[arg-type]
        _say("ready")
        started = time.perf_counter()
        numbers = iter(range(task.requests))
        await asyncio.gather(*[_post_some(session, task, numbers) for _ in range(slots)])
        seconds = time.perf_counter() - started
    _say(msgspec.json.encode(_cost(seconds)).decode())


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


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  the protocol


# --- seen from the process that measures


class Waker:
    """A process that delivers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def stop(self) -> Cost:
        self._process.send_signal(signal.SIGTERM)
        return await _last_words(self._process)


@asynccontextmanager
async def waker(settings: Settings) -> AsyncIterator[Waker]:
    process = await _start(settings, "engine")
    try:
        yield Waker(process)
    finally:
        await _end(process)


async def post_bare(settings: Settings, task: Task) -> Cost:
    with NamedTemporaryFile(prefix="pulse-bench-") as file:
        file.write(msgspec.json.encode(task))
        file.flush()
        process = await _start(settings, "bare", file.name)
        try:
            return await _last_words(process)
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
        *(sys.executable, "-m", "pulse.bench.wakers", *words),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | env,
        limit=LONG,
    )
    if await _line(process) != b"ready\n":
        raise RuntimeError("a process of the benchmark did not start; its error is above")
    return process


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _last_words(process: asyncio.subprocess.Process) -> Cost:
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
