"""How does the SDK use an engine in its own process?"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from pulse.engine.duties.loops import Loop
from pulse.engine.engine import Engine, open_engine
from pulse.engine.jobs.claims import Claims
from pulse.links.link import Batch
from pulse.model.errors import PulseError
from pulse.model.ids import Mint
from pulse.model.jobs import FINISHED, JobStatus, Lease
from pulse.model.workers import Presence
from pulse.store.connections.notifications import Notifications
from pulse.store.connections.pool import Database
from pulse.store.connections.redacted_url import embedded_place, place_of
from pulse.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from pulse.engine.alarms.use_cases import Alarms
    from pulse.engine.metrics import Metrics
    from pulse.engine.schedules.use_cases import Schedules
    from pulse.links.link import WorkerState
    from pulse.model.explain.facts import Explanation
    from pulse.model.jobs import Claim, Job, NewJob, Progress, Report, ReportStatus, Submitted
    from pulse.settings import Settings

log = logging.getLogger("pulse.link")

MIN_POLL, MAX_POLL = 0.005, 0.25  # seconds between two checks of a job that is waited for


@asynccontextmanager
async def open_direct(settings: Settings) -> AsyncIterator[DirectLink]:
    async with open_engine(settings) as engine:
        yield DirectLink(engine)


class DirectLink:
    """A link to an engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs = engine.jobs
        self._claims = engine.claims
        self._state: WorkerState | None = None
        self.lease = engine.settings.lease.total_seconds()
        self.heartbeat = engine.settings.heartbeat.total_seconds()

    def start_notifying(self) -> None:
        """Send notifications about the jobs that are enqueued here, without listening for others."""
        self._engine.notifications.start(listen=False)

    @property
    def metrics(self) -> Metrics:
        return self._engine.metrics

    def start(self, state: WorkerState) -> None:
        self._state = state
        slots = sum(pool.free for pool in state.slot_pools())  # all of its slots, as it has begun no job yet
        presence = partial(_make_presence, state, slots)
        self._engine.start(Loop("presence", self._engine.workers.own_duty(state.name, presence)))
        log.info("jobs come from %s", _source(self._engine.settings))

    async def check(self) -> None:
        await self._engine.check()

    async def check_access(self, worker: str, topics: Sequence[str]) -> None:
        """Check nothing: a program that can connect to the database may work on all topics."""

    def on_ready(self, listener: Callable[[str], None]) -> None:
        self._engine.notifications.on_ready(lambda ready: listener(ready.topic))

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        self._engine.duties.on_dead_letter(listener)

    async def get_dead_letter(self, job_id: UUID) -> Job | None:
        job = await self._jobs.get(job_id)
        return job if job.status is JobStatus.DEAD_LETTERED else None

    @property
    def schedules(self) -> Schedules:
        return self._engine.schedules

    @property
    def alarms(self) -> Alarms:
        return self._engine.alarms

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        return await self._jobs.submit(jobs)

    async def get(self, job_id: UUID) -> Job:
        return await self._jobs.get(job_id)

    async def wait(self, job_id: UUID, *, seconds: float) -> Job:
        """Poll the job with growing pauses: most results come either soon or late."""
        give_up_at, pause = time.monotonic() + seconds, MIN_POLL
        while (job := await self._jobs.get(job_id)).status not in FINISHED and time.monotonic() < give_up_at:
            await asyncio.sleep(max(0.0, min(pause, give_up_at - time.monotonic())))
            pause = min(pause * 1.5, MAX_POLL)
        return job

    async def cancel(self, job_id: UUID, *, reason: str) -> Job:
        return await self._jobs.cancel(job_id, reason=reason)

    async def explain(self, job_id: UUID) -> Explanation:
        return await self._engine.explain(job_id)

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        await self._release_lost()
        return await self._claims.ready_topics(topics)

    async def claim(self, topic: str, *, worker: str, slots: int) -> Batch:
        asked_at = time.monotonic()
        claims = await self._claims.claim(topic, worker=worker, slots=slots)
        await self._release_lost(claims)
        return Batch(claims, asked_at + self.lease)

    async def stop_claiming(self) -> Sequence[Claim]:
        if self._state is not None:
            await self._engine.workers.leave(self._state.name)
        await self._release_lost()
        return []

    async def _release_lost(self, claims: Sequence[Claim] = ()) -> None:
        """Give back jobs that were leased to this worker by claims whose answers were lost; `claims` have just arrived.

        A worker sends one claim at a time, so no other claim is under way.
        """
        workers, state = self._claims.lost.workers, self._state
        if not workers or state is None:
            return
        arrived = [Lease(claim.id, claim.lease_id) for claim in claims]
        with suppress(PulseError):  # the next claim tries again
            await self._claims.release_lost(workers, lambda: [*state.held(), *arrived])

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]:
        return await self._claims.report(reports)

    async def progress(self, progress: Sequence[Progress]) -> list[ReportStatus]:
        return await self._claims.progress(progress)

    async def release(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        return await self._claims.release(leases)

    @asynccontextmanager
    async def open_heartbeats(self) -> AsyncIterator[DirectHeartbeats]:
        async with Database(self._engine.settings) as database:
            yield DirectHeartbeats(database, buckets=self._jobs.buckets)


def _source(settings: Settings) -> str:
    url = settings.database_url
    return embedded_place(url, settings.state_dir) or f"the database{place_of(url)}"


def _make_presence(state: WorkerState, slots: int, age: timedelta) -> Presence:
    topics = dict.fromkeys(topic for pool in state.slot_pools() for topic in pool.topics)
    return Presence(
        name=state.name,
        version=f"pulse-python/{__version__}",
        topics=list(topics),
        slots=slots,
        busy=len(state.held()),
        age=age,
    )


class DirectHeartbeats:
    """Heartbeats over a connection of their own, opened for the first heartbeat."""

    def __init__(self, database: Database, *, buckets: int) -> None:
        self._database = database
        self._claims = Claims(database, Notifications(database), Mint(), buckets=buckets)

    async def heartbeat(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        return await self._claims.heartbeat(leases)

    async def rest(self) -> None:
        self._database.close_idle()
