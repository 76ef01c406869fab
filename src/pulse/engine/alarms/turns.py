"""Whose alarms are delivered next? Owners take turns, and the destinations of one owner take turns among themselves.

A destination has as many slots as its breaker lets it have. So one with a hundred thousand alarms, one that never
answers, or an owner with a thousand such, keeps nobody else waiting.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

from pulse.model.alarms import DEFAULT_DESTINATION
from pulse.model.decisions.delivery import ERROR_LIMIT
from pulse.model.text import clean_error
from pulse.store.alarms import deliveries

if TYPE_CHECKING:
    from pulse.delivery.breaker import Breakers
    from pulse.model.decisions.delivery import AlarmClaim
    from pulse.store.alarms.deliveries import Turn
    from pulse.store.connections.pool import Connection, Database

TURNS = 200  # owners looked at together, and destinations
RUSH = 0.1  # seconds for which a look at them serves
DEFER_BATCH = 2_000
MAX_CURSORS = 10_000


class OwnerTurns:
    """The owners and destinations that have alarms ready, as one process knows them."""

    def __init__(self, database: Database, breakers: Breakers) -> None:
        self.waiting: list[Turn] = []  # the next one first
        self._database = database
        self._breakers = breakers
        self._knows_default = database.settings.alarm_target is not None
        self._in_flight: Counter[str] = Counter()  # deliveries, by owner
        self._after = ""  # the owner where the next look goes on
        self._cursors: dict[str, str] = {}  # the destination where the next look at an owner with many goes on
        self._looked_at = float("-inf")

    @property
    def are_known(self) -> bool:
        """One look is enough for many claims."""
        return bool(self.waiting) and time.monotonic() - self._looked_at < RUSH

    def started(self, owner: str) -> None:
        self._in_flight[owner] += 1

    def ended(self, owner: str) -> None:
        self._in_flight[owner] -= 1
        if not self._in_flight[owner]:
            del self._in_flight[owner]

    async def find(self) -> None:
        """Find the next TURNS owners with ready alarms, after the last one found; begin again after the last owner."""
        await self._database.run(self._find)

    async def _find(self, conn: Connection) -> None:
        owners = await deliveries.ready_owners(conn, after=self._after, limit=TURNS)
        if len(owners) < TURNS and self._after:
            more = await deliveries.ready_owners(conn, after="", limit=TURNS - len(owners))
            owners = list(dict.fromkeys([*owners, *more]))
        self._after = owners[-1] if len(owners) == TURNS else ""
        found = await self._find_destinations(conn, owners) if owners else []
        known = set(self.waiting)
        self.waiting = [*(each for each in found if each not in known), *self.waiting][: 2 * TURNS]
        self._looked_at = time.monotonic()

    async def _find_destinations(self, conn: Connection, owners: Sequence[str]) -> list[Turn]:
        """Find the next destinations of each owner: fewer of each, the more owners there are."""
        limit = max(2, TURNS // len(owners))
        found = await deliveries.ready_turns(
            conn, {owner: self._cursors.get(owner, "") for owner in owners}, limit=limit
        )
        last = {turn.owner: turn.destination for turn in found}
        counts = Counter(turn.owner for turn in found)
        full = {owner for owner in owners if counts[owner] == limit}
        if round_again := {owner: "" for owner in owners if owner in self._cursors and owner not in full}:
            found += await deliveries.ready_turns(conn, round_again, limit=limit)
        self._cursors = {owner: at for owner, at in self._cursors.items() if owner not in round_again}
        self._cursors |= {owner: last[owner] for owner in full}
        if len(self._cursors) > MAX_CURSORS:  # owners come and go; these begin anew
            self._cursors.clear()
        return list(dict.fromkeys(found))

    async def defer(self) -> None:
        """Put off what would go to a destination that is known to be down, and say why."""
        closed = [
            self._closed(turn, wait) for turn in self.waiting if (wait := self._breakers.open_until(turn.destination))
        ]
        if closed:
            await self._database.run(lambda conn: deliveries.defer_alarms(conn, closed, limit=DEFER_BATCH))
            down = {each.turn for each in closed}
            self.waiting = [turn for turn in self.waiting if turn not in down]

    def _closed(self, turn: Turn, wait: float) -> deliveries.Deferral:
        why = f"deferred: {turn.destination} is not called for now ({self._breakers.reason(turn.destination)})"
        return deliveries.Deferral(turn, timedelta(seconds=wait), clean_error(why, ERROR_LIMIT))

    def quotas(self, wanted: int, *, kept: int, for_others: int) -> dict[Turn, int]:
        """How many each may have now."""
        return share(
            self.waiting,
            wanted,
            self._may_start,
            is_busy=self._breakers.in_flight,
            flying=self._in_flight,
            kept=kept,
            for_others=for_others,
        )

    def _may_start(self, destination: str) -> int:
        if destination == DEFAULT_DESTINATION and not self._knows_default:
            return 0  # another process knows where that is
        return self._breakers.may_start(destination)

    def end(self, quotas: dict[Turn, int], claims: Sequence[AlarmClaim]) -> None:
        """Those who had their turn go to the end, and those who had less than they might, out: they have no more."""
        claimed = Counter((claim.owner, claim.destination) for claim in claims)
        again = [each for each, quota in quotas.items() if claimed[each] == quota]
        self.waiting = [*(each for each in self.waiting if each not in quotas), *again]


def share(
    turns: Sequence[Turn],
    wanted: int,
    may_start: Callable[[str], int],
    *,
    is_busy: Callable[[str], object] = lambda _: False,
    flying: Counter[str] | None = None,
    kept: int = 0,
    for_others: int = 0,
) -> dict[Turn, int]:
    """Return how many each may have: one after the other goes to the owner that has the fewest, counting those in
    flight, and there to the next destination.

    `kept` of them are for destinations that are not busy, and for one delivery of each; of these `for_others` are for
    owners with nothing in flight, and for one delivery of each.
    """
    flying = flying or Counter()
    room = {destination: may_start(destination) for destination in dict.fromkeys(turn.destination for turn in turns)}
    queues: dict[str, _Queue] = {}
    for turn in turns:
        if room[turn.destination] > 0:
            queues.setdefault(turn.owner, _Queue()).add(turn, is_busy=bool(is_busy(turn.destination)))
    fewest = [(flying[owner], order, queue) for order, (owner, queue) in enumerate(queues.items())]
    heapify(fewest)
    quotas: dict[Turn, int] = {}
    while fewest and wanted > 0:
        has, order, queue = fewest[0]
        next_turn = queue.take(room, may_be_busy=wanted > kept) if wanted > for_others or not has else None
        if next_turn is None:
            heappop(fewest)
            continue
        quotas[next_turn] = quotas.get(next_turn, 0) + 1
        room[next_turn.destination] -= 1
        wanted -= 1
        heapreplace(fewest, (has + 1, order, queue))
    return quotas


class _Queue:
    """The turns of one owner: first one for each destination that is not busy, then round and round."""

    __slots__ = ("_busy", "_idle")

    def __init__(self) -> None:
        self._idle: deque[Turn] = deque()
        self._busy: deque[Turn] = deque()

    def add(self, turn: Turn, *, is_busy: bool) -> None:
        (self._busy if is_busy else self._idle).append(turn)

    def take(self, room: dict[str, int], *, may_be_busy: bool) -> Turn | None:
        """Return whose turn it is, if anybody's."""
        while self._idle or (may_be_busy and self._busy):
            turn = (self._idle or self._busy).popleft()
            if room[turn.destination] > 0:
                self._busy.append(turn)
                return turn
        return None


def parts_of(quotas: dict[Turn, int], most: int) -> list[dict[Turn, int]]:
    """As many claims as it takes, so that none is for more than so many."""
    parts: list[dict[Turn, int]] = [{}]
    room = most
    for turn, quota in quotas.items():
        left = quota
        while left:
            if room == 0:
                parts.append({})
                room = most
            taken = min(left, room)
            parts[-1][turn] = taken
            left, room = left - taken, room - taken
    return parts
