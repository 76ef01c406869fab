"""Which destinations get no deliveries for now, because they have been failing?

The breaker of a destination opens after ten failures in a row, or when 70 % of its results in the last five minutes
were failures. After a pause one delivery may try again (half open); if it fails, the next pause is twice as long. Each
process keeps breakers of its own and learns of failures from its own deliveries only.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FAILURES_IN_A_ROW = 10
MIN_RESULTS = 10
SHARE = 0.7
WINDOW = 300.0  # seconds
PIECE = 30.0  # seconds of the window whose results are counted together, instead of keeping each result
FIRST_PAUSE, LONGEST_PAUSE = 30.0, 900.0  # seconds
MAX_DESTINATIONS = 10_000


class Breakers:
    """The breakers of all destinations. Every method takes the same time, however many destinations there are."""

    def __init__(
        self, slots: int, *, clock: Callable[[], float] = time.monotonic, max_destinations: int = MAX_DESTINATIONS
    ) -> None:
        self._slots, self._clock, self._max_destinations = slots, clock, max_destinations
        self._known: OrderedDict[str, _Destination] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._known)

    def may_start(self, destination: str) -> int:
        """Return how many more deliveries may start now."""
        known = self._known.get(destination)
        if known is None:
            return self._slots
        if known.tries_at is None:
            return max(self._slots - known.in_flight, 0)
        return int(self._clock() >= known.tries_at and not known.in_flight)

    def in_flight(self, destination: str) -> int:
        known = self._known.get(destination)
        return known.in_flight if known else 0

    def started(self, destination: str) -> None:
        self._get_or_add(destination).in_flight += 1

    def ended(self, destination: str, ok: bool, error: str = "") -> None:  # noqa: FBT001
        known = self._get_or_add(destination)
        known.in_flight = max(known.in_flight - 1, 0)
        known.record(self._clock(), None if ok else error)

    def open_until(self, destination: str) -> float | None:
        """Return the seconds until a delivery may try again: 0 if one may now, None if the breaker is closed."""
        known = self._known.get(destination)
        if known is None or known.tries_at is None:
            return None
        return max(known.tries_at - self._clock(), 0.0)

    def reason(self, destination: str) -> str | None:
        known = self._known.get(destination)
        return known.reason if known and known.tries_at is not None else None

    def _get_or_add(self, destination: str) -> _Destination:
        known = self._known.get(destination)
        if known is None:
            known = self._known[destination] = _Destination()
            self._forget_one()
        else:
            self._known.move_to_end(destination)
        return known

    def _forget_one(self) -> None:
        """Remove one destination if there are too many, but none with a delivery in flight. It looks at two, so that
        their number falls again after some had to be kept."""
        for _ in range(2):
            if len(self._known) <= self._max_destinations:
                return
            oldest, known = next(iter(self._known.items()))
            if known.in_flight:
                self._known.move_to_end(oldest)
            else:
                del self._known[oldest]


class _Destination:
    __slots__ = ("failures_in_a_row", "in_flight", "pause", "reason", "tries_at", "window")

    def __init__(self) -> None:
        self.in_flight = 0
        self.tries_at: float | None = None  # when one delivery may try again; none: the breaker is closed
        self.pause = FIRST_PAUSE
        self.reason = ""
        self.failures_in_a_row = 0
        self.window = _Window()

    def record(self, now: float, error: str | None) -> None:
        if self.tries_at is None:
            self._count(now, error)
        elif now < self.tries_at:
            return  # this delivery began before the breaker opened, so it says nothing new
        elif error is None:
            self.tries_at, self.pause = None, FIRST_PAUSE
            self.failures_in_a_row, self.window = 0, _Window()
        else:
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
            self._open(now, f"another try failed; the last error: {error}")

    def _count(self, now: float, error: str | None) -> None:
        self.window.add(now, is_failure=error is not None)
        if error is None:
            self.failures_in_a_row = 0
            return
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= FAILURES_IN_A_ROW:
            self._open(now, f"{self.failures_in_a_row} failures in a row; the last error: {error}")
        elif self.window.results >= MIN_RESULTS and self.window.failures >= SHARE * self.window.results:
            counts = f"{self.window.failures} of {self.window.results}"
            self._open(now, f"{counts} failed within {WINDOW / 60:g} minutes; the last error: {error}")

    def _open(self, now: float, reason: str) -> None:
        self.tries_at, self.reason = now + self.pause, reason


class _Window:
    """The counts of results and failures in the last five minutes, to within one piece."""

    __slots__ = ("_pieces", "failures", "results")

    def __init__(self) -> None:
        self.results = self.failures = 0
        self._pieces: deque[list[int]] = deque()  # [number of the piece, results, failures], at most ten

    def add(self, now: float, *, is_failure: bool) -> None:
        number = int(now // PIECE)
        while self._pieces and self._pieces[0][0] <= number - WINDOW / PIECE:
            _, results, failures = self._pieces.popleft()
            self.results -= results
            self.failures -= failures
        if not self._pieces or self._pieces[-1][0] != number:
            self._pieces.append([number, 0, 0])
        self._pieces[-1][1] += 1
        self._pieces[-1][2] += is_failure
        self.results += 1
        self.failures += is_failure
