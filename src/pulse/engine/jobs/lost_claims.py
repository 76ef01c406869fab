"""What happens to jobs that were claimed if the answer with these claims is lost?

The claim may have been committed: then its jobs are leased to workers that do not know of them. When the leases end
they would be charged, and a job with one attempt would become a dead letter that never ran. So a process notes answers
that are lost, and releases jobs that are leased to these workers but not held by them, as soon as the database answers.
It repeats that until the lease of such a claim would have ended, because a statement that was delayed on its way may
still be executed (docs/decisions/0036).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import NamedTuple

MARGIN = timedelta(seconds=1)  # by which the clocks of this process and the database may differ since the claim


class LostAnswer(NamedTuple):
    asked_at: float  # of the first claim whose answer was lost, on this process's clock like the others
    release_at: float
    until: float


class LostClaims:
    """The workers that may have leases of jobs which never reached them."""

    def __init__(self, lease: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._lease = lease.total_seconds()
        self._clock = clock
        self._lost: dict[str, LostAnswer] = {}

    def note(self, workers: Iterable[str], asked_at: float) -> None:
        """Note that the answer to a claim for these workers was lost."""
        now = self._clock()
        for worker in workers:
            earlier = self._lost.get(worker)
            first = min(asked_at, earlier.asked_at) if earlier else asked_at
            self._lost[worker] = LostAnswer(first, now, now + self._lease)

    def forget(self, worker: str) -> None:
        self._lost.pop(worker, None)

    @property
    def workers(self) -> list[str]:
        """Return the workers whose unheld jobs are to be released now."""
        if not self._lost:
            return []
        now = self._clock()
        return [worker for worker, lost in self._lost.items() if lost.release_at <= now]

    def since(self, workers: Sequence[str]) -> timedelta:
        """Return how long ago the first of their lost claims was sent, and a margin."""
        asked_at = min(self._lost[worker].asked_at for worker in workers)
        return timedelta(seconds=self._clock() - asked_at) + MARGIN

    def released(self, workers: Sequence[str]) -> None:
        """Note that the unheld jobs of these workers were released."""
        now = self._clock()
        for worker in workers:
            lost = self._lost[worker]
            if now >= lost.until:
                del self._lost[worker]
            else:
                self._lost[worker] = lost._replace(release_at=min(now + self._lease / 3, lost.until))
