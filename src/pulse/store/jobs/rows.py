"""Which rows and keys do several statements on jobs have in common?"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from asyncpg import Record


ClaimKey = tuple[UUID, int]  # the id of a job and the lease_id of a claim on it
_CLAIM_KEY = itemgetter("id", "lease_id")


class Mark(NamedTuple):
    """A place in the order of a topic's waiting jobs. Claims start behind it."""

    urgency: int
    ready_at: datetime
    id: UUID


class ReadyTopic(NamedTuple):
    """A topic in which jobs became ready, and the priority of the most urgent one."""

    topic: str
    priority: int


def claim_keys(rows: Sequence[Record]) -> list[ClaimKey]:
    return list(map(_CLAIM_KEY, rows))
