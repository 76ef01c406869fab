"""What does a worker do? It claims jobs that it can start, runs and reports them, and stops without losing any."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulse.engine.masks import mask_report
from pulse.links.opening import open_link as open_any
from pulse.model.errors import InvalidOption, LimitReached, PulseError, Unavailable
from pulse.model.jobs import Claim, Lease, Outcome, Progress, Report, ReportStatus
from pulse.model.text import check_topic
from pulse.sdk.context import Context, use_context
from pulse.sdk.locate import path_of, refuse_while_loading
from pulse.sdk.worker.claim_loop import ClaimLoop
from pulse.sdk.worker.handlers import Handlers
from pulse.sdk.worker.heartbeats import Heartbeats
from pulse.sdk.worker.hooks import Hooks
from pulse.sdk.worker.outcomes import report_timeout, report_unknown
from pulse.sdk.worker.reporter import Reporter
from pulse.sdk.worker.run import EndReason, Run
from pulse.sdk.worker.run_log import RunLog
from pulse.sdk.worker.slots import Slots
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from pulse.links.link import Link, SlotPool
    from pulse.sdk.app import Pulse
    from pulse.sdk.task import Where
    from pulse.settings import Settings

log = logging.getLogger("pulse.worker")

UNKNOWN_DELAY = (5.0, 15.0)  # seconds until a job of an unknown task is ready again
CANCEL_PATIENCE = 5.0  # seconds for a cancelled handler to end
REPORT_PATIENCE = 10.0  # seconds for the last reports to be sent when everything else has ended

OpenLink = Callable[["Settings"], AbstractAsyncContextManager["Link"]]


class Worker:
    """Runs the tasks of one application until `stop` is called."""

    def __init__(
        self,
        app: Pulse,
        *,
        topics: Sequence[str] | None = None,
        settings: Settings | None = None,
        open_link: OpenLink = open_any,
        on_ready: Callable[[], None] = lambda: None,
        run_log: RunLog | None = None,
    ) -> None:
        self.app = app
        self.settings = settings or app.settings
        self.topics = [check_topic(topic) for topic in topics or app.topics]
        if not self.topics:
            must = "name at least one topic, because the app has no tasks (is the module that declares them imported?)"
            raise InvalidOption("topics", [], must)
        self.name = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(3)}"
        self.is_ready = False
        self.done = 0  # runs that have ended, with any outcome
        self.unreported = 0  # results that could not be reported before the worker ended
        self._open_link = open_link
        self._on_ready = on_ready
        self._redaction = self.settings.redaction
        self._run_log = run_log or RunLog(self._redaction)
        self._slots = Slots(_sizes(self.settings), self.topics, app.tasks.values())
        self._held: dict[Any, Run] = {}
        self._running: dict[Any, Run] = {}
        tick = self.settings.tick.total_seconds()
        self._claim_loop = ClaimLoop(self.name, self.topics, self._slots, self._held, tick=tick, take=self._take)
        self._hurry = asyncio.Event()
        self._has_ended = asyncio.Event()

    @property
    def running(self) -> list[Run]:
        return list(self._running.values())

    async def can_get_jobs(self) -> bool:
        """Tell whether jobs can reach this worker at the moment."""
        if not self.is_ready:
            return False
        try:
            await self._link.check()
        except PulseError:
            return False
        return True

    def stop(self) -> None:
        """Claim no more jobs, let running ones finish within the grace period, and give back the rest."""
        self._claim_loop.stop()

    def stop_now(self) -> None:
        """Stop like `stop`, but without the grace period."""
        self.stop()
        self._hurry.set()

    async def run(self) -> None:
        """Run jobs until `stop` is called, and return when this worker holds none any more."""
        refuse_while_loading()
        if any(task.where == "process" for task in self.app.tasks.values()):
            path_of(self.app)  # raises now if other processes cannot load the app, rather than for every job
        async with AsyncExitStack() as stack:
            link = await stack.enter_async_context(self._open_link(self.settings))
            with suppress(Unavailable, LimitReached):  # these may pass; a refusal does not
                await link.check_access(self.name, self.topics)
            hooks = await stack.enter_async_context(Hooks(self.app, link))
            self._link, self._hooks = link, hooks
            self._loop = asyncio.get_running_loop()
            self._reporter = Reporter(link, self._on_answer, before_answers=self._run_log.check_level)
            self._handlers = Handlers(
                self.app, self.settings, self._slots.sizes, worker=self.name, note=self._note, ended=self._on_end
            )
            heartbeats = Heartbeats(link, self._held, self._end_from_thread)
            heartbeats.start()
            reporting = asyncio.create_task(self._reporter.run(), name="pulse reporter")
            link.on_ready(self._claim_loop.mark_ready)
            if self.app.dead_letter_hooks:
                link.on_dead_letter(hooks.on_dead_letter)
            link.start(self)
            self.is_ready = True
            self._on_ready()
            try:
                await self._claim_loop.run(link, self._reporter)
                await self._drain()
            finally:
                self.is_ready = False
                await self._close(heartbeats, reporting)

    # --- the WorkerState that the link reads

    def slot_pools(self) -> list[SlotPool]:
        return self._slots.slot_pools()

    def held(self) -> list[Lease]:
        return [Lease(run.claim.id, run.claim.lease_id) for run in self._held.values()]

    def end(self, lease: Lease) -> None:
        if run := self._held.get((lease.id, lease.lease_id)):
            self._end(run, EndReason.CANCELLED)

    # --- running

    def _take(self, claim: Claim, held_until: float) -> None:
        if self._claim_loop.is_stopping:  # the claim was answered after the worker was told to stop
            self._reporter.release(Lease(claim.id, claim.lease_id))
            return
        task = self.app.find_task(claim.task)
        if task is None:
            log.warning("this worker has no task %r: job %s waits for one that has", claim.task, claim.id)
            self._reporter.report(report_unknown(claim, timedelta(seconds=random.uniform(*UNKNOWN_DELAY))))  # noqa: S311
            return
        context = Context(claim, schema=self.settings.schema)
        run = Run(claim, task, context, held_until)
        key = (claim.id, claim.lease_id)
        self._held[key] = self._running[key] = run
        self._slots.take(task.where)
        if self._run_log.is_on:
            run.started_at = time.monotonic()
        if claim.timeout is not None:
            run.timer = self._loop.call_later(claim.timeout.total_seconds(), self._end, run, EndReason.TIMEOUT)
        if task.takes_context or self.app.middlewares:
            context.on_progress(lambda text: self._note(run, text))
        self._handlers.begin(run)

    def _note(self, run: Run, text: str) -> None:
        progress = Progress(id=run.claim.id, lease_id=run.claim.lease_id, value=text)
        self._loop.call_soon_threadsafe(self._reporter.note, progress)

    # --- ending

    def _end_from_thread(self, run: Run, why: EndReason) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, run, why)

    def _end(self, run: Run, why: EndReason) -> None:
        """End a run from outside. A thread cannot be ended: its result is discarded and its slot stays taken."""
        if not run.end(why):
            return
        with use_context(run.context):
            log.info("job %s (%s) was ended: %s", run.claim.id, run.claim.task, why.value)
        if run.work is None:
            self._conclude(run)
        else:
            self._loop.call_later(CANCEL_PATIENCE, self._conclude, run)

    def _on_end(self, run: Run) -> None:
        """Free the slot of a run whose handler has ended in any way, and conclude it."""
        run.work = None
        self.done += 1
        if run.started_at is not None:
            run.took = time.monotonic() - run.started_at
        self._slots.give_back(run.task.where)
        self._conclude(run)
        self._running.pop((run.claim.id, run.claim.lease_id), None)
        self._claim_loop.mark_slot_free()
        if not self._running:
            self._has_ended.set()

    def _conclude(self, run: Run) -> None:
        """Report or release the job, once."""
        if run.is_concluded:
            return
        run.is_concluded = True
        if run.timer is not None:
            run.timer.cancel()
        claim = run.claim
        if run.end_reason in (EndReason.LOST, EndReason.CANCELLED):
            self._held.pop((claim.id, claim.lease_id), None)
        elif run.report is not None:
            self._reporter.report(mask_report(self._redaction, run.report, claim.payload))
        elif run.end_reason is EndReason.TIMEOUT:
            self._reporter.report(report_timeout(claim))
        else:
            self._reporter.release(Lease(claim.id, claim.lease_id))

    def _on_answer(self, item: Report | Lease, answer: ReportStatus) -> None:
        """Give up a claim whose report or release the database has answered."""
        run = self._held.pop((item.id, item.lease_id), None)
        has_failed = isinstance(item, Report) and item.outcome in (Outcome.FAIL, Outcome.DISCARD)
        # ALREADY: an earlier try was recorded, but its answer was lost
        is_recorded = answer in (ReportStatus.ACCEPTED, ReportStatus.ALREADY)
        if answer in (ReportStatus.LOST, ReportStatus.CANCELLED) or (is_recorded and has_failed):
            with use_context(run.context) if run else nullcontext():
                self._log_failure(item, answer, run)
        elif self._run_log.is_on and run is not None and isinstance(item, Report) and not has_failed:
            self._run_log.log_end(run, item)

    def _log_failure(self, item: Report | Lease, answer: ReportStatus, run: Run | None) -> None:
        if isinstance(item, Report) and answer in (ReportStatus.ACCEPTED, ReportStatus.ALREADY):
            self._run_log.log_failure(run, item)
            if run is None or item.outcome is Outcome.DISCARD or run.claim.is_last_attempt or run.claim.deadline:
                self._hooks.on_dead_letter(item.id)
        elif run is not None:
            log.warning("the result of job %s (%s) was refused: %s", item.id, run.claim.task, answer.value.lower())

    # --- stopping

    async def _drain(self) -> None:
        """Let running jobs finish; cancel those that have not finished in time, and give them back uncharged."""
        self.is_ready = False
        for claim in await self._link.stop_claiming():
            self._reporter.release(Lease(claim.id, claim.lease_id))
        if self._running:
            grace = format_duration(self.settings.grace)
            log.info("stopping: running jobs (%d) have %s to finish", len(self._running), grace)
        await self._wait_for_handlers(self.settings.grace.total_seconds(), unless=self._hurry)
        for run in self.running:
            self._end(run, EndReason.STOPPING)
        await self._wait_for_handlers(CANCEL_PATIENCE)
        for run in self.running:
            self._conclude(run)

    async def _wait_for_handlers(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Wait until no handler is running that can still conclude its run."""
        waiting = [self._has_ended, *([unless] if unless else [])]
        give_up_at = self._loop.time() + seconds
        while any(not run.is_concluded for run in self._running.values()) and not (unless and unless.is_set()):
            self._has_ended.clear()
            if (left := give_up_at - self._loop.time()) <= 0:
                return
            tasks = [asyncio.ensure_future(event.wait()) for event in waiting]
            await asyncio.wait(tasks, timeout=min(left, 0.25), return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()

    async def _close(self, heartbeats: Heartbeats, reporting: asyncio.Task[None]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_PATIENCE):
                await self._reporter.send_notes()
                await self._reporter.idle()
                await self._hooks.drain()
        self.unreported = self._reporter.unsent
        if self.unreported:
            log.error("%d results could not be reported, so their jobs will run again", self.unreported)
        heartbeats.stop()
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        await self._handlers.close()
        await asyncio.to_thread(heartbeats.join, 5)


def _sizes(settings: Settings) -> dict[Where, int]:
    processes = settings.processes or os.cpu_count() or 1
    return {"loop": settings.concurrency, "thread": settings.threads, "process": processes}
