"""What does a process measure about itself? Counters and histograms in memory, updated once for each batch.

Events of jobs are counted in the database, by the statements that cause them, and not here: see statistics.py. These
are the figures that only the process itself can know.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, deque

LENGTHS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)  # seconds, of a statement
LATENESS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
LAG_EVERY = 1.0  # seconds between two measurements
LAGS_KEPT = 15  # measurements: most scrapers come at least every 15 s


class Histogram:
    """A histogram of lengths of time."""

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for lengths above all bounds
        self.seconds = 0.0

    def note(self, seconds: float, *, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.seconds += seconds * times


class Instruments:
    """The counters and histograms of one process."""

    def __init__(self) -> None:
        self.claims = Histogram(LENGTHS)
        self.fires = Histogram(LATENESS)  # of schedules
        self.wakes = Histogram(LATENESS)  # of the first deliveries of alarms
        self.wake_outcomes: Counter[str] = Counter()
        self._lags: deque[float] = deque([0.0], maxlen=LAGS_KEPT)

    @property
    def loop_lag(self) -> float:
        """Return the largest lag of the event loop in the last LAGS_KEPT measurements, in seconds."""
        return max(self._lags)

    async def watch_loop(self) -> None:
        """Measure the lag of the event loop for ever. A stall that ends between two measurements is not seen."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self._lags.append(max(0.0, loop.time() - due))
