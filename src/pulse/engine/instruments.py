"""What does a process measure of itself? Counters and histograms in its memory, written a batch at a time.

What happens to jobs is counted in the database, by the statements that make it happen, and is not counted again here:
see statistics.py. These are the figures that nobody else could know.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, deque

LENGTHS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)  # seconds, of a statement
LATENESS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
LAG_EVERY = 1.0  # seconds between two looks
LAGS_KEPT = 15  # of them: most scrape so often


class Histogram:
    """How many were how long."""

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one: longer than all
        self.seconds = 0.0

    def note(self, seconds: float, *, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.seconds += seconds * times


class Instruments:
    """Those of one process."""

    def __init__(self) -> None:
        self.claims = Histogram(LENGTHS)
        self.fires = Histogram(LATENESS)  # how late schedules fire
        self.wakes = Histogram(LATENESS)  # how late alarms are first tried
        self.wake_outcomes: Counter[str] = Counter()
        self._lags: deque[float] = deque([0.0], maxlen=LAGS_KEPT)

    @property
    def loop_lag(self) -> float:
        """The worst of the last while, in seconds."""
        return max(self._lags)

    async def watch_loop(self) -> None:
        """How long after its time something happens on this loop. A stall between two looks is not seen."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self._lags.append(max(0.0, loop.time() - due))
