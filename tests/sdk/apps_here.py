"""Applications and workers for one test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pulse import Pulse
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from tests.served import Served

# Short enough for a test to see a lease end, long enough for a busy machine to keep it.
BRISK: dict[str, Any] = {
    "lease": timedelta(seconds=3),
    "heartbeat": timedelta(milliseconds=300),
    "watchdog": timedelta(milliseconds=200),
    "tick": timedelta(milliseconds=100),
    "grace": timedelta(seconds=5),
}


served: Served | None = None  # the servers of this test, if it goes through them


OF_SERVERS = {"lease", "heartbeat", "watchdog", "tick"}  # settings that a worker takes from its server


@contextmanager
def closing(app: Pulse) -> Iterator[Pulse]:
    try:
        yield app
    finally:
        app.close()


@asynccontextmanager
async def working(app: Pulse, **overrides: Any) -> AsyncIterator[Worker]:
    """A worker of this process, until the block ends; then it stops as it would on SIGTERM."""
    settings: Settings = replace(app.settings, **BRISK | overrides)
    if served is not None and overrides.keys() & OF_SERVERS:
        served.restart(**BRISK | {name: value for name, value in overrides.items() if name in OF_SERVERS})
    worker = Worker(app, settings=settings)
    life = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await life
        app.close()
