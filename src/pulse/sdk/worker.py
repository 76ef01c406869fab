"""How does a worker live? It claims what it can start, runs it, reports it, and stops without losing anything."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from contextvars import copy_context
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pulse.engine.masks import mask_report
from pulse.links.opening import open_link as open_any
from pulse.model.errors import InvalidOption, PulseError
from pulse.model.jobs import CLAIM_LIMIT, Answer, Claim, JobStatus, Lease, Outcome, Progress, Report
from pulse.model.text import check_topic
from pulse.sdk.context import Context, current, during
from pulse.sdk.heartbeats import Heartbeats
from pulse.sdk.locate import path_of, refuse_while_loading
from pulse.sdk.outcomes import report_error, report_result, report_timeout, report_unknown
from pulse.sdk.process_pool import ProcessPool
from pulse.sdk.reporter import Reporter
from pulse.sdk.runs import Cut, Run
from pulse.sdk.slots import Slots
from pulse.sdk.tracing import Processing, processing
from pulse.timing.backoff import Backoff
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.links.link import Link, Places
    from pulse.sdk.app import Pulse
    from pulse.settings import Settings

log = logging.getLogger("pulse.worker")

GATHER = 0.002  # seconds to wait for more slots to become free
CLAIM_PATIENCE = 2.0  # seconds for the answer to the last claim
UNKNOWN_DELAY = (5.0, 15.0)  # seconds until a job of an unknown task is looked at again
CANCEL_PATIENCE = 5.0  # seconds a cancelled handler has to end
REPORT_PATIENCE = 10.0  # seconds the last reports have when everything else has ended
UNREPORTED = 4  # times the slots: more results than this on their way, and nothing new is claimed

OpenLink = Callable[["Settings"], AbstractAsyncContextManager["Link"]]


class Worker:
    """Runs the tasks of one application until told to stop."""

    def __init__(
        self,
        app: Pulse,
        *,
        topics: Sequence[str] | None = None,
        settings: Settings | None = None,
        open_link: OpenLink = open_any,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.app = app
        self.settings = settings or app.settings
        self.topics = [check_topic(topic) for topic in topics or app.topics]
        if not self.topics:
            raise InvalidOption("topics", [], "the app has no tasks: is the module that declares them imported?")
        self.name = f"{socket.gethostname()[:80]}:{os.getpid()}:{secrets.token_hex(3)}"
        self.is_ready = False
        self.done = 0  # runs that ended, however they did
        self.unreported = 0  # results that nobody took before it had to end
        self._open_link = open_link
        self._on_ready = on_ready
        self._redaction = self.settings.redaction
        self._slots = Slots(self._sizes(), self.topics, app.tasks.values())
        self._held: dict[Any, Run] = {}
        self._running: dict[Any, Run] = {}
        self._maybe_ready: dict[str, None] = {}
        self._thread_ends: deque[tuple[Run, Report]] = deque()
        self._is_collecting = False
        self._threads: ThreadPoolExecutor | None = None
        self._processes: ProcessPool | None = None
        self._errands: set[asyncio.Task[None]] = set()
        self._is_told_to_stop = asyncio.Event()
        self._is_told_to_hurry = asyncio.Event()
        self._something_changed = asyncio.Event()
        self._has_ended = asyncio.Event()

    @property
    def running(self) -> list[Run]:
        return list(self._running.values())

    async def can_get_jobs(self) -> bool:
        """Whether work would reach it just now."""
        if not self.is_ready:
            return False
        try:
            await self._link.check()
        except PulseError:
            return False
        return True

    def stop(self) -> None:
        """Claim nothing more, let what runs finish within the grace period, then give it back."""
        self._is_told_to_stop.set()
        self._something_changed.set()

    def stop_now(self) -> None:
        """As `stop`, without the grace."""
        self.stop()
        self._is_told_to_hurry.set()

    async def run(self) -> None:
        """Until told to stop. Returns when nothing is left in its hands."""
        refuse_while_loading()
        if any(task.where == "process" for task in self.app.tasks.values()):
            path_of(self.app)  # refused now, not by every job: a process has to find the app again
        async with self._open_link(self.settings) as link, self._hooks():
            self._link = link
            self._loop = asyncio.get_running_loop()
            self._reporter = Reporter(link, self._settled)
            heartbeats = Heartbeats(link, self._held, self._end_from_afar)
            heartbeats.start()
            reporting = asyncio.create_task(self._reporter.run(), name="pulse reporter")
            link.on_ready(self._hear)
            link.on_dead_letter(self._mourn)
            link.start(self)
            self.is_ready = True
            self._on_ready()
            try:
                await self._claim_while_wanted()
                await self._drain()
            finally:
                self.is_ready = False
                await self._close(heartbeats, reporting)

    # --- what the link may ask

    def places(self) -> list[Places]:
        return self._slots.places()

    def held(self) -> list[Lease]:
        return [Lease(run.claim.id, run.claim.lease_id) for run in self._held.values()]

    def end(self, lease: Lease) -> None:
        if run := self._held.get((lease.id, lease.lease_id)):
            self._end(run, Cut.CANCELED)

    # --- claiming

    def _hear(self, topic: str) -> None:
        """Work may have come."""
        if topic == "*":
            self._maybe_ready |= dict.fromkeys(self.topics)
        elif topic in self.topics:
            self._maybe_ready[topic] = None
        self._something_changed.set()

    async def _claim_while_wanted(self) -> None:
        """Told to stop, it waits for an answer that is on its way, but not for as long as an outage lasts."""
        claiming = asyncio.create_task(self._claim_until_stopped())
        told = asyncio.create_task(self._is_told_to_stop.wait())
        try:
            await asyncio.wait([claiming, told], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([claiming], timeout=CLAIM_PATIENCE)
        finally:
            for task in (claiming, told):
                task.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            claiming.result()

    async def _claim_until_stopped(self) -> None:
        self._hear("*")
        backoff, failures = Backoff(), 0
        while not self._is_told_to_stop.is_set():
            try:
                await self._claim_or_wait()
                failures = 0
            except PulseError as error:
                failures += 1
                log.warning("could not claim, trying again: %s", error)
                await self._wait(backoff.delay(failures).total_seconds())

    async def _claim_or_wait(self) -> None:
        topic = self._next_topic()
        if topic is None:
            if not await self._wait(self.settings.tick.total_seconds()) and self._has_room():
                for found in await self._link.ready_topics(self.topics):
                    self._maybe_ready[found] = None
            return
        if self._slots.for_topic(topic) < self._slots.worth_asking(topic):
            await asyncio.sleep(GATHER)
        await self._claim(topic)

    def _next_topic(self) -> str | None:
        """The topic that has waited longest among those with work and room."""
        if not self._has_room():
            return None
        return next((topic for topic in self._maybe_ready if self._slots.for_topic(topic) > 0), None)

    def _has_room(self) -> bool:
        return len(self._held) < UNREPORTED * sum(self._slots.sizes.values())

    async def _claim(self, topic: str) -> None:
        slots = min(self._slots.for_topic(topic), CLAIM_LIMIT)
        del self._maybe_ready[topic]  # before asking: what comes meanwhile puts it back
        try:
            claims, held_until = await self._link.claim(topic, worker=self.name, slots=slots)
        except BaseException:
            self._maybe_ready[topic] = None
            raise
        if claims:
            self._maybe_ready[topic] = None  # there may be more; at the end, so that topics take turns
        if time.monotonic() > held_until:  # we stood still meanwhile: others may have them by now
            for claim in claims:
                self._reporter.release(Lease(claim.id, claim.lease_id))
            return
        for claim in claims:
            self._take(claim, held_until)
        if claims and len(claims) < slots:
            await asyncio.sleep(0)  # let them begin before the next question; with a backlog, the question goes first

    async def _wait(self, seconds: float) -> bool:
        """Until something changed (true) or the time is up. A timer may ring a little early, so it says so itself."""
        self._something_changed.clear()
        if self._is_told_to_stop.is_set():
            return True
        is_time_up = False

        def ring() -> None:
            nonlocal is_time_up
            is_time_up = True
            self._something_changed.set()

        timer = self._loop.call_later(seconds, ring)
        await self._something_changed.wait()
        timer.cancel()
        return not is_time_up

    # --- running

    def _take(self, claim: Claim, held_until: float) -> None:
        if self._is_told_to_stop.is_set():  # it came back after we were told
            self._reporter.release(Lease(claim.id, claim.lease_id))
            return
        task = self.app.find_task(claim.task)
        if task is None:
            log.warning("no task %r here: job %s waits for a worker that knows it", claim.task, claim.id)
            self._reporter.report(report_unknown(claim, timedelta(seconds=random.uniform(*UNKNOWN_DELAY))))  # noqa: S311
            return
        context = Context(claim, schema=self.settings.schema)
        run = Run(claim, task, context, held_until)
        key = (claim.id, claim.lease_id)
        self._held[key] = self._running[key] = run
        self._slots.take(task.where)
        if claim.timeout is not None:
            run.timer = self._loop.call_later(claim.timeout.total_seconds(), self._end, run, Cut.TIMEOUT)
        if task.takes_context or self.app.middlewares:
            context.notes_to(lambda text: self._note(run, text))
        self._begin(run)

    def _begin(self, run: Run) -> None:
        if run.task.where == "thread" and not self.app.middlewares:
            self._thread_pool().submit(self._run_in_thread, run)
            return
        run.work = self._loop.create_task(self._run_on_loop(run))

    async def _run_on_loop(self, run: Run) -> None:
        """An async handler, or whatever else has to be waited for. It sees to its own end: a callback would cost every
        job another turn of the loop."""
        run.has_begun = True
        current.set(run.context)
        with self._traced(run) as span:
            try:
                if run.cut is None:
                    run.report = await self._report_of(run)
                span.ends(run.report)
            except GeneratorExit:
                raise
            except BaseException as error:
                run.report = report_error(run.task, run.claim, error) if run.cut is None else None
                span.ends(run.report, error)
        self._ended(run)

    def _traced(self, run: Run) -> Processing:
        as_child = self.settings.trace_as_child
        return processing(run, worker=self.name, redaction=self._redaction, as_child=as_child)

    async def _report_of(self, run: Run) -> Report | None:
        task = run.task
        if task.where == "process":
            return await self._process_pool().execute(run, lambda text: self._note(run, text))
        args, kwargs = task.arguments.unpack(run.claim.payload)
        if task.takes_context:
            args = (run.context, *args)
        if self.app.middlewares or task.where == "thread":
            result = await self._call_through(run, args, kwargs)
        else:
            result = await task.function(*args, **kwargs)
        return report_result(task, run.claim, result)

    async def _call_through(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """The handler inside the middlewares, the first one declared outermost."""

        async def call() -> Any:  # noqa: ANN401
            if run.task.is_async:
                return await run.task.function(*args, **kwargs)
            here = copy_context()  # the job and the span, for the thread too
            return await self._loop.run_in_executor(self._thread_pool(), here.run, _call, run, args, kwargs)

        for middleware in reversed(self.app.middlewares):
            call = _around(middleware, run.context, call)
        return await call()

    def _run_in_thread(self, run: Run) -> None:
        task, claim = run.task, run.claim
        token = current.set(run.context)
        try:
            with self._traced(run) as span:
                try:
                    args, kwargs = task.arguments.unpack(claim.payload)
                    given = (run.context, *args) if task.takes_context else args
                    report = report_result(task, claim, task.function(*given, **kwargs))
                    span.ends(report)
                except BaseException as error:
                    report = report_error(task, claim, error)
                    span.ends(report, error)
        finally:
            current.reset(token)
        self._thread_ends.append((run, report))
        if not self._is_collecting:  # cleared before the loop looks, so whoever finds it set is seen
            self._is_collecting = True
            with suppress(RuntimeError):  # the loop is closed: the worker has ended without us
                self._loop.call_soon_threadsafe(self._collect_threads)

    def _collect_threads(self) -> None:
        self._is_collecting = False
        while self._thread_ends:
            run, report = self._thread_ends.popleft()
            run.report = report if run.cut in (None, Cut.TIMEOUT, Cut.STOPPING) else None
            self._ended(run)

    def _note(self, run: Run, text: str) -> None:
        progress = Progress(id=run.claim.id, lease_id=run.claim.lease_id, value=text)
        self._loop.call_soon_threadsafe(self._reporter.note, progress)

    # --- ending

    def _end_from_afar(self, run: Run, why: Cut) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, run, why)

    def _end(self, run: Run, why: Cut) -> None:
        """End a run from outside. A thread cannot be ended: its word is taken away, its slot stays taken."""
        if not run.end(why):
            return
        with during(run.context):
            log.info("job %s (%s) is ended: %s", run.claim.id, run.claim.task, why.value)
        if run.work is None:
            self._conclude(run)
        else:
            self._loop.call_later(CANCEL_PATIENCE, self._conclude, run)

    def _ended(self, run: Run) -> None:
        """Its handler has ended, one way or another."""
        run.work = None
        self.done += 1
        self._slots.give_back(run.task.where)
        self._conclude(run)
        self._running.pop((run.claim.id, run.claim.lease_id), None)
        self._something_changed.set()
        if not self._running:
            self._has_ended.set()

    def _conclude(self, run: Run) -> None:
        """Say, once, what becomes of the job."""
        if run.is_concluded:
            return
        run.is_concluded = True
        if run.timer is not None:
            run.timer.cancel()
        claim = run.claim
        if run.cut in (Cut.LOST, Cut.CANCELED):
            self._held.pop((claim.id, claim.lease_id), None)
        elif run.report is not None:
            self._reporter.report(mask_report(self._redaction, run.report, claim.payload))
        elif run.cut is Cut.TIMEOUT:
            self._reporter.report(report_timeout(claim))
        else:
            self._reporter.release(Lease(claim.id, claim.lease_id))

    def _settled(self, item: Report | Lease, answer: Answer) -> None:
        """The database has answered, so the claim is no longer ours."""
        run = self._held.pop((item.id, item.lease_id), None)
        has_failed = isinstance(item, Report) and item.outcome in (Outcome.FAIL, Outcome.DISCARD)
        if answer in (Answer.LOST, Answer.CANCELED) or (answer is Answer.ACCEPTED and has_failed):
            with during(run.context) if run else nullcontext():
                self._tell_of_failure(item, answer, run)

    def _tell_of_failure(self, item: Report | Lease, answer: Answer, run: Run | None) -> None:
        if isinstance(item, Report) and answer is Answer.ACCEPTED:
            log.warning("job %s failed: %s", item.id, str(item.clean_error).partition("\n")[0][:500])
            if run is None or item.outcome is Outcome.DISCARD or run.claim.is_last_attempt or run.claim.deadline:
                self._mourn(item.id)
        elif run is not None:
            log.warning("the result of job %s (%s) was not taken: %s", item.id, run.claim.task, answer.value.lower())

    def _mourn(self, job_id: UUID) -> None:
        if self.app.dead_letter_hooks:
            self._run_errand(self._tell_of_dead_letter(job_id))

    async def _tell_of_dead_letter(self, job_id: UUID) -> None:
        job = await self._link.get(job_id)
        if job.status is JobStatus.DEAD_LETTERED:
            for hook in self.app.dead_letter_hooks:
                await _call_hook(hook, job)

    def _run_errand(self, work: Coroutine[Any, Any, None]) -> None:
        async def errand() -> None:
            try:
                await work
            except Exception:
                log.exception("a hook failed")

        task = self._loop.create_task(errand())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    # --- stopping

    async def _drain(self) -> None:
        """What runs may finish; what has not by then is cancelled and given back, uncharged."""
        self.is_ready = False
        for claim in await self._link.stop_claiming():
            self._reporter.release(Lease(claim.id, claim.lease_id))
        if self._running:
            grace = format_duration(self.settings.grace)
            log.info("stopping: what runs (%d) has %s to finish", len(self._running), grace)
        await self._until_ended(self.settings.grace.total_seconds(), unless=self._is_told_to_hurry)
        for run in self.running:
            self._end(run, Cut.STOPPING)
        await self._until_ended(CANCEL_PATIENCE)
        for run in self.running:
            self._conclude(run)

    async def _until_ended(self, seconds: float, unless: asyncio.Event | None = None) -> None:
        """Until no handler runs that can be waited for."""
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
                await asyncio.gather(*self._errands)
        self.unreported = self._reporter.unsent
        if self.unreported:
            log.error("%d results could not be reported: their jobs will run again", self.unreported)
        heartbeats.stop()
        reporting.cancel()
        await asyncio.gather(reporting, return_exceptions=True)
        if self._processes is not None:
            await self._processes.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(heartbeats.join, 5)

    # --- parts made when first needed

    def _sizes(self) -> dict[Any, int]:
        processes = self.settings.processes or os.cpu_count() or 1
        return {"loop": self.settings.concurrency, "thread": self.settings.threads, "process": processes}

    def _thread_pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="pulse handler")
        return self._threads

    def _process_pool(self) -> ProcessPool:
        if self._processes is None:
            self._processes = ProcessPool(self.app, self._slots.sizes["process"], redact=self.settings.redact)
        return self._processes

    @asynccontextmanager
    async def _hooks(self) -> AsyncIterator[None]:
        for hook in self.app.startup_hooks:
            await _call_hook(hook)
        try:
            yield
        finally:
            for hook in reversed(self.app.shutdown_hooks):
                try:
                    await _call_hook(hook)
                except Exception:
                    log.exception("a shutdown hook failed")


def calm_collector() -> None:
    """For a process that is a worker, or a server, and nothing else. Thousands of short-lived objects a second make
    Python look for garbage a hundred times a second, and sometimes through everything that was ever imported, which
    holds a server's loop up for 18 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


async def _call_hook(hook: Callable[..., Any], *args: object) -> None:
    """Sync hooks on a thread: they may open connections, and the loop must turn."""
    if inspect.iscoroutinefunction(hook):
        await hook(*args)
    else:
        await asyncio.to_thread(hook, *args)


def _call(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    try:
        return run.task.function(*args, **kwargs)
    except StopIteration as error:  # a future refuses to carry it
        raise RuntimeError("the handler raised StopIteration") from error


def _around(middleware: Callable[..., Any], context: Context, call: Callable[[], Any]) -> Callable[[], Any]:
    async def wrapped() -> Any:  # noqa: ANN401
        return await middleware(context, call)

    return wrapped
