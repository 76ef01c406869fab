"""What does the dispatcher know of a connected worker? Its stream: the free slots, and the jobs assigned to it.

Credit is the number of free slots in the worker's last update, less the jobs assigned since. Each update says which
message the worker had received before it, so an update that is lost, late or repeated never counts a job twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.errors import NOT_SHOWN, InvalidOption
from pulse.model.jobs import Claim, Lease
from pulse.model.text import check_topic

if TYPE_CHECKING:
    from uuid import UUID

SLOTS_LIMIT = 10_000  # of one pool
POOLS_LIMIT = 16
HELD_LIMIT = 50_000  # claims of one worker that are remembered
SILENCE = 15.0  # seconds without a message after which either side ends a stream
TOPICS_LIMIT = 1_000  # of one worker
MESSAGE_SIZE = 1 << 20  # characters of payloads in one message: as many as the largest payload has


class Pool(NamedTuple):
    """Slots of a worker for running jobs, and the topics whose jobs may use them."""

    topics: tuple[str, ...]
    slots: int


class AssignmentBatch(NamedTuple):
    """Jobs to be sent to a worker."""

    sequence: int
    claims: Sequence[Claim]
    claimed_at: float  # just before they were claimed, on this process's monotonic clock


class CancelNotice(NamedTuple):
    sequence: int
    leases: Sequence[Lease]


class DrainNotice(NamedTuple):
    """The last message to a worker that is to open a stream at another server."""

    sequence: int


class ReplacedNotice(NamedTuple):
    """The last message to a worker whose name a newer stream has."""

    sequence: int


class DeadLetterNotice(NamedTuple):
    """Jobs that have become dead letters, for a worker that asked to be notified."""

    sequence: int
    job_ids: Sequence[UUID]


Message = AssignmentBatch | CancelNotice | DrainNotice | ReplacedNotice | DeadLetterNotice


def _by_size(claims: Sequence[Claim]) -> list[list[Claim]]:
    parts: list[list[Claim]] = [[]]
    size = 0
    for claim in claims:
        size += len(claim.payload)
        if size > MESSAGE_SIZE and parts[-1]:
            parts.append([])
            size = len(claim.payload)
        parts[-1].append(claim)
    return parts


def check_pool_count(pools: int, topics: int) -> None:
    if not 1 <= pools <= POOLS_LIMIT:
        raise InvalidOption("pools", pools, f"number from 1 to {POOLS_LIMIT} for each worker")
    if topics > TOPICS_LIMIT:
        raise InvalidOption("topics", topics, f"number at most {TOPICS_LIMIT} for each worker")


def check_pools(pools: Sequence[Pool]) -> None:
    check_pool_count(len(pools), sum(len(pool.topics) for pool in pools))
    for pool in pools:
        if not pool.topics:
            raise InvalidOption("topics", NOT_SHOWN, "name at least one topic for each pool")
        for topic in pool.topics:
            check_topic(topic)
        check_slots(pool.slots)


def check_slots(slots: int) -> None:
    if not 0 <= slots <= SLOTS_LIMIT:
        raise InvalidOption("slots", slots, f"be a whole number from 0 to {SLOTS_LIMIT}")


class WorkerStream:
    """One stream of one worker: its credit, the claims that it has, and the messages to be sent."""

    def __init__(
        self, worker: str, pools: Sequence[Pool], *, version: str = "", wants_dead_letters: bool = False
    ) -> None:
        check_pools(pools)
        self.wants_dead_letters = wants_dead_letters
        self.worker = worker
        self.version = version
        self.pools = list(pools)
        self.connected_at = self.last_heard_at = time.monotonic()
        self.sent = 0  # the sequence of the last message put into the outbox
        self.taken = 0  # the sequence of the last message taken from the outbox to be sent
        self.has_left = False
        self._last_update = 0  # its number
        self._free = [pool.slots for pool in pools]
        self._reserved = [0] * len(pools)  # slots for jobs that are being claimed for it
        self._pools_of = {
            topic: [number for number, pool in enumerate(pools) if topic in pool.topics]
            for topic in dict.fromkeys(topic for pool in pools for topic in pool.topics)
        }
        self._unread: deque[tuple[int, list[int]]] = deque()  # messages not received yet, with their slots in each pool
        self._outbox: deque[Message] = deque()
        self._has_messages = asyncio.Event()
        self.held: dict[UUID, int] = {}  # fences of jobs that it got and has not reported, to check its reports by

    @property
    def topics(self) -> list[str]:
        return list(self._pools_of)

    @property
    def slots(self) -> int:
        return sum(pool.slots for pool in self.pools)

    def credit(self, topic: str) -> int:
        """Return how many more jobs of the topic it can begin. A job of several pools needs a slot in each."""
        return min((self._free[number] - self._reserved[number] for number in self._pools_of.get(topic, ())), default=0)

    @property
    def is_awaiting_claims(self) -> bool:
        """Tell whether jobs are being claimed for it right now."""
        return any(self._reserved)

    @property
    def is_held_complete(self) -> bool:
        """Tell whether `held` has all of its claims."""
        return len(self.held) < HELD_LIMIT

    def serves_any(self, topics: Set[str]) -> bool:
        return not self._pools_of.keys().isdisjoint(topics)

    def reserve_slot(self, topic: str) -> None:
        """Count a slot as taken while a job is being claimed for it, regardless of updates from the worker."""
        for number in self._pools_of[topic]:
            self._reserved[number] += 1

    def free_slot(self, topic: str) -> None:
        """End a reservation, once the claim was answered. If there is a job, it must be assigned right away."""
        for number in self._pools_of[topic]:
            self._reserved[number] -= 1

    def update(self, *, received: int, free: Sequence[int], number: int) -> None:
        """Record the free slots of the worker as of the last message it received. Updates may overtake each other, so
        one with a lower number than the last is ignored."""
        self.last_heard_at = time.monotonic()
        if len(free) != len(self.pools):
            raise InvalidOption("free", list(free), f"have a number for each of the {len(self.pools)} pools")
        if received > self.taken:
            raise InvalidOption("received", received, f"be at most {self.taken}, the last message sent on this stream")
        for slots in free:
            check_slots(slots)
        if number and number <= self._last_update:
            return
        self._last_update = number
        while self._unread and self._unread[0][0] <= received:
            self._unread.popleft()
        pending = [sum(slots[number] for _, slots in self._unread) for number in range(len(free))]
        self._free = [slots - used for slots, used in zip(free, pending, strict=True)]

    def assign(self, claims: Sequence[Claim], *, claimed_at: float) -> None:
        """Put jobs into its outbox, in messages that no client refuses for their size."""
        for part in _by_size(claims):
            self._assign(part, claimed_at)

    def _assign(self, claims: Sequence[Claim], claimed_at: float) -> None:
        slots = [0] * len(self.pools)
        for claim in claims:
            self.held[claim.id] = claim.lease_id
        while len(self.held) > HELD_LIMIT:  # the database can be asked about forgotten claims
            del self.held[next(iter(self.held))]
        for claim in claims:
            for number in self._pools_of[claim.topic]:
                slots[number] += 1
                self._free[number] -= 1
        self.sent += 1
        self._unread.append((self.sent, slots))
        self._put(AssignmentBatch(self.sent, claims, claimed_at))

    def cancel(self, lease: Lease) -> None:
        self.sent += 1
        self._put(CancelNotice(self.sent, [lease]))

    def notify_dead_letters(self, job_ids: Sequence[UUID]) -> None:
        self.sent += 1
        self._put(DeadLetterNotice(self.sent, job_ids))

    def end(self, *, is_replaced: bool = False) -> None:
        """Put the last message into its outbox. The stream ends once that is sent."""
        self._free = [0] * len(self.pools)
        self.has_left = True
        self.sent += 1
        self._put(ReplacedNotice(self.sent) if is_replaced else DrainNotice(self.sent))

    def _put(self, message: Message) -> None:
        self._outbox.append(message)
        self._has_messages.set()

    async def next(self, *, within: float) -> Message | None:
        """Return the next message, or None if there is none within that time."""
        if not self._outbox:
            self._has_messages.clear()
            timer = asyncio.get_running_loop().call_later(within, self._has_messages.set)
            try:
                await self._has_messages.wait()
            finally:
                timer.cancel()
        if not self._outbox:
            return None
        message = self._outbox.popleft()
        self.taken = message.sequence
        return message

    def close(self) -> list[Lease]:
        """Close the stream, and return the claims that were certainly never sent."""
        self.has_left = True
        unsent = [
            Lease(claim.id, claim.lease_id)
            for message in self._outbox
            if isinstance(message, AssignmentBatch)
            for claim in message.claims
        ]
        self._outbox.clear()
        return unsent
