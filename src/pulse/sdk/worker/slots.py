"""How many more jobs can this worker start, and of which topics?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pulse.links.link import SlotPool

if TYPE_CHECKING:
    from pulse.sdk.task import Task, Where


class Slots:
    """The free slots on the loop, in threads and in processes, and which of them a topic's jobs may need."""

    def __init__(self, sizes: dict[Where, int], topics: Sequence[str], tasks: Iterable[Task[..., Any, Any]]) -> None:
        self.sizes = dict(sizes)
        self.free = dict(sizes)
        tasks = list(tasks)
        all_kinds: set[Where] = {task.where for task in tasks} or {"loop"}
        self._needed: dict[str, set[Where]] = {
            topic: {task.where for task in tasks if topic in (task.topic, *task.aliases)} or all_kinds
            for topic in topics
        }

    def take(self, where: Where) -> None:
        self.free[where] -= 1

    def give_back(self, where: Where) -> None:
        self.free[where] += 1

    def for_topic(self, topic: str) -> int:
        """Return how many jobs of a topic can start in any case: a topic may hold tasks of several kinds."""
        return min(self.free[where] for where in self._needed[topic])

    def slot_pools(self) -> list[SlotPool]:
        """Return the free slots of each kind, with the topics whose jobs may need them."""
        return [
            SlotPool(tuple(topic for topic, needed in self._needed.items() if where in needed), free)
            for where, free in self.free.items()
            if any(where in needed for needed in self._needed.values())
        ]

    def efficient_claim(self, topic: str) -> int:
        """Return how many free slots are worth a claim at once. With fewer it pays to wait a moment for more: a claim
        of one job costs as much as a claim of many."""
        return min(100, max(1, min(self.sizes[where] for where in self._needed[topic]) // 2))
