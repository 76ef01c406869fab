"""How does a drain run all jobs that are ready, and how does it notice that none is left?

It uses a worker as in production. Only its link differs: the drain says which topics are ready instead of
notifications, and the duties that make jobs fall due run step by step between its claims.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.engine.duties.duties import AT_ONCE
from pulse.engine.engine import Engine
from pulse.links.direct import DirectLink
from pulse.links.link import Batch
from pulse.model.errors import JobNotFound
from pulse.model.jobs import Claim, Job, JobFilter, JobStatus, Lease, Outcome, Report, ReportStatus
from pulse.sdk.worker.worker import Worker
from pulse.testing import database as test_database
from pulse.testing.calls import show_call
from pulse.testing.summary import DrainFailed, Failure, Summary

if TYPE_CHECKING:
    from pulse.links.link import WorkerState
    from pulse.sdk.app import Pulse
    from pulse.settings import Settings
    from pulse.store.connections.pool import Database

CHECK_EVERY = 0.003  # seconds
STALL_PATIENCE = 10.0  # seconds within which a ready job must be claimed
MAX_RUNS = 10_000
HEARTBEAT = timedelta(milliseconds=60)  # a cancelled handler is stopped at the next one, and tests should not wait


class Drain:
    """One drain, for all the apps of a process."""

    def __init__(self, database: Database, apps: Sequence[Pulse]) -> None:
        self._database = database
        # A new engine: the position from which an older one continues to claim may come from an earlier test.
        self._engine = Engine(database, buckets=database.settings.buckets)
        self._engine.duties.on_dead_letter(self._touch)
        self._apps = apps
        self._touched: dict[UUID, None] = {}  # jobs, in the order they were run
        self._failures: list[Failure] = []
        self._runs = 0

    async def run(self) -> Summary:
        """Run jobs until none of the apps has one that is ready."""
        await self._engine.duties.reap()
        while await self._engine.duties.fires.fire_due():  # occurrences that fall due later are for the next drain
            pass
        while found := await self._find_work():
            await self._run_worker(*found)
        jobs = [job for job_id in self._touched if (job := await self._get(job_id))]
        return Summary.of(self._runs, jobs, self._failures)

    async def _find_work(self) -> tuple[Pulse, list[str]] | None:
        """Return an app that has a task with ready jobs, and the topics of these jobs."""
        await self._engine.duties.fires.fire_buffered()
        await self._promote_due()
        schema = self._database.settings.schema
        waiting = await self._database.run(lambda conn: test_database.list_waiting(conn, schema=schema))
        for app in self._apps:
            topics = dict.fromkeys(topic for task, topic in waiting if app.find_task(task))
            if ready := await self._engine.claims.ready_topics(list(topics)):
                return app, ready
        return None

    async def _promote_due(self) -> None:
        while await self._engine.duties.promote() == AT_ONCE:
            pass

    async def _run_worker(self, app: Pulse, topics: list[str]) -> None:
        """Run a worker until no job is left for it."""
        link = DrainLink(self._engine, app, self._on_claims, self._on_report)
        all_topics = list(dict.fromkeys([*app.topics, *topics]))  # `using(topic=…)` may use any topic
        settings = replace(app.settings, heartbeat=min(HEARTBEAT, app.settings.heartbeat))
        worker = Worker(app, topics=all_topics, settings=settings, open_link=link.opened)
        working = asyncio.create_task(worker.run())
        try:
            await self._wait_until_done(worker, link, working)
        finally:
            worker.stop()
            await working
            await link.release_foreign()

    async def _wait_until_done(self, worker: Worker, link: DrainLink, working: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        runs, last_claim_at = self._runs, loop.time()
        while not working.done() and await self._has_more(worker, link):
            if self._runs > runs or worker.running:
                runs, last_claim_at = self._runs, loop.time()
            if self._runs > MAX_RUNS:
                worker.stop_now()
                raise DrainFailed(f"{MAX_RUNS:,} jobs have run and more are ready: does a task enqueue itself?")
            if loop.time() - last_claim_at > STALL_PATIENCE:
                raise DrainFailed("jobs are ready but cannot be claimed: does an open transaction lock their rows?")
            await asyncio.sleep(CHECK_EVERY)

    async def _has_more(self, worker: Worker, link: DrainLink) -> bool:
        """Tell whether the worker is busy or jobs are ready. They are checked in this order, because the jobs that a
        handler enqueues are there before the handler has ended."""
        if not worker.is_ready or await self._is_busy(worker, link):
            return True
        runs = self._runs
        await self._promote_due()
        if ready := await self._engine.claims.ready_topics(worker.topics):
            link.mark_ready(ready)
            return True
        return link.is_claiming or self._runs > runs

    async def _is_busy(self, worker: Worker, link: DrainLink) -> bool:
        if link.is_claiming or worker.running:
            return True
        running = await self._engine.jobs.list_page(JobFilter(status=JobStatus.RUNNING), limit=500)
        return any(job.locked_by == worker.name and job.id not in link.foreign for job in running.jobs)

    # --- recording

    def _on_claims(self, claims: Sequence[Claim]) -> None:
        self._runs += len(claims)
        for claim in claims:
            self._touch(claim.id)

    def _touch(self, job_id: UUID) -> None:
        self._touched[job_id] = None

    def _on_report(self, claim: Claim, report: Report) -> None:
        if report.outcome in (Outcome.FAIL, Outcome.DISCARD):
            call = show_call(claim.task, claim.payload)
            self._failures.append(Failure(call=call, error=report.error, traceback=report.traceback))

    async def _get(self, job_id: UUID) -> Job | None:
        try:
            return await self._engine.jobs.get(job_id)
        except JobNotFound:  # the test or a handler has deleted it
            return None


class DrainLink(DirectLink):
    """A direct link that reports to the drain what its worker claims and reports."""

    def __init__(
        self,
        engine: Engine,
        app: Pulse,
        on_claims: Callable[[Sequence[Claim]], None],
        on_report: Callable[[Claim, Report], None],
    ) -> None:
        super().__init__(engine)
        self._app = app
        self._on_claims = on_claims
        self._on_report = on_report
        self._running: dict[tuple[UUID, int], Claim] = {}
        self._listener: Callable[[str], None] = lambda _: None
        self.is_claiming = False
        self.foreign: dict[UUID, Lease] = {}  # claimed jobs whose task this app does not have

    @asynccontextmanager
    async def opened(self, _: Settings) -> AsyncIterator[DrainLink]:
        yield self

    def start(self, state: WorkerState) -> None:
        """Start nothing: the drain itself does what a link would do in the background."""

    def on_ready(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def mark_ready(self, topics: Sequence[str]) -> None:
        for topic in topics:
            self._listener(topic)

    async def claim(self, topic: str, *, worker: str, slots: int) -> Batch:
        self.is_claiming = True
        try:
            claims, held_until = await super().claim(topic, worker=worker, slots=slots)
        finally:
            self.is_claiming = False
        known = [claim for claim in claims if self._app.find_task(claim.task)]
        self.foreign |= {claim.id: Lease(claim.id, claim.lease_id) for claim in claims if claim not in known}
        self._running |= {(claim.id, claim.lease_id): claim for claim in known}
        self._on_claims(known)
        return Batch(known, held_until)

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]:
        answers = await super().report(reports)
        for report, answer in zip(reports, answers, strict=True):
            if answer is ReportStatus.ACCEPTED and (claim := self._running.pop((report.id, report.lease_id), None)):
                self._on_report(claim, report)
        return answers

    async def release_foreign(self) -> None:
        """Release claimed jobs whose task this app does not have."""
        await self.release(list(self.foreign.values()))
