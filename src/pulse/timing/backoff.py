"""How long does a loop of ours wait after the nth failure in a row?

Jobs have their own back-off, computed in the database (`pulse.backoff`), so that a worker's clock and a
worker's death play no part in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling from `first` to `most`, spread over the upper half so that processes do not march in step."""

    first: timedelta = timedelta(milliseconds=100)
    most: timedelta = timedelta(seconds=10)

    def delay(self, failures: int) -> timedelta:
        doublings = min(failures - 1, 32)  # timedelta overflows soon after
        longest: timedelta = min(self.first * 2**doublings, self.most)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311
