"""How long does one of Pulse's own loops wait after the nth failure in a row?

Jobs have a back-off of their own, computed in the database (`pulse.backoff`), so that it depends neither on a worker's
clock nor on whether the worker lives.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """A wait that doubles from `first` to `longest`. It is random within its upper half, so that processes spread."""

    first: timedelta = timedelta(milliseconds=100)
    longest: timedelta = timedelta(seconds=10)

    def delay(self, failures: int) -> timedelta:
        doublings = min(failures - 1, 32)  # timedelta overflows soon after
        doubled: timedelta = min(self.first * 2**doublings, self.longest)
        return doubled * random.uniform(0.5, 1.0)  # noqa: S311
