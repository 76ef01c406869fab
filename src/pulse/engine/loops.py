"""How does a background duty run until it is told to stop?"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pulse.timing.backoff import Backoff

log = logging.getLogger("pulse.duties")

Step = Callable[[], Awaitable[timedelta]]


class Loop:
    """A step repeated until told to stop. The step says how long to sleep before the next one."""

    def __init__(self, name: str, step: Step) -> None:
        self.name = name
        self.step = step
        self.failures = 0  # in a row
        self._backoff = Backoff()
        self._is_nudged = asyncio.Event()
        self._sleeps_until = 0.0

    def wake_within(self, delay: timedelta) -> None:
        """Something will be due after `delay`: look again now if the loop would sleep past it."""
        if self._is_nudged.is_set():
            return
        if asyncio.get_running_loop().time() + delay.total_seconds() < self._sleeps_until:
            self._is_nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Return once `stop` is set. A step in progress is finished, never cut."""
        while not stop.is_set():
            self._is_nudged.clear()
            self._sleeps_until = math.inf  # a step under way may have looked already, so any nudge is one for another
            try:
                pause = await self.step()
            except Exception:
                self.failures += 1
                log.exception("%s failed %d times in a row", self.name, self.failures)
                pause = self._backoff.delay(self.failures)
            else:
                self.failures = 0
            await self._sleep(stop, pause)

    async def _sleep(self, stop: asyncio.Event, pause: timedelta) -> None:
        """Until the time is up, the loop is nudged, or everything stops."""
        self._sleeps_until = asyncio.get_running_loop().time() + pause.total_seconds()
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._is_nudged)]
        try:
            await asyncio.wait(waiting, timeout=pause.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
