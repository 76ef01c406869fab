"""What is a connected worker to the dispatcher? A stream: what it can take, and what was put before it.

Credit is what the worker last said is free, less what it was given since. It says how far it had read when it said so,
so an update that is lost, late or repeated never counts a job twice.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.errors import InvalidOption
from pulse.model.jobs import Claim, Lease
from pulse.model.text import check_topic

if TYPE_CHECKING:
    from uuid import UUID

SLOTS_LIMIT = 10_000  # of one pool
POOLS_LIMIT = 16
HELD_LIMIT = 50_000  # claims of one worker that are remembered
SILENCE = 15.0  # seconds in which nothing is heard, after which either side gives a stream up
TOPICS_LIMIT = 1_000  # of one worker
MESSAGE_SIZE = 1 << 20  # characters of payloads in one message: no more than the largest single one


class Pool(NamedTuple):
    """Places a worker has for running jobs, and the topics whose jobs may take them."""

    topics: tuple[str, ...]
    slots: int


class AssignmentBatch(NamedTuple):
    """Jobs on their way to a worker."""

    sequence: int
    claims: Sequence[Claim]
    claimed_at: float  # on this process's clock, just before they were claimed


class CancelNotice(NamedTuple):
    sequence: int
    leases: Sequence[Lease]


class DrainNotice(NamedTuple):
    """Open a stream elsewhere: this was the last message."""

    sequence: int


class ReplacedNotice(NamedTuple):
    """A newer stream has this worker's name. The last message."""

    sequence: int


class DeadLetterNotice(NamedTuple):
    """Jobs that failed for good, of which this worker wants to know."""

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
        raise InvalidOption("pools", pools, f"be from 1 to {POOLS_LIMIT} for a worker")
    if topics > TOPICS_LIMIT:
        raise InvalidOption("topics", topics, f"be at most {TOPICS_LIMIT} for a worker")


def check_pools(pools: Sequence[Pool]) -> None:
    check_pool_count(len(pools), sum(len(pool.topics) for pool in pools))
    for pool in pools:
        if not pool.topics:
            raise InvalidOption("topics", [], "name at least one topic for each pool")
        for topic in pool.topics:
            check_topic(topic)
        check_slots(pool.slots)


def check_slots(slots: int) -> None:
    if not 0 <= slots <= SLOTS_LIMIT:
        raise InvalidOption("slots", slots, f"be a whole number from 0 to {SLOTS_LIMIT}")


