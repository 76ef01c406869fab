"""Who is woken in a run? `python -m tests.chaos.receiver FILE SECONDS`: it writes down who came, and answers later.

Its first line says where it listens. A wake is written down before it is answered, by one system call.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import UUID

from aiohttp import web

PORTS = 20
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float
    wake_id: str
    alarm_id: UUID
    occurrence: datetime
    attempt: int


class Receiver:
    """The process, seen from the run."""

    def __init__(self, process: asyncio.subprocess.Process, path: Path, urls: list[str]) -> None:
        self._process = process
        self._path = path
        self.urls = urls

    def arrivals(self) -> list[Arrival]:
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return [
            Arrival(float(at), wake_id, UUID(alarm_id), datetime.fromisoformat(occurrence), int(attempt))
            for at, wake_id, alarm_id, occurrence, attempt in lines
        ]


@asynccontextmanager
async def receiving(folder: Path, *, seconds: float) -> AsyncIterator[Receiver]:
    """Each wake is answered after up to so many seconds."""
    path = folder / "arrivals"
    path.touch()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos.receiver", str(path), str(seconds)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        urls = json.loads(await process.stdout.readline())
        yield Receiver(process, path, urls)
    finally:
        process.kill()
        await process.wait()


async def receive(path: str, seconds: float) -> None:
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        words = (request.headers["webhook-id"], body["alarm_id"], body["occurrence"], str(body["attempt"]))
        os.write(log, f"{time.time():.6f} {' '.join(words)}\n".encode())
        await asyncio.sleep(random.uniform(0, seconds))
        return web.Response(text="thanks")

    app = web.Application()
    app.router.add_post("/wake", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    for _ in range(PORTS):
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(json.dumps([f"http://127.0.0.1:{address[1]}" for address in runner.addresses]), flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    asyncio.run(receive(sys.argv[1], float(sys.argv[2])))
