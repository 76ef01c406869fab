"""Where in a topic's order may the next claim start?

Each claim leaves a dead entry at the head of the claim index. Vacuum removes them, but not while an old transaction
anywhere pins the horizon, and then every claim would walk over all of them. So a claim starts where the last one
ended. The mark is only a hint: a row that became ready before it but was committed after it, or that is more urgent,
stands in front of it. Those are found by a claim from the very start, which is made

- when a claim from the mark found nothing, or the last one found less than it asked for,
- when somebody said that more urgent work has come, and
- at least once a second,

but never so often that it takes more than a small share of the time: a scan that was slow is repeated less.
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
    is_overtaken: bool = False  # something more urgent came


class LowWaterMarks:
    """The low-water marks of one process, a topic each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[str, _Place] = {}

    def where(self, topic: str, *, found_too_few: bool = False) -> Mark:
        """Where to start; with `found_too_few`, the answer is START only if a scan is affordable again."""
        place = self._places.setdefault(topic, _Place())
        since = self._clock() - place.scanned_at
        if since < place.scan_took / SCAN_SHARE:
            return place.mark
        is_wanted = found_too_few or place.is_overtaken or since >= SCAN_EVERY
        return START if is_wanted else place.mark

    def claimed(self, topic: str, started: Mark, took: float, claims: list[Claim]) -> None:
        """Note what a claim found. The mark moves to the last job claimed: all before it is claimed or locked."""
        place = self._places[topic]
        if started is START:
            place.scanned_at, place.scan_took, place.is_overtaken = self._clock(), took, False
        if claims:
            place.mark = Mark(*claims[-1].order)

    def nobody_waited(self, topic: str, started: Mark, took: float, claim: Claim) -> None:
        """Note what a submit found that claimed its own job. The mark stays where claims have put it: if it went along
        with such jobs, it would overtake those that became ready a moment before and are committed a moment after."""
        self.claimed(topic, started, took, [])
        place = self._places[topic]
        if place.mark is START:  # no claim will ever put it anywhere, if all jobs come this way
            place.mark = Mark(*claim.order)

    def look_back(self, topic: str) -> None:
        """A claim found fewer than it asked for: the next one is to start from the very start."""
        self._places[topic].is_overtaken = True

    def overtaken(self, topic: str, priority: int) -> None:
        """Work of this priority became ready in the topic ("*": in any of them)."""
        for place in self._places.values() if topic == "*" else filter(None, [self._places.get(topic)]):
            place.is_overtaken |= -priority < place.mark.urgency
