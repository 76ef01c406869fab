"""Which destinations get nothing for now, because they have been failing?

A destination is let alone after ten failures in a row, or when most of its results of the last minutes were failures.
After a while one delivery may try (half open); if it fails, the next while is twice as long. All of it is this
process's own view: others find out for themselves.
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
PIECE = 30.0  # of the window: results are counted in pieces, not kept one by one
FIRST_WHILE, LONGEST_WHILE = 30.0, 900.0
MAX_DESTINATIONS = 10_000


class Breakers:
    """Every call takes the same time, however many destinations there are."""

    def __init__(
        self, slots: int, *, clock: Callable[[], float] = time.monotonic, most: int = MAX_DESTINATIONS
    ) -> None:
        self._slots, self._clock, self._most = slots, clock, most
        self._known: OrderedDict[str, _Destination] = OrderedDict()  # the longest unused first

    def __len__(self) -> int:
        return len(self._known)

    def may_start(self, destination: str) -> int:
        """How many more deliveries may start now."""
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
        self._touch(destination).in_flight += 1

    def ended(self, destination: str, ok: bool, error: str = "") -> None:  # noqa: FBT001
        known = self._touch(destination)
        known.in_flight = max(known.in_flight - 1, 0)
        known.record(self._clock(), None if ok else error)

    def open_until(self, destination: str) -> float | None:
        """Seconds until a delivery may try again; 0 when one may now; none while all is well."""
        known = self._known.get(destination)
        if known is None or known.tries_at is None:
            return None
        return max(known.tries_at - self._clock(), 0.0)

    def reason(self, destination: str) -> str | None:
        known = self._known.get(destination)
        return known.reason if known and known.tries_at is not None else None

    def _touch(self, destination: str) -> _Destination:
        known = self._known.get(destination)
        if known is None:
            known = self._known[destination] = _Destination()
            self._forget_one()
        else:
            self._known.move_to_end(destination)
        return known

    def _forget_one(self) -> None:
        """Spares what is in flight, so there may be that many more. Two looks, or each one spared would add one."""
        for _ in range(2):
            if len(self._known) <= self._most:
                return
            oldest, known = next(iter(self._known.items()))
            if known.in_flight:
                self._known.move_to_end(oldest)
            else:
                del self._known[oldest]


class _Destination:
    __slots__ = ("failures_in_a_row", "in_flight", "reason", "tries_at", "while_open", "window")

    def __init__(self) -> None:
        self.in_flight = 0
        self.tries_at: float | None = None  # for one try; none: it is closed
        self.while_open = FIRST_WHILE
        self.reason = ""
        self.failures_in_a_row = 0
        self.window = _Window()

    def record(self, now: float, error: str | None) -> None:
        if self.tries_at is None:
            self._count(now, error)
        elif now < self.tries_at:
            return  # begun before it opened: it has had its say
        elif error is None:
            self.tries_at, self.while_open = None, FIRST_WHILE
            self.failures_in_a_row, self.window = 0, _Window()
        else:
            self.while_open = min(self.while_open * 2, LONGEST_WHILE)
            self._open(now, f"failed again when tried; the last: {error}")

    def _count(self, now: float, error: str | None) -> None:
        self.window.add(now, is_failure=error is not None)
        if error is None:
            self.failures_in_a_row = 0
            return
        self.failures_in_a_row += 1
        if self.failures_in_a_row >= FAILURES_IN_A_ROW:
            self._open(now, f"{self.failures_in_a_row} failures in a row; the last: {error}")
        elif self.window.results >= MIN_RESULTS and self.window.failures >= SHARE * self.window.results:
            counts = f"{self.window.failures} of {self.window.results}"
            self._open(now, f"{counts} failed within {WINDOW / 60:g} minutes; the last: {error}")

    def _open(self, now: float, reason: str) -> None:
        self.tries_at, self.reason = now + self.while_open, reason


class _Window:
    """How many results of the last minutes were failures, to within one piece."""

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
