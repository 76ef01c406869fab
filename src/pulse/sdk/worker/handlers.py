"""How is a handler called? On the event loop, in a thread or in a process, inside the middlewares."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from pulse.sdk.context import Context, current
from pulse.sdk.worker.outcomes import report_error, report_result
from pulse.sdk.worker.process_pool import ProcessPool
from pulse.sdk.worker.run import EndReason, Run
from pulse.telemetry.tracing import Processing, processing

if TYPE_CHECKING:
    from pulse.model.jobs import Report
    from pulse.sdk.app import Pulse
    from pulse.sdk.task import Where
    from pulse.settings import Settings


class Handlers:
    """Starts handlers, and calls `ended` with each run whose handler has ended."""

    def __init__(
        self,
        app: Pulse,
        settings: Settings,
        sizes: Mapping[Where, int],
        *,
        worker: str,
        note: Callable[[Run, str], None],
        ended: Callable[[Run], None],
    ) -> None:
        self._app = app
        self._settings = settings
        self._redaction = settings.redaction
        self._sizes = sizes
        self._worker = worker
        self._note = note
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread_ends: deque[tuple[Run, Report | None]] = deque()
        self._is_collecting = False
        self._threads: ThreadPoolExecutor | None = None  # both are created when they are first needed
        self._processes: ProcessPool | None = None

    def begin(self, run: Run) -> None:
        if run.task.where == "thread" and not self._app.middlewares:
            self._thread_pool().submit(self._run_in_thread, run)
            return
        run.work = self._loop.create_task(self._run_on_loop(run))

    async def _run_on_loop(self, run: Run) -> None:
        """Run a handler that is awaited: an async one, or any other inside middlewares or in a process.

        The task itself passes on that the run has ended: a callback would cost every job another turn of the loop.
        """
        run.has_begun = True
        current.set(run.context)
        with self._traced(run) as span:
            try:
                if run.may_begin:
                    run.report = await self._execute(run)
                span.ends(run.report)
            except _TooLate:
                span.ends(None)
            except BaseException as error:
                if isinstance(error, GeneratorExit) and not _is_run_by_loop(run):
                    raise  # the loop is gone, and Python is disposing of this coroutine: no handler raised this
                run.report = report_error(run.task, run.claim, error) if run.end_reason is None else None
                span.ends(run.report, error)
        self._ended(run)

    def _traced(self, run: Run) -> Processing:
        as_child = self._settings.trace_as_child
        return processing(run, worker=self._worker, redaction=self._redaction, as_child=as_child)

    async def _execute(self, run: Run) -> Report | None:
        task = run.task
        if task.where == "process":
            return await self._process_pool().execute(run, lambda text: self._note(run, text))
        args, kwargs = task.arguments.unpack(run.claim.payload)
        if task.takes_context:
            args = (run.context, *args)
        if self._app.middlewares or task.where == "thread":
            result = await self._call_through(run, args, kwargs)
        else:
            result = await task.function(*args, **kwargs)
        return report_result(task, run.claim, result)

    async def _call_through(self, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Call the handler inside the middlewares, the first one declared outermost."""

        async def call() -> Any:  # noqa: ANN401
            if run.task.is_async:
                return await run.task.function(*args, **kwargs)
            variables = copy_context()  # the current job and span, for the thread too
            return await self._loop.run_in_executor(self._thread_pool(), variables.run, _call, run, args, kwargs)

        for middleware in reversed(self._app.middlewares):
            call = _around(middleware, run.context, call)
        return await call()

    def _run_in_thread(self, run: Run) -> None:
        report = self._execute_in_thread(run) if run.may_begin else None
        self._thread_ends.append((run, report))
        if not self._is_collecting:  # the loop clears this before it reads the queue, so no run is missed
            self._is_collecting = True
            with suppress(RuntimeError):  # the loop is closed: the worker ended without waiting for this thread
                self._loop.call_soon_threadsafe(self._collect_threads)

    def _execute_in_thread(self, run: Run) -> Report:
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
        return report

    def _collect_threads(self) -> None:
        self._is_collecting = False
        while self._thread_ends:
            run, report = self._thread_ends.popleft()
            run.report = report if run.end_reason in (None, EndReason.TIMEOUT, EndReason.STOPPING) else None
            self._ended(run)

    async def close(self) -> None:
        """End the processes, and start no more threads. A thread that still runs cannot be ended and is left alone."""
        if self._processes is not None:
            await self._processes.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _thread_pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._sizes["thread"], thread_name_prefix="pulse handler")
        return self._threads

    def _process_pool(self) -> ProcessPool:
        if self._processes is None:
            self._processes = ProcessPool(self._app, self._sizes["process"], redact=self._settings.redact)
        return self._processes


class _TooLate(Exception):
    """The run waited for a thread until it might no longer begin, so its job is given back."""


def _is_run_by_loop(run: Run) -> bool:
    """Tell whether the run's own task is running this. If a coroutine is closed, some other code is running it."""
    with suppress(RuntimeError):  # no loop is running
        return asyncio.current_task() is run.work
    return False


def _call(run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
    if not run.may_begin:
        raise _TooLate
    try:
        return run.task.function(*args, **kwargs)
    except StopIteration as error:  # cannot be set as the exception of a future
        raise RuntimeError("the handler raised StopIteration") from error


def _around(middleware: Callable[..., Any], context: Context, call: Callable[[], Any]) -> Callable[[], Any]:
    async def wrapped() -> Any:  # noqa: ANN401
        return await middleware(context, call)

    return wrapped
