"""Which workers have moved to another server? A notification is only a hint, so the rows of the workers decide."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.engine.duties.loops import Loop

if TYPE_CHECKING:
    from pulse.engine.dispatch.dispatcher import Dispatcher
    from pulse.engine.workers import Workers

AT_ONCE = timedelta()
SPACING = 0.05  # seconds between two queries: half the time that a moving worker gives the other servers
LONGEST_SLEEP = timedelta(minutes=1)  # every hint runs the loop


class MovedWorkers:
    """Ends the streams of workers that have moved to another server."""

    def __init__(self, workers: Workers, dispatcher: Dispatcher) -> None:
        self.loop = Loop("moved workers", self.step)
        self._workers = workers
        self._dispatcher = dispatcher
        self._reported: set[str] = set()
        self._asked_at = float("-inf")

    def mark_moved(self, worker: str) -> None:
        """Note that a worker may have moved. Workers without a stream here are ignored."""
        if self._dispatcher.has(worker):
            self._reported.add(worker)
            self.loop.run_within(AT_ONCE)

    async def step(self) -> timedelta:
        """Ask the database about all noted workers at once, and end the streams of those that have moved."""
        if not self._reported:
            return LONGEST_SLEEP
        if (wait := self._asked_at + SPACING - time.monotonic()) > 0:
            return timedelta(seconds=wait)
        self._asked_at = time.monotonic()
        reported, self._reported = self._reported, set()
        streams = [stream for stream in self._dispatcher.streams if stream.worker in reported]
        for worker in await self._workers.moved(streams):
            self._dispatcher.replace(worker)
        return AT_ONCE if self._reported else LONGEST_SLEEP
