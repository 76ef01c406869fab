"""Which process runs a job with executor="process"? One of a pool: each runs one job at a time and is reused."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from pulse.sdk.locate import modules_of, path_of, refuse_while_loading
from pulse.sdk.logs import current_log_settings
from pulse.sdk.worker.outcomes import report_crash
from pulse.sdk.worker.process_handle import Process, ProcessStartFailed
from pulse.sdk.worker.process_messages import Hello, Work
from pulse.telemetry.tracing import carry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pulse.model.jobs import Report
    from pulse.sdk.app import Pulse
    from pulse.sdk.worker.run import Run


class ProcessPool:
    """A pool of at most `size` processes, each started when it is first needed."""

    jobs_per_process = 1_000  # then the process is replaced, which frees what handlers leaked

    def __init__(self, app: Pulse, size: int, *, redact: str = "") -> None:
        refuse_while_loading()
        self._app = app
        self._redact = redact
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Process] = []  # the one used last is taken first, so that a few processes stay warm
        self._starting: list[asyncio.Task[Process]] = []  # processes being started that no job waits for
        self._processes: set[Process] = set()
        self._endings: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def execute(self, run: Run, note: Callable[[str], None]) -> Report | None:
        """Run the handler in a process and return its report, or None if the run was ended from outside or was too late
        to begin."""
        try:
            async with self._slots:
                report = await self._execute(run, note)
        except asyncio.CancelledError:
            if run.end_reason is None:
                raise
            return None
        return report if run.end_reason is None else None

    async def close(self) -> None:
        """End all processes: idle ones run their shutdown hooks, others are killed."""
        self._is_closed = True
        idle = {*self._idle, *(task.result() for task in self._starting if _has_succeeded(task))}
        for process in self._processes:
            if process in idle:
                self._retire(process)
            elif not process.is_ending:
                process.kill()
        await asyncio.gather(*self._starting, *self._endings, return_exceptions=True)
        await asyncio.gather(*(process.wait() for process in self._processes))
        self._idle, self._starting = [], []
        self._processes.clear()

    # --- one job

    async def _execute(self, run: Run, note: Callable[[str], None]) -> Report | None:
        try:
            process = await self._find_process()
        except ProcessStartFailed as error:
            return report_crash(run.claim, str(error))
        work = Work(run.claim, run.context._schema, carry())  # the worker's schema, which may differ from the app's
        if not run.may_begin:  # the lease ended while the process started or while the worker was suspended
            self._put_back(process)
            return None
        run.kill = process.kill
        if run.started_at is not None:
            run.started_at = time.monotonic()  # the time to start the process is not the handler's
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
            self._discard(process)
        starting = self._starting.pop() if self._starting else asyncio.create_task(self._start())
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The process is kept, because nothing ran in it: a job whose timeout is shorter than the import could never
            # run if every try began by starting a process.
            self._starting.append(starting)
            raise

    async def _start(self) -> Process:
        if self._is_closed:
            raise ProcessStartFailed("its worker has stopped")
        environment = [str(entry) for entry in sys.path], sys.argv, current_log_settings()
        hello = Hello(path_of(self._app), modules_of(self._app), *environment, redact=self._redact)
        process = Process()
        self._processes.add(process)
        try:
            await process.initialize(hello)
        except BaseException:
            process.kill()
            await process.wait()
            self._processes.discard(process)
            raise
        return process

    # --- after a job

    def _put_back(self, process: Process) -> None:
        if not process.is_usable:
            self._discard(process)
        elif process.jobs >= self.jobs_per_process:
            self._retire(process)
            self._starting.append(asyncio.create_task(self._start()))  # started now, so that the next job waits less
        else:
            self._idle.append(process)

    def _retire(self, process: Process) -> None:
        process.request_end()
        self._end_in_background(process, process.wait_or_kill())

    def _discard(self, process: Process) -> None:
        self._end_in_background(process, process.wait())

    def _end_in_background(self, process: Process, ending: Coroutine[None, None, None]) -> None:
        async def end() -> None:
            await ending
            self._processes.discard(process)

        task = asyncio.create_task(end())
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)


def _has_succeeded(task: asyncio.Task[Process]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None
