"""Which statements read and prune the log of fires?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.jobs import JobStatus
from pulse.model.schedules import Fire, FireOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from asyncpg import Record

    from pulse.store.connections.pool import Connection


async def last_fires(conn: Connection, *, ids: Sequence[UUID], occurrences: Sequence[datetime]) -> dict[UUID, datetime]:
    """Return when these occurrences were fired, by schedule."""
    rows = await conn.rows("last_fires", ids=ids, occurrences=occurrences)
    return {row["schedule_id"]: row["logged_at"] for row in rows}


async def list_fires(conn: Connection, *, schedule_id: UUID, before: tuple[datetime, str], limit: int) -> list[Fire]:
    rows = await conn.rows(
        "list_fires", schedule_id=schedule_id, before_occurrence=before[0], before_outcome=before[1], limit=limit
    )
    return [_fire(row) for row in rows]


async def fired_occurrences(conn: Connection, *, schedule_id: UUID, occurrences: Sequence[datetime]) -> set[datetime]:
    rows = await conn.rows("fired_occurrences", schedule_id=schedule_id, occurrences=occurrences)
    return {row["occurrence"] for row in rows}


async def prune_fires(
    conn: Connection, *, after: UUID, schedules: int, keep: timedelta, limit: int
) -> tuple[UUID | None, int]:
    """Return where the next call goes on (None: at the beginning), and how many lines were removed."""
    [row] = await conn.rows("prune_fires", after=after, schedules=schedules, keep=keep, limit=limit)
    return row["last"], row["lines"]


def _fire(row: Record) -> Fire:
    values = dict(row)
    values["outcome"] = FireOutcome(values["outcome"])
    values["job_status"] = JobStatus(values["job_status"]) if values["job_status"] else None
    return Fire(**values)
