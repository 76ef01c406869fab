"""How is the engine put together from its parts, started and stopped?"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from pulse.engine.alarms.use_cases import Alarms
from pulse.engine.duties.duties import Duties
from pulse.engine.instruments import Instruments
from pulse.engine.jobs.claims import Claims
from pulse.engine.jobs.explain import explain_job
from pulse.engine.jobs.use_cases import Jobs
from pulse.engine.metrics import Metrics
from pulse.engine.schedules.use_cases import Schedules
from pulse.engine.sessions import Sessions
from pulse.engine.statistics import Statistics
from pulse.engine.tokens import Tokens
from pulse.engine.workers import Workers
from pulse.model.errors import DatabaseUnreachable
from pulse.model.ids import Mint
from pulse.store.connections.notifications import Notifications
from pulse.store.connections.pool import Database
from pulse.store.embedded import server as embedded
from pulse.store.embedded.dev_notes import with_notes
from pulse.store.installation import read_clock, try_to_write
from pulse.store.schema.check import check_schema
from pulse.store.schema.migrate import check_over

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime
    from uuid import UUID

    from pulse.engine.duties.loops import Loop, LoopHealth
    from pulse.model.explain.facts import Explanation
    from pulse.settings import Settings


STOP_PATIENCE = 2.0  # seconds; each step is one transaction, so one that is cancelled is rolled back


class Engine:
    """The use cases over one database and, once started, the duties of this process."""

    def __init__(self, database: Database, *, buckets: int) -> None:
        self.settings = database.settings
        self._database = database
        self.notifications = Notifications(database)
        self.instruments = Instruments()
        self.healths: list[LoopHealth] = []  # of the loops of this process
        mint = Mint()  # a single one, so that ids grow whichever way a job is submitted
        self.jobs = Jobs(database, self.notifications, mint, buckets=buckets)
        self.claims = Claims(database, self.notifications, mint, buckets=buckets, instruments=self.instruments)
        self.schedules = Schedules(database, self.notifications, buckets=buckets)
        self.alarms = Alarms(database, self.notifications)
        self.tokens = Tokens(database)
        self.sessions = Sessions(database)
        self.statistics = Statistics(database, buckets=buckets)
        self.duties = Duties(database, self.notifications, buckets=buckets, instruments=self.instruments)
        self.workers = Workers(database)
        self.metrics = Metrics(database, self.statistics, self.instruments, self.healths)
        self._stop = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raise an error if the database does not answer or takes no writes, or if its schema does not suit this
        release."""
        await self._database.run(lambda conn: check_schema(conn, self.settings.schema))
        await self._database.check_writes(try_to_write)

    async def read_clock(self) -> datetime:
        """Return the database's time."""
        return await self._database.run(read_clock)

    async def explain(self, job_id: UUID) -> Explanation:
        """Explain why a job is not running, and when it should begin."""
        return await explain_job(self._database, job_id, buckets=self.jobs.buckets)

    def start(self, *more: Loop) -> None:
        """Start the duties that every process has, and more loops of this process."""
        self.notifications.start()
        loops = [*self.duties.loops(), *more]
        self.healths += [loop.health for loop in loops]
        self._loops = [asyncio.create_task(loop.run(self._stop), name=f"pulse {loop.name}") for loop in loops]
        self._watching = asyncio.create_task(self.instruments.watch_loop(), name="pulse loop watch")

    async def stop(self) -> None:
        """Stop all loops. A step in progress may finish, unless it takes too long because it cannot reach the
        database."""
        self._stop.set()
        if self._watching is not None:
            self._watching.cancel()
        if self._loops:
            _, stuck = await asyncio.wait(self._loops, timeout=STOP_PATIENCE)
            for loop in stuck:
                loop.cancel()
            await asyncio.gather(*self._loops, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * STOP_PATIENCE):
                await self.duties.deliveries.stop(STOP_PATIENCE)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_PATIENCE):
                await self.notifications.stop()


@asynccontextmanager
async def open_engine(settings: Settings, *, has_callers: bool = False) -> AsyncIterator[Engine]:
    """Connect, check that this release and the schema fit together, and yield the engine.

    Without a database in the settings, the embedded one is used if it runs: `pulse db start` starts it.
    """
    settings = _with_database(settings)
    async with await Database.connect(settings) as database:
        state = await database.run(lambda conn: check_over(conn, settings.schema))
        database.has_callers = has_callers
        engine = Engine(database, buckets=state.buckets)
        try:
            yield engine
        finally:
            await engine.stop()


def _with_database(settings: Settings) -> Settings:
    if settings.database_url:
        return settings
    if server := embedded.running(settings.state_dir):
        return with_notes(replace(settings, database_url=server.dsn))
    raise DatabaseUnreachable(
        "there is no database: set PULSE_DATABASE_URL to one of yours, or run `pulse dev` or `pulse db start` in "
        "another terminal, in this folder, to use one of Pulse's"
    )
