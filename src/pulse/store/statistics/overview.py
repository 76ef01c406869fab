"""What do overviews and metrics show beside counts and series?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.store.connections.pool import Connection


LONG_TRANSACTION = timedelta(minutes=5)


class Concerns(NamedTuple):
    now: datetime
    broken_schedules: int
    schedules_overdue: timedelta | None
    failing_alarms: int
    failed_alarms: int
    alarms_overdue: timedelta | None


class Snapshot(NamedTuple):
    """A transaction that has been open for a long time."""

    pid: int
    application: str
    state: str
    age: timedelta


async def oldest_pending(conn: Connection, *, buckets: Sequence[int], topics: Sequence[str]) -> dict[str, datetime]:
    rows = await conn.rows("oldest_pending", buckets=list(buckets), topics=list(topics))
    return {row["topic"]: row["ready_at"] for row in rows}


async def recent_tasks(
    conn: Connection, *, buckets: Sequence[int], topics: Sequence[str], limit: int
) -> list[tuple[str, str]]:
    """Return pairs of a topic and one of its tasks."""
    rows = await conn.rows("recent_tasks", buckets=list(buckets), topics=list(topics), limit=limit)
    return [(row["topic"], row["task"]) for row in rows]


async def read_concerns(conn: Connection) -> Concerns:
    return Concerns(*(await conn.rows("read_concerns"))[0])


async def oldest_snapshot(conn: Connection) -> Snapshot | None:
    rows = await conn.rows("oldest_snapshot", age=LONG_TRANSACTION)
    return Snapshot(*rows[0]) if rows else None
