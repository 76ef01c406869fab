"""How are leases renewed, even while a handler blocks the event loop? By a thread with a connection of its own.

The thread renews the leases of all jobs that the worker holds in one batch, and ends the runs whose lease was lost or
whose job was cancelled. If neither a server nor the database answers, it ends runs whose lease is about to end. It also
watches the worker's event loop, and logs which handler blocks it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING

from pulse import event_loop
from pulse.model.errors import PulseError
from pulse.model.jobs import Lease, ReportStatus
from pulse.sdk.worker.reporter import ANSWERS
from pulse.sdk.worker.run import EndReason, Run

if TYPE_CHECKING:
    from pulse.links.link import HeartbeatLink, Link

log = logging.getLogger("pulse.worker")

CHECK_EVERY = 1.0  # seconds; more often if leases are short
LAG_LIMIT = 1.0  # seconds that a loop may be blocked before it is logged
ENDED = {ReportStatus.LOST: EndReason.LOST, ReportStatus.CANCELLED: EndReason.CANCELLED}
LEASES_AT_ONCE = 5_000


class Heartbeats(threading.Thread):
    """The thread that renews leases. It starts with the worker and is stopped after its last handler."""

    def __init__(self, link: Link, held: dict[object, Run], end: Callable[[Run, EndReason], None]) -> None:
        super().__init__(name="pulse heartbeats", daemon=True)
        self._link = link
        self._held = held
        self._end = end
        self._lease = link.lease
        self._every = link.heartbeat
        self._margin = min(2.0, self._lease / 10)  # seconds before its lease ends in which a handler is ended
        self._pause = min(CHECK_EVERY, self._every / 3)
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._watch = LoopWatch(asyncio.get_running_loop())
        self._suspects: list[list[Run]] = []  # parts of a refused batch, renewed apart from the others

    def stop(self) -> None:
        self._is_up.wait()
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # the thread has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)

    def run(self) -> None:
        event_loop.run(self._renew_until_stopped())

    async def _renew_until_stopped(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._is_up.set()
        self._beat_at = time.monotonic()
        async with self._link.open_heartbeats() as link:
            while not await self._is_stopped_within(self._pause):
                try:
                    await self._check(link)
                except Exception:  # the leases of all running jobs depend on the next heartbeat, so the thread goes on
                    log.exception("a heartbeat failed with an unexpected error")

    async def _is_stopped_within(self, seconds: float) -> bool:
        assert self._stopping is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _check(self, link: HeartbeatLink) -> None:
        self._watch.check()
        if time.monotonic() - self._beat_at >= self._every:
            self._beat_at = time.monotonic()
            await self._renew_all(link)
        self._end_expired_runs()

    async def _renew_all(self, link: HeartbeatLink) -> None:
        runs = [run for run in list(self._held.values()) if run.end_reason not in (EndReason.LOST, EndReason.CANCELLED)]
        if not runs:
            await link.rest()
        give_up_at = time.monotonic() + self._lease / 3
        suspects = self._take_suspects(set(runs))
        apart = {run for part in suspects for run in part}
        fine = [run for run in runs if run not in apart] if apart else runs
        for start in range(0, len(fine), LEASES_AT_ONCE):
            suspects += await self._renew(link, fine[start : start + LEASES_AT_ONCE])
        await self._renew_apart(link, suspects, give_up_at)

    def _take_suspects(self, runs: set[Run]) -> deque[list[Run]]:
        """Return the refused parts of the last heartbeat, the largest first, without jobs that are no longer held."""
        parts = [[run for run in part if run in runs] for part in self._suspects]
        self._suspects = []
        return deque(sorted(filter(None, parts), key=len, reverse=True))

    async def _renew_apart(self, link: HeartbeatLink, parts: deque[list[Run]], give_up_at: float) -> None:
        """Renew leases part by part, and a refused part in halves, so that one bad lease does not end the others.

        The bad lease is tried again at the next heartbeat, after all others, as are parts that no time is left for.
        """
        while parts and time.monotonic() < give_up_at:
            part = parts.popleft()
            for half in await self._renew(link, part):
                (parts if len(part) > 1 else self._suspects).append(half)
        self._suspects += parts

    async def _renew(self, link: HeartbeatLink, runs: list[Run]) -> list[list[Run]]:
        """Renew leases together. If that is refused, return the parts to be tried apart."""
        asked_at = time.monotonic()
        leases = [Lease(run.claim.id, run.claim.lease_id) for run in runs]
        try:
            async with asyncio.timeout(self._lease / 3):
                answers = await link.heartbeat(leases)
        except ANSWERS as error:
            jobs = f"{len(runs)} jobs" if len(runs) > 1 else f"job {runs[0].claim.id}"
            log.warning("the heartbeat of %s was refused: %s", jobs, error)
            middle = len(runs) // 2
            return [runs[:middle], runs[middle:]] if middle else [runs]
        except (PulseError, TimeoutError) as error:
            log.warning("a heartbeat failed, trying again: %s", str(error) or "no answer in time")
            return []
        for run, answer in zip(runs, answers, strict=True):
            if reason := ENDED.get(answer):
                self._end(run, reason)
            else:  # also for BUSY: the job's own transaction holds the row, so no other worker can claim it
                run.held_until = asked_at + self._lease
        return []

    def _end_expired_runs(self) -> None:
        """End runs whose lease could not be renewed, shortly before it ends: after that the job may run elsewhere."""
        limit = time.monotonic() + self._margin
        for run in list(self._held.values()):
            if run.held_until < limit and run.end_reason is None:
                log.error("the lease of job %s could not be renewed in time, so its handler is ended", run.claim.id)
                self._end(run, EndReason.LOST)


class LoopWatch:
    """Watches the event loop of another thread, and logs what blocks it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float = LAG_LIMIT) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._limit = limit
        self._asked_at: float | None = None
        self._is_logged = False
        self.lag = 0.0  # seconds, as last measured

    def check(self) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at, self._is_logged = now, False
            try:
                self._loop.call_soon_threadsafe(self._on_turn)
            except RuntimeError:  # the loop is closed
                self._asked_at = None
        elif now - self._asked_at > self._limit and not self._is_logged:
            self._is_logged = True
            log.warning("the event loop has been blocked for %.1f s: %s", now - self._asked_at, self._find_cause())

    def _on_turn(self) -> None:
        if self._asked_at is not None:
            self.lag = time.monotonic() - self._asked_at
            if self._is_logged:
                log.warning("the event loop runs again after %.1f s", self.lag)
        self._asked_at = None

    def _find_cause(self) -> str:
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return "the cause is unknown"
        line = traceback.extract_stack(frame)[-1]
        run = _find_run(frame)
        task = f"task {run.claim.task} (job {run.claim.id})" if run else "code"
        return f'{task} blocks it at {line.filename}:{line.lineno} ({line.line}); use a sync task or executor="process"'


def _find_run(frame: FrameType | None) -> Run | None:
    """Return the run whose handler is on this stack, if any."""
    while frame is not None:
        if isinstance(run := frame.f_locals.get("run"), Run):
            return run
        frame = frame.f_back
    return None
