"""How much happened, and when?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.model.statistics import Event, Sample, Span, Total

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pulse.store.connections.pool import Connection


KNOWN = frozenset(Event)  # a newer release that runs beside this one may count others


class RecentEvents(NamedTuple):
    span: str
    topic: str
    event: Event
    jobs: int


async def read_series(
    conn: Connection, *, buckets: Sequence[int], span: Span, topic: str, since: datetime
) -> list[Sample]:
    rows = await conn.rows("read_series", buckets=list(buckets), span=span.value, topic=topic, since=since)
    return [Sample(at, Event(event), took, jobs, seconds) for at, event, took, jobs, seconds in rows if event in KNOWN]


async def read_recent(conn: Connection, *, buckets: Sequence[int]) -> list[RecentEvents]:
    rows = await conn.rows("read_recent", buckets=list(buckets))
    return [
        RecentEvents(row["span"], row["topic"], Event(row["event"]), row["jobs"])
        for row in rows
        if row["event"] in KNOWN
    ]


async def read_totals(conn: Connection, *, buckets: Sequence[int]) -> list[Total]:
    rows = await conn.rows("read_totals", buckets=list(buckets))
    return [
        Total(topic, Event(event), took, jobs, seconds) for topic, event, took, jobs, seconds in rows if event in KNOWN
    ]


async def prune_series(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("prune_series", bucket=bucket, limit=limit))[0][0])


async def forget_series(conn: Connection, *, buckets: Sequence[int], limit: int) -> None:
    await conn.rows("forget_series", buckets=list(buckets), limit=limit)
