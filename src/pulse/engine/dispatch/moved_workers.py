"""Which workers have their stream at another server now? A hint that anybody can send says so; the rows are asked."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.engine.duties.loops import Loop

if TYPE_CHECKING:
    from pulse.engine.dispatch.dispatcher import Dispatcher
    from pulse.engine.workers import Workers

AT_ONCE = timedelta()
SPACING = 0.05  # seconds between two looks: half of what a worker that moves waits for others to hear of it
LONGEST_SLEEP = timedelta(minutes=1)  # every hint wakes the loop


class MovedWorkers:
    """Ends the streams of workers that are elsewhere by now."""

    def __init__(self, workers: Workers, dispatcher: Dispatcher) -> None:
        self.loop = Loop("moved workers", self.step)
        self._workers = workers
        self._dispatcher = dispatcher
        self._reported: set[str] = set()
        self._looked_at = float("-inf")

    def mark_moved(self, worker: str) -> None:
        """Note that a worker may have moved; one that does not sit here is of no interest."""
        if self._dispatcher.has(worker):
            self._reported.add(worker)
            self.loop.run_within(AT_ONCE)

    async def step(self) -> timedelta:
        """Look where those are that were spoken of, all in one question."""
        if not self._reported:
            return LONGEST_SLEEP
        if (wait := self._looked_at + SPACING - time.monotonic()) > 0:
            return timedelta(seconds=wait)
        self._looked_at = time.monotonic()
        heard, self._reported = self._reported, set()
        streams = [stream for stream in self._dispatcher.streams if stream.worker in heard]
        for worker in await self._workers.moved(streams):
            self._dispatcher.replace(worker)
        return AT_ONCE if self._reported else LONGEST_SLEEP
