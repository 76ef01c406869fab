"""How does a background duty run until it is told to stop?"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pulse.model.errors import Conflict, Unavailable
from pulse.timing.backoff import Backoff

log = logging.getLogger("pulse.duties")

LATE_AFTER = 30.0  # seconds that a step may take, or fail, beyond its time: more than a statement or an outage of ours

Step = Callable[[], Awaitable[timedelta]]


class LoopHealth:
    """Whether something that is done again and again still is: when it last went well, and how often it did not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors = 0  # ever
        self.good_at = self.due_at = time.monotonic()

    def succeeded(self, pause: float) -> None:
        """The next one is due after `pause` seconds, or sooner."""
        self.good_at = time.monotonic()
        self.due_at = self.good_at + pause

    def failed(self) -> None:
        self.errors += 1

    @property
    def age(self) -> float:
        """Seconds since it last went well."""
        return time.monotonic() - self.good_at

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.due_at + LATE_AFTER


class Loop:
    """A step repeated until told to stop. The step says how long to sleep before the next one."""

    def __init__(self, name: str, step: Step) -> None:
        self.name = name
        self.step = step
        self.failures = 0  # in a row
        self.health = LoopHealth(name)
        self._backoff = Backoff()
        self._is_nudged = asyncio.Event()
        self._sleeps_until = 0.0

    def run_within(self, delay: timedelta) -> None:
        """Something will be due after `delay`: look again now if the loop would sleep past it."""
        if self._is_nudged.is_set():
            return
        if asyncio.get_running_loop().time() + delay.total_seconds() < self._sleeps_until:
            self._is_nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Return once `stop` is set. A step in progress is finished, never cut."""
        self.health.succeeded(0)  # it begins now, whenever it was made
        while not stop.is_set():
            self._is_nudged.clear()
            self._sleeps_until = math.inf  # a step under way may have looked already, so any nudge is one for another
            try:
                pause = await self.step()
            except Exception as error:
                self.failures += 1
                self.health.failed()
                self._tell(error)
                pause = self._backoff.delay(self.failures)
            else:
                self.failures = 0
                self.health.succeeded(pause.total_seconds())
            await self._sleep(stop, pause)

    def _tell(self, error: Exception) -> None:
        """An outage or a lock is nobody's mistake, and every loop meets it: a line of it is enough."""
        if isinstance(error, Unavailable | Conflict):
            log.warning("%s failed %d times in a row: %s", self.name, self.failures, error)
        else:
            log.error("%s failed %d times in a row", self.name, self.failures, exc_info=error)

    async def _sleep(self, stop: asyncio.Event, pause: timedelta) -> None:
        """Until the time is up, the loop is nudged, or everything stops."""
        self._sleeps_until = asyncio.get_running_loop().time() + pause.total_seconds()
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._is_nudged)]
        try:
            await asyncio.wait(waiting, timeout=pause.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
