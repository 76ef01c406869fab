"""Which statements tell how much happens, and how fast?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.statistics import Event, Sample, Span, Total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.store.connections.pool import Connection

LONG_TRANSACTION = timedelta(minutes=5)
KNOWN = frozenset(Event)  # a newer release beside this one may count more


class Recent(NamedTuple):
    span: str
    topic: str
    event: Event
    jobs: int


class Concerns(NamedTuple):
    now: datetime
    broken_schedules: int
    schedules_overdue: timedelta | None
    failing_alarms: int
    failed_alarms: int
    alarms_overdue: timedelta | None


class Snapshot(NamedTuple):
    """A transaction that has been open for long."""

    pid: int
    application: str
    state: str
    age: timedelta


async def read_series(
    conn: Connection, *, buckets: Sequence[int], span: Span, topic: str, since: datetime
) -> list[Sample]:
    rows = await conn.rows("read_series", buckets=list(buckets), span=span.value, topic=topic, since=since)
    return [Sample(at, Event(event), took, jobs, seconds) for at, event, took, jobs, seconds in rows if event in KNOWN]


async def read_recent(conn: Connection, *, buckets: Sequence[int]) -> list[Recent]:
    rows = await conn.rows("read_recent", buckets=list(buckets))
    return [
        Recent(row["span"], row["topic"], Event(row["event"]), row["jobs"]) for row in rows if row["event"] in KNOWN
    ]


async def read_totals(conn: Connection, *, buckets: Sequence[int]) -> list[Total]:
    rows = await conn.rows("read_totals", buckets=list(buckets))
    return [
        Total(topic, Event(event), took, jobs, seconds) for topic, event, took, jobs, seconds in rows if event in KNOWN
    ]


async def oldest_pending(conn: Connection, *, buckets: Sequence[int], topics: Sequence[str]) -> dict[str, datetime]:
    rows = await conn.rows("oldest_pending", buckets=list(buckets), topics=list(topics))
    return {row["topic"]: row["ready_at"] for row in rows}


async def recent_tasks(
    conn: Connection, *, buckets: Sequence[int], topics: Sequence[str], limit: int
) -> list[tuple[str, str]]:
    """Pairs of a topic and a task of it."""
    rows = await conn.rows("recent_tasks", buckets=list(buckets), topics=list(topics), limit=limit)
    return [(row["topic"], row["task"]) for row in rows]


async def read_concerns(conn: Connection) -> Concerns:
    return Concerns(*(await conn.rows("read_concerns"))[0])


async def oldest_snapshot(conn: Connection) -> Snapshot | None:
    rows = await conn.rows("oldest_snapshot", age=LONG_TRANSACTION)
    return Snapshot(*rows[0]) if rows else None


async def prune_series(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("prune_series", bucket=bucket, limit=limit))[0][0])


async def forget_series(conn: Connection, *, buckets: Sequence[int], limit: int) -> None:
    await conn.rows("forget_series", buckets=list(buckets), limit=limit)
