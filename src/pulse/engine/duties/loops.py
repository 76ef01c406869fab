"""How does a background loop repeat a step, wait between steps, and stop?"""

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

LATE_AFTER = 30.0  # seconds for which a due step may run or fail: longer than a statement or a short outage

Step = Callable[[], Awaitable[timedelta]]


class LoopHealth:
    """The health of something that is repeated: when it last succeeded, and how often it has failed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.errors = 0  # since the start
        self.good_at = self.due_at = time.monotonic()

    def succeeded(self, pause: float) -> None:
        """Record a success; the next one is due within `pause` seconds."""
        self.good_at = time.monotonic()
        self.due_at = self.good_at + pause

    def failed(self) -> None:
        self.errors += 1

    @property
    def age(self) -> float:
        """Return the seconds since its last success."""
        return time.monotonic() - self.good_at

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.due_at + LATE_AFTER


class Loop:
    """A step that is repeated until the loop stops. The step returns how long to sleep before the next one."""

    def __init__(self, name: str, step: Step) -> None:
        self.name = name
        self.step = step
        self.failures = 0  # in a row
        self.health = LoopHealth(name)
        self._backoff = Backoff()
        self._is_nudged = asyncio.Event()
        self._sleeps_until = 0.0

    def run_within(self, delay: timedelta) -> None:
        """Run the next step now if the loop would otherwise sleep for longer than `delay`."""
        if self._is_nudged.is_set():
            return
        if asyncio.get_running_loop().time() + delay.total_seconds() < self._sleeps_until:
            self._is_nudged.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat the step until `stop` is set. A step in progress is finished and never cancelled."""
        self.health.succeeded(0)  # its age counts from here, not from when it was made
        while not stop.is_set():
            self._is_nudged.clear()
            self._sleeps_until = math.inf  # a nudge during a step asks for another one: this may have looked already
            try:
                pause = await self.step()
            except Exception as error:
                self.failures += 1
                self.health.failed()
                self._log_failure(error)
                pause = self._backoff.delay(self.failures)
            else:
                self.failures = 0
                self.health.succeeded(pause.total_seconds())
            await self._sleep(stop, pause)

    def _log_failure(self, error: Exception) -> None:
        """Log an outage or a lock, which is no bug and affects every loop, in one line, and other errors in full."""
        if isinstance(error, Unavailable | Conflict):
            log.warning("%s failed %d times in a row: %s", self.name, self.failures, error)
        else:
            log.error("%s failed %d times in a row", self.name, self.failures, exc_info=error)

    async def _sleep(self, stop: asyncio.Event, pause: timedelta) -> None:
        """Sleep until the pause is over, the loop is nudged, or `stop` is set."""
        self._sleeps_until = asyncio.get_running_loop().time() + pause.total_seconds()
        waiting = [asyncio.ensure_future(event.wait()) for event in (stop, self._is_nudged)]
        try:
            await asyncio.wait(waiting, timeout=pause.total_seconds(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
