"""Whose alarms are delivered next? Owners take turns, and so do the destinations of each owner.

A destination gets as many slots as its breaker allows. So a destination with a hundred thousand alarms, one that never
answers, or an owner with a thousand of these, delays nobody else.
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

TURNS = 200  # owners, and destinations, that are read at a time
RUSH = 0.1  # seconds for which they are used before they are read again
DEFER_BATCH = 2_000
MAX_CURSORS = 10_000


class OwnerTurns:
    """The owners and destinations that have alarms ready, as one process knows them."""

    def __init__(self, database: Database, breakers: Breakers) -> None:
        self.waiting: list[Turn] = []  # the next turn first
        self._database = database
        self._breakers = breakers
        self._knows_default = database.settings.alarm_target is not None
        self._in_flight: Counter[str] = Counter()  # deliveries, by owner
        self._after = ""  # the owner after which the next read begins
        self._cursors: dict[str, str] = {}  # by owner: the destination after which the next read begins
        self._read_at = float("-inf")

    @property
    def are_known(self) -> bool:
        """Tell whether turns were read recently enough to claim by them."""
        return bool(self.waiting) and time.monotonic() - self._read_at < RUSH

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
        self._read_at = time.monotonic()

    async def _find_destinations(self, conn: Connection, owners: Sequence[str]) -> list[Turn]:
        """Find the next destinations of each owner. The more owners there are, the fewer are found for each."""
        limit = max(2, TURNS // len(owners))
        found = await deliveries.ready_turns(
            conn, {owner: self._cursors.get(owner, "") for owner in owners}, limit=limit
        )
        last = {turn.owner: turn.destination for turn in found}
        counts = Counter(turn.owner for turn in found)
        full = {owner for owner in owners if counts[owner] == limit}
        if from_start := {owner: "" for owner in owners if owner in self._cursors and owner not in full}:
            found += await deliveries.ready_turns(conn, from_start, limit=limit)
        self._cursors = {owner: at for owner, at in self._cursors.items() if owner not in from_start}
        self._cursors |= {owner: last[owner] for owner in full}
        if len(self._cursors) > MAX_CURSORS:  # too many owners: begin again with the first destination of each
            self._cursors.clear()
        return list(dict.fromkeys(found))

    async def defer(self) -> None:
        """Defer alarms whose destination is known to be down, and record why."""
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

    def quotas(self, wanted: int, *, reserved: int, for_others: int) -> dict[Turn, int]:
        """Return how many alarms may be claimed for each turn now."""
        return share(
            self.waiting,
            wanted,
            self._may_start,
            is_busy=self._breakers.in_flight,
            in_flight=self._in_flight,
            reserved=reserved,
            for_others=for_others,
        )

    def _may_start(self, destination: str) -> int:
        if destination == DEFAULT_DESTINATION and not self._knows_default:
            return 0  # only another process has a setting for it
        return self._breakers.may_start(destination)

    def end(self, quotas: dict[Turn, int], claims: Sequence[AlarmClaim]) -> None:
        """Move turns that used their quota to the end, and drop those with fewer claims: they have no more alarms."""
        claimed = Counter((claim.owner, claim.destination) for claim in claims)
        again = [each for each, quota in quotas.items() if claimed[each] == quota]
        self.waiting = [*(each for each in self.waiting if each not in quotas), *again]


def share(
    turns: Sequence[Turn],
    wanted: int,
    may_start: Callable[[str], int],
    *,
    is_busy: Callable[[str], object] = lambda _: False,
    in_flight: Counter[str] | None = None,
    reserved: int = 0,
    for_others: int = 0,
) -> dict[Turn, int]:
    """Return how many alarms may be claimed for each turn. Each next one goes to the owner with the fewest, counting
    those in flight, and there to the next destination.

    The last `reserved` ones are for destinations that are not busy, one for each; of these, the last `for_others` are
    for owners with nothing in flight, one for each.
    """
    in_flight = in_flight or Counter()
    room = {destination: may_start(destination) for destination in dict.fromkeys(turn.destination for turn in turns)}
    queues: dict[str, _Queue] = {}
    for turn in turns:
        if room[turn.destination] > 0:
            queues.setdefault(turn.owner, _Queue()).add(turn, is_busy=bool(is_busy(turn.destination)))
    heap = [(in_flight[owner], order, queue) for order, (owner, queue) in enumerate(queues.items())]
    heapify(heap)
    quotas: dict[Turn, int] = {}
    while heap and wanted > 0:
        count, order, queue = heap[0]
        next_turn = queue.take(room, may_be_busy=wanted > reserved) if wanted > for_others or not count else None
        if next_turn is None:
            heappop(heap)
            continue
        quotas[next_turn] = quotas.get(next_turn, 0) + 1
        room[next_turn.destination] -= 1
        wanted -= 1
        heapreplace(heap, (count + 1, order, queue))
    return quotas


class _Queue:
    """The turns of one owner: first one for each idle destination, then all destinations in turn."""

    __slots__ = ("_busy", "_idle")

    def __init__(self) -> None:
        self._idle: deque[Turn] = deque()
        self._busy: deque[Turn] = deque()

    def add(self, turn: Turn, *, is_busy: bool) -> None:
        (self._busy if is_busy else self._idle).append(turn)

    def take(self, room: dict[str, int], *, may_be_busy: bool) -> Turn | None:
        """Return the next turn whose destination has a slot left, or None."""
        while self._idle or (may_be_busy and self._busy):
            turn = (self._idle or self._busy).popleft()
            if room[turn.destination] > 0:
                self._busy.append(turn)
                return turn
        return None


def split_quotas(quotas: dict[Turn, int], limit: int) -> list[dict[Turn, int]]:
    """Return the quotas in parts, one for each claim, of at most `limit` alarms."""
    parts: list[dict[Turn, int]] = [{}]
    room = limit
    for turn, quota in quotas.items():
        left = quota
        while left:
            if room == 0:
                parts.append({})
                room = limit
            count = min(left, room)
            parts[-1][turn] = count
            left, room = left - count, room - count
    return parts
