"""Where does a run take place? In a database of its own, with a folder for its notes and a fleet of workers."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine, open_engine
from pulse.sdk.task import Call
from pulse.settings import Settings
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import migrate
from tests.chaos import bugs, figures
from tests.chaos.fleet import Fleet
from tests.chaos.story import HISTORY, Story, read_story

LEASE = 2.0  # seconds, as all of these
HEARTBEAT = 0.5
WATCHDOG = 0.5
TICK = 0.1
GRACE = 3.0
SLOTS = {"concurrency": 4, "threads": 4, "processes": 2}


class Server:
    """A Postgres that keeps what it acknowledges (fsync is on), to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.revive()
        self.dsn = self._running.dsn

    def revive(self) -> None:
        binaries = os.environ.get("PULSE_POSTGRES", "wheel")
        self._running = embedded.start(self._folder, postgres=binaries, settings={"max_connections": "200"})

    def kill(self) -> None:
        """An immediate stop: no session may finish anything, and nothing is written that was not yet."""
        os.kill(self._running.pid, signal.SIGQUIT)
        assert self._running.keeper
        self._running.keeper.join(10)

    def close(self) -> None:
        self._running.close()


@dataclass
class Stage:
    title: str
    random: random.Random
    settings: Settings
    server: Server
    engine: Engine  # to submit through; its duties are not running
    conn: asyncpg.Connection[Any]
    folder: Path
    fleet: Fleet
    bug: str | None = None  # planted in its workers

    async def submit(self, calls: Iterable[Call[Any]]) -> list[UUID]:
        return [answer.id for answer in await self.engine.jobs.submit([call.job for call in calls])]

    async def wait_until_finished(self, patience: float = 60) -> None:
        """Until no job is left to do. Whether that came to pass is for the checks to say: they know more."""
        give_up_at = time.monotonic() + patience
        while time.monotonic() < give_up_at:
            if not await self.conn.fetchval("select exists (select from pulse.jobs where finished_at is null)"):
                return
            await asyncio.sleep(0.05)

    async def reconnect(self) -> None:
        """After the server was killed."""
        self.conn.terminate()
        self.conn = await asyncpg.connect(self.settings.database_url)

    async def story(self) -> Story:
        return await read_story(self.conn, self.folder)

    def figure(self, what: str, value: object) -> None:
        if self.bug is None:
            figures.add(self.title, what, value)

    @contextmanager
    def finding(self, words: str) -> Iterator[None]:
        """For a run with a planted bug: it must fail, and say this."""
        with pytest.raises(AssertionError, match=words) as found:
            yield
        said = next(line for line in str(found.value).splitlines() if words in line)
        figures.add("planted bugs that were found", str(self.bug), said.rstrip(":")[:80])


@asynccontextmanager
async def open_stage(server: Server, folder: Path, title: str, *, bug: str | None = None) -> AsyncIterator[Stage]:
    settings = Settings(
        database_url=server.dsn,
        lease=timedelta(seconds=LEASE),
        heartbeat=timedelta(seconds=HEARTBEAT),
        watchdog=timedelta(seconds=WATCHDOG),
        tick=timedelta(seconds=TICK),
        grace=timedelta(seconds=GRACE),
        concurrency=SLOTS["concurrency"],
        threads=SLOTS["threads"],
        processes=SLOTS["processes"],
    )
    await migrate(settings)
    async with open_engine(settings) as engine:
        engine.notifications.start(listen=False)
        conn = await asyncpg.connect(settings.database_url)
        await conn.execute(HISTORY)
        fleet = Fleet(folder, _environment(settings) | ({bugs.BUG: bug} if bug else {}))
        stage = Stage(title, figures.new_random(title), settings, server, engine, conn, folder, fleet, bug)
        try:
            yield stage
        finally:
            fleet.close()
            stage.conn.terminate()


def _environment(settings: Settings) -> dict[str, str]:
    lengths = {
        name: f"{getattr(settings, name).total_seconds()}s"
        for name in ("lease", "heartbeat", "watchdog", "tick", "grace")
    }
    numbers = {name: str(getattr(settings, name)) for name in SLOTS}
    chosen = {"database_url": str(settings.database_url)} | lengths | numbers
    return {f"PULSE_{name.upper()}": value for name, value in chosen.items()}
