"""How are the worker processes of a benchmark started and stopped?"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from pulse.bench.app import app
from pulse.event_loop import run, tune_garbage_collector
from pulse.sdk.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pulse.settings import Settings


@asynccontextmanager
async def run_workers(settings: Settings, *, count: int, topics: list[str]) -> AsyncIterator[None]:
    """Run this many worker processes, which are connected when the block begins."""
    started: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(count):
            started.append(await _start(settings, topics))
            await _wait_until_ready(started[-1])
        yield
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                process.terminate()
        for process in started:
            await process.wait()


async def _start(settings: Settings, topics: list[str]) -> asyncio.subprocess.Process:
    env = {"PULSE_SERVER_URL": settings.server_url} if settings.server_url else {}
    env |= {
        "PULSE_DATABASE_URL": str(settings.database_url),
        "PULSE_SCHEMA": settings.schema,
        "PULSE_CONCURRENCY": str(settings.concurrency),
        "PULSE_THREADS": str(settings.threads),
        "PULSE_POOL_SIZE": str(settings.pool_size),
        "PULSE_NOTIFY": str(int(settings.notify)),
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pulse.bench.workers",
        msgspec.json.encode(topics).decode(),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | env,
    )


async def _wait_until_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    if await process.stdout.readline() != b"ready\n":
        raise RuntimeError("a worker of the benchmark did not start; its error is above")


async def run_worker(topics: list[str]) -> None:
    """Run a worker until SIGTERM, in a process of its own. It prints a line when it is ready."""
    logging.getLogger("pulse").setLevel(logging.ERROR)  # some jobs fail on purpose and should not fill the log
    worker = Worker(app, topics=topics)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    working = asyncio.create_task(worker.run())
    while not working.done() and not await worker.can_get_jobs():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    tune_garbage_collector()
    print("ready", flush=True)  # noqa: T201  the protocol
    await working


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent as well, which then sends SIGTERM
    run(run_worker(msgspec.json.decode(sys.argv[1], type=list[str])))
