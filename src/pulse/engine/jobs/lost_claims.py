"""What becomes of jobs that were claimed, while the answer that named them was lost?

The claim may have been committed: then its jobs are leased to workers that know nothing of them. Left alone they would
be charged when the lease ends, and a job with one attempt would be a dead letter that never ran. So a claimer notes the
answers that were lost, and gives back what is leased to those workers and not held by them, as soon as the database
answers; and again until the lease of such a claim would have ended, because a statement that was held up on its way may
be carried out late (docs/decisions/0036).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

MARGIN = timedelta(seconds=1)  # by which this process's clock may have run differently since it asked


class Loss(NamedTuple):
    asked_at: float  # of the first claim whose answer was lost, on this process's clock
    look_at: float
    until: float


class LostClaims:
    """The workers to whom jobs may be leased that never reached them."""

    def __init__(self, lease: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease = lease.total_seconds()
        self._clock = clock
        self._losses: dict[str, Loss] = {}

    def note(self, workers: Iterable[str], asked_at: float) -> None:
        """The answer to a claim for these workers did not arrive."""
        now = self._clock()
        for worker in workers:
            before = self._losses.get(worker)
            self._losses[worker] = Loss(min(asked_at, before.asked_at) if before else asked_at, now, now + self._lease)

    def forget(self, worker: str) -> None:
        self._losses.pop(worker, None)

    @property
    def workers(self) -> list[str]:
        """Those that are to be looked after now."""
        if not self._losses:
            return []
        now = self._clock()
        return [worker for worker, loss in self._losses.items() if loss.look_at <= now]

    def since(self, workers: Sequence[str]) -> timedelta:
        """How long ago the first of their claims was asked for."""
        asked_at = min(self._losses[worker].asked_at for worker in workers)
        return timedelta(seconds=self._clock() - asked_at) + MARGIN

    def looked(self, workers: Sequence[str]) -> None:
        """What had never reached them was given back."""
        now = self._clock()
        for worker in workers:
            loss = self._losses[worker]
            if now >= loss.until:
                del self._losses[worker]
            else:
                self._losses[worker] = loss._replace(look_at=min(now + self._lease / 3, loss.until))
