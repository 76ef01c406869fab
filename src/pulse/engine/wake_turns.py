"""Whose turn is it to be woken? Destinations take turns, and each has as many slots as its breaker lets it have.

So one with a hundred thousand alarms, or one that never answers, keeps nobody else waiting.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.alarms import DEFAULT_DESTINATION
from pulse.model.text import clean_error
from pulse.model.waking import ERROR_LIMIT
from pulse.store import alarms as store

if TYPE_CHECKING:
    from pulse.delivery.breaker import Breakers
    from pulse.model.waking import Ringing
    from pulse.store.pool import Connection, Database

TURNS = 200  # destinations looked at together
RUSH = 0.1  # seconds for which a look at them serves
DEFER_BATCH = 2_000


class Turns:
    """The destinations that have alarms ready, as one process knows them."""

    def __init__(self, database: Database, breakers: Breakers) -> None:
        self.waiting: list[str] = []  # the next one first
        self._database = database
        self._breakers = breakers
        self._knows_default = database.settings.alarm_target is not None
        self._after = ""  # where the next look goes on
        self._looked_at = float("-inf")

    @property
    def are_known(self) -> bool:
        """One look is enough for many claims."""
        return bool(self.waiting) and time.monotonic() - self._looked_at < RUSH

    async def find(self) -> None:
        """Who has alarms ready: so many, from where the last look ended, and round to it."""
        await self._database.run(self._find)

    async def _find(self, conn: Connection) -> None:
        found = await store.ready_destinations(conn, after=self._after, limit=TURNS)
        if len(found) < TURNS and self._after:
            found += await store.ready_destinations(conn, after="", limit=TURNS - len(found))
        self._after = found[-1] if len(found) == TURNS else ""
        known = set(self.waiting)
        self.waiting = [*(each for each in found if each not in known), *self.waiting][: 2 * TURNS]
        self._looked_at = time.monotonic()

    async def defer(self) -> None:
        """What would go to a destination that is known to be down waits, and says why."""
        closed = [self._closed(each, wait) for each in self.waiting if (wait := self._breakers.open_until(each))]
        if closed:
            await self._database.run(lambda conn: store.defer_alarms(conn, closed, limit=DEFER_BATCH))
            down = {each.destination for each in closed}
            self.waiting = [each for each in self.waiting if each not in down]

    def _closed(self, destination: str, wait: float) -> store.Closed:
        why = f"deferred: {destination} is not called for now ({self._breakers.reason(destination)})"
        return store.Closed(destination, timedelta(seconds=wait), clean_error(why, ERROR_LIMIT))

    def quotas(self, wanted: int, *, kept: int) -> dict[str, int]:
        """How many each may have now."""
        return share(self.waiting, wanted, self._may_start, is_busy=self._breakers.in_flight, kept=kept)

    def _may_start(self, destination: str) -> int:
        if destination == DEFAULT_DESTINATION and not self._knows_default:
            return 0  # another process knows where that is
        return self._breakers.may_start(destination)

    def end(self, quotas: dict[str, int], claims: Sequence[Ringing]) -> None:
        """Those who had their turn go to the end, and those who had less than they might, out: they have no more."""
        claimed = Counter(ringing.destination for ringing in claims)
        again = [each for each, quota in quotas.items() if claimed[each] == quota]
        self.waiting = [*(each for each in self.waiting if each not in quotas), *again]


def share(
    destinations: Sequence[str],
    wanted: int,
    may_start: Callable[[str], int],
    *,
    is_busy: Callable[[str], object] = lambda _: False,
    kept: int = 0,
) -> dict[str, int]:
    """How many each may have, in the order of their turns: as many rounds as it takes to give out all there is.

    `kept` of them are for destinations that are not busy, and for one delivery of each.
    """
    room = {destination: most for destination in destinations if (most := may_start(destination)) > 0}
    quotas = dict.fromkeys([each for each in room if not is_busy(each)][:wanted], 1)
    room = {destination: left for destination, most in room.items() if (left := most - quotas.get(destination, 0))}
    wanted -= kept + len(quotas)
    while room and wanted > 0:
        each = max(1, wanted // len(room))
        for destination in list(room):
            given = min(each, room[destination], wanted)
            if given == 0:
                break
            quotas[destination] = quotas.get(destination, 0) + given
            wanted -= given
            room[destination] -= given
            if room[destination] == 0:
                del room[destination]
    return quotas


def parts_of(quotas: dict[str, int], most: int) -> list[dict[str, int]]:
    """As many claims as it takes, so that none is for more than so many."""
    parts: list[dict[str, int]] = [{}]
    room = most
    for destination, quota in quotas.items():
        left = quota
        while left:
            if room == 0:
                parts.append({})
                room = most
            taken = min(left, room)
            parts[-1][destination] = taken
            left, room = left - taken, room - taken
    return parts
