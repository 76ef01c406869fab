"""Which process runs a job with executor="process"? One at a time each, kept warm, replaced when worn out or dead."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from pulse.sdk.locate import modules_of, path_of, refuse_while_loading
from pulse.sdk.logs import how_logs_are_written
from pulse.sdk.worker.outcomes import report_crash
from pulse.sdk.worker.process_handle import Process, Unusable
from pulse.sdk.worker.process_messages import Hello, Work
from pulse.telemetry.tracing import carry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pulse.model.jobs import Report
    from pulse.sdk.app import Pulse
    from pulse.sdk.worker.run import Run


class ProcessPool:
    """At most `size` processes, each started when first needed."""

    jobs_per_process = 1_000  # then it is replaced: what handlers leak goes with it

    def __init__(self, app: Pulse, size: int, *, redact: str = "") -> None:
        refuse_while_loading()
        self._app = app
        self._redact = redact
        self._seats = asyncio.Semaphore(size)
        self._idle: list[Process] = []  # the last one used first, so that one stays busy rather than all lukewarm
        self._starting: list[asyncio.Task[Process]] = []  # that no job waits for
        self._processes: set[Process] = set()
        self._errands: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def execute(self, run: Run, note: Callable[[str], None]) -> Report | None:
        """What the run's end means for its job; none if it was ended from outside, or not begun because it was late."""
        try:
            async with self._seats:
                report = await self._execute(run, note)
        except asyncio.CancelledError:
            if run.end_reason is None:
                raise
            return None
        return report if run.end_reason is None else None

    async def close(self) -> None:
        """End all of them: idle ones by their shutdown hooks, others at once."""
        self._is_closed = True
        at_rest = {*self._idle, *(task.result() for task in self._starting if _has_succeeded(task))}
        for process in self._processes:
            if process in at_rest:
                self._retire(process)
            elif not process.is_asked_to_end:
                process.kill()
        await asyncio.gather(*self._starting, *self._errands, return_exceptions=True)
        await asyncio.gather(*(process.wait() for process in self._processes))
        self._idle, self._starting = [], []
        self._processes.clear()

    # --- one job

    async def _execute(self, run: Run, note: Callable[[str], None]) -> Report | None:
        try:
            process = await self._find_process()
        except Unusable as error:
            return report_crash(run.claim, str(error))
        work = Work(run.claim, run.context._schema, carry())  # the schema is the worker's, which may not be the app's
        if not run.may_begin:  # it took longer to start than the lease lasts, or we stood still meanwhile
            self._put_back(process)
            return None
        run.kill = process.kill
        if run.started_at is not None:
            run.started_at = time.monotonic()  # starting the process was no work of the handler's
        try:
            return await process.execute(work, note)
        finally:
            run.kill = None
            self._put_back(process)

    async def _find_process(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.is_usable:
                return process
            self._bury(process)
        starting = self._starting.pop() if self._starting else asyncio.create_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Nothing ran in it, so it is not killed. A timeout shorter than the import could never be met otherwise.
            self._starting.append(starting)
            raise

    async def _start(self) -> Process:
        if self._is_closed:
            raise Unusable("its worker has stopped")
        surroundings = [str(entry) for entry in sys.path], sys.argv, how_logs_are_written()
        hello = Hello(path_of(self._app), modules_of(self._app), *surroundings, redact=self._redact)
        process = Process()
        self._processes.add(process)
        try:
            await process.greet(hello)
        except BaseException:
            process.kill()
            await process.wait()
            self._processes.discard(process)
            raise
        return process

    # --- afterwards

    def _put_back(self, process: Process) -> None:
        if not process.is_usable:
            self._bury(process)
        elif process.jobs >= self.jobs_per_process:
            self._retire(process)
            self._starting.append(asyncio.create_task(self._start()))  # at once, so that the next job waits less
        else:
            self._idle.append(process)

    def _retire(self, process: Process) -> None:
        process.ask_to_end()
        self._run_errand(process, process.wait_or_kill())

    def _bury(self, process: Process) -> None:
        self._run_errand(process, process.wait())

    def _run_errand(self, process: Process, ending: Coroutine[None, None, None]) -> None:
        async def errand() -> None:
            await ending
            self._processes.discard(process)

        task = asyncio.create_task(errand())
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)


def _has_succeeded(task: asyncio.Task[Process]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
