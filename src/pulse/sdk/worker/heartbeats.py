"""Who keeps the leases alive, even while a handler blocks everything else? A thread with a connection of its own.

It looks at what the worker holds, renews all of it in one batch, and tells the worker which runs to end: those whose
lease was lost or whose job was cancelled, and, when nobody can be reached, those whose lease is about to end. It also
watches the worker's event loop, and says which handler keeps it from turning.
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

LOOK_EVERY = 1.0  # seconds; more often where leases are short
LAG_LIMIT = 1.0  # seconds a loop may stand still before it is said
ENDED = {ReportStatus.LOST: EndReason.LOST, ReportStatus.CANCELLED: EndReason.CANCELLED}
BEATS_AT_ONCE = 5_000


class Heartbeats(threading.Thread):
    """Started with the worker, stopped after its last handler."""

    def __init__(self, link: Link, held: dict[object, Run], end: Callable[[Run, EndReason], None]) -> None:
        super().__init__(name="pulse heartbeats", daemon=True)
        self._link = link
        self._held = held
        self._end = end
        self._lease = link.lease
        self._every = link.heartbeat
        self._margin = min(2.0, self._lease / 10)  # to end a handler before someone else may begin
        self._pause = min(LOOK_EVERY, self._every / 3)
        self._stopping: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_up = threading.Event()
        self._watch = LoopWatch(asyncio.get_running_loop())
        self._suspects: list[list[Run]] = []  # parts of a refused batch, to be renewed apart from the others

    def stop(self) -> None:
        self._is_up.wait()
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)

    def run(self) -> None:
        event_loop.run(self._live())

    async def _live(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._is_up.set()
        self._beat_at = time.monotonic()
        async with self._link.open_heartbeats() as heart:
            while not await self._is_stopped_within(self._pause):
                try:
                    await self._look(heart)
                except Exception:  # whatever it is, the leases of everything that runs depend on the next look
                    log.exception("a heartbeat failed in a way nobody thought of")

    async def _is_stopped_within(self, seconds: float) -> bool:
        assert self._stopping is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    async def _look(self, heart: HeartbeatLink) -> None:
        self._watch.look()
        if time.monotonic() - self._beat_at >= self._every:
            self._beat_at = time.monotonic()
            await self._beat(heart)
        self._fence_ourselves()

    async def _beat(self, heart: HeartbeatLink) -> None:
        runs = [run for run in list(self._held.values()) if run.end_reason not in (EndReason.LOST, EndReason.CANCELLED)]
        if not runs:
            await heart.rest()
        give_up_at = time.monotonic() + self._lease / 3
        suspects = self._take_suspects(set(runs))
        apart = {run for part in suspects for run in part}
        fine = [run for run in runs if run not in apart] if apart else runs
        for start in range(0, len(fine), BEATS_AT_ONCE):
            suspects += await self._renew(heart, fine[start : start + BEATS_AT_ONCE])
        await self._renew_apart(heart, suspects, give_up_at)

    def _take_suspects(self, runs: set[Run]) -> deque[list[Run]]:
        """Return the refused parts of the last beat, without jobs that are no longer held; the largest first."""
        parts = [[run for run in part if run in runs] for part in self._suspects]
        self._suspects = []
        return deque(sorted(filter(None, parts), key=len, reverse=True))

    async def _renew_apart(self, heart: HeartbeatLink, parts: deque[list[Run]], give_up_at: float) -> None:
        """Renew them part by part, and what is refused in halves, so that nobody loses a lease with the one that is to
        blame. That one is tried again at the next beat, after all others, and so is what there is no time for now."""
        while parts and time.monotonic() < give_up_at:
            part = parts.popleft()
            for half in await self._renew(heart, part):
                (parts if len(part) > 1 else self._suspects).append(half)
        self._suspects += parts

    async def _renew(self, heart: HeartbeatLink, runs: list[Run]) -> list[list[Run]]:
        """Renew them together. If that is refused, answer with the parts to be tried apart."""
        asked_at = time.monotonic()
        leases = [Lease(run.claim.id, run.claim.lease_id) for run in runs]
        try:
            async with asyncio.timeout(self._lease / 3):
                answers = await heart.heartbeat(leases)
        except ANSWERS as error:
            who = f"{len(runs)} jobs" if len(runs) > 1 else f"job {runs[0].claim.id}"
            log.warning("heartbeat of %s was refused: %s", who, error)
            middle = len(runs) // 2
            return [runs[:middle], runs[middle:]] if middle else [runs]
        except (PulseError, TimeoutError) as error:
            log.warning("heartbeat failed, trying again: %s", str(error) or "no answer in time")
            return []
        for run, answer in zip(runs, answers, strict=True):
            if cut := ENDED.get(answer):
                self._end(run, cut)
            else:  # BUSY too: its own transaction holds the row, so nobody can take it away
                run.held_until = asked_at + self._lease
        return []

    def _fence_ourselves(self) -> None:
        """Whoever cannot renew a lease must stop before it ends: by then the job may run elsewhere."""
        limit = time.monotonic() + self._margin
        for run in list(self._held.values()):
            if run.held_until < limit and run.end_reason is None:
                log.error("lease of job %s could not be renewed in time: its handler is ended", run.claim.id)
                self._end(run, EndReason.LOST)


class LoopWatch:
    """Whether an event loop of another thread still turns, and who keeps it from turning."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: float = LAG_LIMIT) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._limit = limit
        self._asked_at: float | None = None
        self._has_told = False
        self.lag = 0.0  # seconds, as last seen

    def look(self) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at, self._has_told = now, False
            try:
                self._loop.call_soon_threadsafe(self._turned)
            except RuntimeError:  # it is closed
                self._asked_at = None
        elif now - self._asked_at > self._limit and not self._has_told:
            self._has_told = True
            log.warning("the event loop has stood still for %.1f s: %s", now - self._asked_at, self._culprit())

    def _turned(self) -> None:
        if self._asked_at is not None:
            self.lag = time.monotonic() - self._asked_at
            if self._has_told:
                log.warning("the event loop turns again after %.1f s", self.lag)
        self._asked_at = None

    def _culprit(self) -> str:
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return "nobody knows why"
        where = traceback.extract_stack(frame)[-1]
        run = _run_in(frame)
        who = f"task {run.claim.task} (job {run.claim.id}) " if run else ""
        return (
            f'{who}blocks it at {where.filename}:{where.lineno} ({where.line}); use a sync task or executor="process"'
        )


def _run_in(frame: FrameType | None) -> Run | None:
    """The run whose handler is on this stack."""
    while frame is not None:
        if isinstance(run := frame.f_locals.get("run"), Run):
            return run
        frame = frame.f_back
    return None
