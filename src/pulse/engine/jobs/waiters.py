"""How do many callers learn that a job is finished, without a query by each of them?

One loop asks for all of them: a single statement returns the ids of finished jobs, and only these are read. Jobs that
end in this process are read at once. Those that end elsewhere are found by asking every tenth of a second, or less
often if the statement has become slow. While no caller waits, nothing is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.engine.duties.loops import Loop
from pulse.model.errors import LimitReached

if TYPE_CHECKING:
    from pulse.engine.engine import Engine
    from pulse.model.jobs import Job

MAX_WAITERS = 10_000
LOOK_EVERY = 0.1  # seconds
LOOK_SHARE = 0.2  # of the time, at most
LONGEST_SLEEP = timedelta(hours=1)  # while no caller waits; the first one that comes runs the loop


class Waiters:
    """The callers in this process that wait for the end of a job."""

    def __init__(self, engine: Engine, *, limit: int = MAX_WAITERS) -> None:
        self.loop = Loop("wait", self.step)
        self._jobs = engine.jobs
        self._limit = limit
        self._waiting: dict[UUID, set[asyncio.Future[Job | None]]] = defaultdict(set)
        self._count = 0
        self._ended: set[UUID] = set()
        self._look_at = 0.0
        self._is_closed = False
        engine.claims.on_end(self.mark_ended)
        engine.jobs.on_end(self.mark_ended)
        engine.duties.on_dead_letter(lambda job_id: self.mark_ended([job_id]))

    def enter(self, job_id: UUID) -> Waiter:
        """Return a context manager that waits. Read the job within it and not before, or its end may be missed."""
        if self._count >= self._limit:
            raise LimitReached(
                f"at most {self._limit} callers may wait for jobs at this server: ask another one, or try again later"
            )
        return Waiter(self, job_id)

    def mark_ended(self, job_ids: Iterable[UUID]) -> None:
        if self._waiting and (ended := self._waiting.keys() & set(job_ids)):
            self._ended |= ended
            self.loop.run_within(timedelta())

    def close(self) -> None:
        """End all waits, because this process is about to end. The callers can ask another one."""
        self._is_closed = True
        for futures in self._waiting.values():
            for future in futures:
                _answer(future, None)

    async def step(self) -> timedelta:
        if not self._waiting:
            return LONGEST_SLEEP
        started = time.monotonic()
        asks_for_all = started >= self._look_at
        ended, self._ended = self._ended, set()
        wanted = list(self._waiting) if asks_for_all else list(ended & self._waiting.keys())
        self._deliver(await self._jobs.get_finished(wanted) if wanted else {})
        if asks_for_all:
            took = time.monotonic() - started
            self._look_at = started + took + max(LOOK_EVERY, took / LOOK_SHARE)
        return timedelta(seconds=max(0.0, self._look_at - time.monotonic()))

    def _deliver(self, finished: dict[UUID, Job]) -> None:
        for job_id, job in finished.items():
            for future in self._waiting.get(job_id, ()):
                _answer(future, job)

    def _add(self, job_id: UUID) -> asyncio.Future[Job | None]:
        future: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
        if self._is_closed:
            future.set_result(None)
        self._waiting[job_id].add(future)
        self._count += 1
        self.loop.run_within(timedelta(seconds=LOOK_EVERY))
        return future

    def _remove(self, job_id: UUID, future: asyncio.Future[Job | None]) -> None:
        self._count -= 1
        self._waiting[job_id].discard(future)
        if not self._waiting[job_id]:
            del self._waiting[job_id]


class Waiter:
    """One caller that waits for a job."""

    def __init__(self, waiters: Waiters, job_id: UUID) -> None:
        self._waiters = waiters
        self._job_id = job_id

    def __enter__(self) -> Waiter:
        self._future = self._waiters._add(self._job_id)
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters._remove(self._job_id, self._future)

    async def wait(self, patience: timedelta) -> Job | None:
        """Return the job once it is finished, or None if that takes longer or this process is about to end."""
        await asyncio.wait([self._future], timeout=patience.total_seconds())
        return self._future.result() if self._future.done() else None


def _answer(future: asyncio.Future[Job | None], job: Job | None) -> None:
    if not future.done():
        future.set_result(job)
