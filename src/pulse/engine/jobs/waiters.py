"""How do many callers learn that a job is over, without each of them asking?

One loop asks for all of them: a single statement names those that are over, and only these are read. What ends in this
process is heard of and read at once. What ends elsewhere is found by asking every tenth of a second, or less often if
asking has become slow. While nobody waits, nothing is asked.
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
NOBODY = timedelta(hours=1)  # until the first one comes, who wakes the loop


class Waiters:
    """Everybody in this process who waits for the end of a job."""

    def __init__(self, engine: Engine, *, limit: int = MAX_WAITERS) -> None:
        self.loop = Loop("wait", self.step)
        self._jobs = engine.jobs
        self._limit = limit
        self._waiting: dict[UUID, set[asyncio.Future[Job | None]]] = defaultdict(set)
        self._count = 0
        self._heard: set[UUID] = set()
        self._look_at = 0.0
        self._is_closed = False
        engine.claims.on_end(self.hear)
        engine.jobs.on_end(self.hear)
        engine.duties.on_dead_letter(lambda job_id: self.hear([job_id]))

    def enter(self, job_id: UUID) -> Waiter:
        """Begin to wait. Look at the job after this and not before, or its end may fall in between unseen."""
        if self._count >= self._limit:
            raise LimitReached(
                f"{self._limit} callers wait for jobs here already: ask another server, or a little later"
            )
        return Waiter(self, job_id)

    def hear(self, job_ids: Iterable[UUID]) -> None:
        if self._waiting and (heard := self._waiting.keys() & set(job_ids)):
            self._heard |= heard
            self.loop.run_within(timedelta())

    def close(self) -> None:
        """Let everybody go: this process is about to end, and they can ask another."""
        self._is_closed = True
        for futures in self._waiting.values():
            for future in futures:
                _answer(future, None)

    async def step(self) -> timedelta:
        if not self._waiting:
            return NOBODY
        started = time.monotonic()
        is_full = started >= self._look_at
        heard, self._heard = self._heard, set()
        wanted = list(self._waiting) if is_full else list(heard & self._waiting.keys())
        self._deliver(await self._jobs.get_finished(wanted) if wanted else {})
        if is_full:
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
    """One caller, from the moment it waits."""

    def __init__(self, waiters: Waiters, job_id: UUID) -> None:
        self._waiters = waiters
        self._job_id = job_id

    def __enter__(self) -> Waiter:
        self._future = self._waiters._add(self._job_id)
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters._remove(self._job_id, self._future)

    async def wait(self, patience: timedelta) -> Job | None:
        """The job once it is over; None if that takes longer, or nobody will know here any more."""
        await asyncio.wait([self._future], timeout=patience.total_seconds())
        return self._future.result() if self._future.done() else None


def _answer(future: asyncio.Future[Job | None], job: Job | None) -> None:
    if not future.done():
        future.set_result(job)
