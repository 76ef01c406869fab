"""At which job of a topic may the next claim start?

Each claim leaves a dead entry at the head of the claim index. VACUUM removes these, but not while an old transaction
anywhere holds the horizon back, and then every claim would read all of them. So a claim starts where the last one
ended. This mark is only a hint: a row that became ready before it but was committed after it, or one that is more
urgent, stands before the mark. These are found by a claim from the very start, which is made

- when a claim from the mark found nothing, or the last one found fewer jobs than it asked for,
- when a notification says that more urgent work has come, and
- at least once a second,

but not so often that it takes more than a small share of the time: after a slow scan, the next one comes later.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from pulse.store.jobs.rows import Mark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.model.jobs import Claim

START = Mark(-101, datetime.min.replace(tzinfo=UTC), UUID(int=0))
SCAN_EVERY = 1.0  # seconds, at the latest
SCAN_SHARE = 0.05  # of the time, at most


class _Place(msgspec.Struct):
    mark: Mark = START
    scanned_at: float = float("-inf")
    scan_took: float = 0.0
    is_overtaken: bool = False  # more urgent work has come


class LowWaterMarks:
    """The low-water marks of one process, one for each topic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[str, _Place] = {}

    def where(self, topic: str, *, found_too_few: bool = False) -> Mark:
        """Return where to start. With `found_too_few`, this is START if a scan from there is affordable again."""
        place = self._places.setdefault(topic, _Place())
        since = self._clock() - place.scanned_at
        if since < place.scan_took / SCAN_SHARE:
            return place.mark
        is_wanted = found_too_few or place.is_overtaken or since >= SCAN_EVERY
        return START if is_wanted else place.mark

    def claimed(self, topic: str, started: Mark, took: float, claims: list[Claim]) -> None:
        """Record a claim. The mark moves to the last job claimed: all jobs before it are claimed or locked."""
        place = self._places[topic]
        if started is START:
            place.scanned_at, place.scan_took, place.is_overtaken = self._clock(), took, False
        if claims:
            place.mark = Mark(*claims[-1].order)

    def claimed_own(self, topic: str, started: Mark, took: float, claim: Claim) -> None:
        """Record a submit that claimed its own job. The mark stays where claims have put it: if it moved to such jobs,
        it would pass those that became ready a moment before and are committed a moment after."""
        self.claimed(topic, started, took, [])
        place = self._places[topic]
        if place.mark is START:  # if all jobs are submitted in this way, no claim ever moves the mark
            place.mark = Mark(*claim.order)

    def look_back(self, topic: str) -> None:
        """Let the next claim begin at the very start, because one found fewer jobs than it asked for."""
        self._places[topic].is_overtaken = True

    def overtaken(self, topic: str, priority: int) -> None:
        """Record that work of this priority became ready in the topic, or in any topic for "*"."""
        for place in self._places.values() if topic == "*" else filter(None, [self._places.get(topic)]):
            place.is_overtaken |= -priority < place.mark.urgency