class WorkerStream:
    """One stream of one worker."""

    def __init__(
        self, worker: str, pools: Sequence[Pool], *, version: str = "", wants_dead_letters: bool = False
    ) -> None:
        check_pools(pools)
        self.wants_dead_letters = wants_dead_letters
        self.worker = worker
        self.version = version
        self.pools = list(pools)
        self.connected_at = self.last_heard_at = time.monotonic()
        self.sent = 0  # the sequence of the last message meant for it
        self.taken = 0  # of the last one that was taken from here to be sent
        self.has_left = False
        self._heard = 0  # the number of the last update
        self._free = [pool.slots for pool in pools]
        self._reserved = [0] * len(pools)  # places for jobs that are just being claimed for it
        self._pools_of = {
            topic: [number for number, pool in enumerate(pools) if topic in pool.topics]
            for topic in dict.fromkeys(topic for pool in pools for topic in pool.topics)
        }
        self._unread: deque[tuple[int, list[int]]] = deque()  # by message: the places it takes in each pool
        self._outbox: deque[Message] = deque()
        self._has_some = asyncio.Event()
        self.held: dict[UUID, int] = {}  # what it was given and has not reported, for those who ask what it may report

    @property
    def topics(self) -> list[str]:
        return list(self._pools_of)

    @property
    def slots(self) -> int:
        return sum(pool.slots for pool in self.pools)

    def credit(self, topic: str) -> int:
        """How many more jobs of the topic it can begin: a topic of several pools needs a place in each."""
        return min((self._free[number] - self._reserved[number] for number in self._pools_of.get(topic, ())), default=0)

    @property
    def is_awaiting_claims(self) -> bool:
        """Whether jobs are just being claimed for it."""
        return any(self._reserved)

    @property
    def knows_all_it_holds(self) -> bool:
        return len(self.held) < HELD_LIMIT

    def serves_any(self, topics: Set[str]) -> bool:
        return not self._pools_of.keys().isdisjoint(topics)

    def reserve_slot(self, topic: str) -> None:
        """Count a place as taken while a job is being claimed for it, whatever the worker says meanwhile."""
        for number in self._pools_of[topic]:
            self._reserved[number] += 1

    def free_slot(self, topic: str) -> None:
        """The claim was answered: hand it over now, and its place is taken for good."""
        for number in self._pools_of[topic]:
            self._reserved[number] -= 1

    def update(self, *, received: int, free: Sequence[int], number: int) -> None:
        """What the worker says of itself, having read so far. Calls overtake each other: the highest number counts."""
        self.last_heard_at = time.monotonic()
        if len(free) != len(self.pools):
            raise InvalidOption("free", list(free), f"have a number for each of the {len(self.pools)} pools")
        if received > self.taken:
            raise InvalidOption("received", received, f"be at most {self.taken}, the last message sent on this stream")
        for slots in free:
            check_slots(slots)
        if number and number <= self._heard:
            return
        self._heard = number
        while self._unread and self._unread[0][0] <= received:
            self._unread.popleft()
        taken = [sum(places[number] for _, places in self._unread) for number in range(len(free))]
        self._free = [slots - gone for slots, gone in zip(free, taken, strict=True)]

    def assign(self, claims: Sequence[Claim], *, claimed_at: float) -> None:
        """Put jobs before it, in messages that no client refuses for their size."""
        for part in _by_size(claims):
            self._assign(part, claimed_at)

    def _assign(self, claims: Sequence[Claim], claimed_at: float) -> None:
        places = [0] * len(self.pools)
        for claim in claims:
            self.held[claim.id] = claim.lease_id
        while len(self.held) > HELD_LIMIT:  # what is not known here can be asked of the database
            del self.held[next(iter(self.held))]
        for claim in claims:
            for number in self._pools_of[claim.topic]:
                places[number] += 1
                self._free[number] -= 1
        self.sent += 1
        self._unread.append((self.sent, places))
        self._put(AssignmentBatch(self.sent, claims, claimed_at))

    def cancel(self, lease: Lease) -> None:
        self.sent += 1
        self._put(CancelNotice(self.sent, [lease]))

    def notify_dead_letters(self, job_ids: Sequence[UUID]) -> None:
        self.sent += 1
        self._put(DeadLetterNotice(self.sent, job_ids))

    def end(self, *, is_replaced: bool = False) -> None:
        """Nothing more comes: it ends with what is on its way."""
        self._free = [0] * len(self.pools)
        self.has_left = True
        self.sent += 1
        self._put(ReplacedNotice(self.sent) if is_replaced else DrainNotice(self.sent))

    def _put(self, message: Message) -> None:
        self._outbox.append(message)
        self._has_some.set()

    async def next(self, *, within: float) -> Message | None:
        """The next message, or none in that time."""
        if not self._outbox:
            self._has_some.clear()
            timer = asyncio.get_running_loop().call_later(within, self._has_some.set)
            try:
                await self._has_some.wait()
            finally:
                timer.cancel()
        if not self._outbox:
            return None
        message = self._outbox.popleft()
        self.taken = message.sequence
        return message

    def close(self) -> list[Lease]:
        """It is gone; answers with what was claimed for it and surely never sent."""
        self.has_left = True
        unsent = [
            Lease(claim.id, claim.lease_id)
            for message in self._outbox
            if isinstance(message, AssignmentBatch)
            for claim in message.claims
        ]
        self._outbox.clear()
        return unsent
