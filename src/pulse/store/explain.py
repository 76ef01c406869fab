"""Which statements find out why a job does not run?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncpg import InsufficientPrivilegeError

from pulse.model.explain.facts import Holder, Pace

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from uuid import UUID

    from pulse.store.connections.pool import Connection
    from pulse.store.jobs.rows import Mark


async def count_ahead(conn: Connection, *, bucket: int, topic: str, place: Mark, limit: int) -> int:
    rows = await conn.rows(
        "count_ahead",
        bucket=bucket,
        topic=topic,
        urgency=place.urgency,
        ready_at=place.ready_at,
        id=place.id,
        limit=limit,
    )
    return int(rows[0]["jobs"])


async def count_behind(conn: Connection, *, bucket: int, topic: str, place: Mark, limit: int) -> int:
    rows = await conn.rows(
        "count_behind",
        bucket=bucket,
        topic=topic,
        urgency=place.urgency,
        ready_at=place.ready_at,
        id=place.id,
        limit=limit,
    )
    return int(rows[0]["jobs"])


async def count_pending(conn: Connection, *, bucket: int, topic: str) -> int:
    return int((await conn.rows("count_pending", bucket=bucket, topic=topic))[0]["jobs"])


async def read_pace(
    conn: Connection, *, bucket: int, topic: str, now: datetime, within: timedelta, limit: int
) -> Pace | None:
    """Return the pace at which jobs of a topic end, or None if none has ended."""
    [row] = await conn.rows("read_pace", bucket=bucket, topic=topic, within=within, limit=limit)
    return Pace(row["jobs"], now - row["since"]) if row["jobs"] else None


async def is_row_free(conn: Connection, *, bucket: int, id: UUID) -> bool:  # noqa: A002
    """Return whether nobody has locked the job, and True if this role may not lock rows itself."""
    try:
        return bool(await conn.rows("is_row_free", bucket=bucket, id=id))
    except InsufficientPrivilegeError:
        return True


async def list_holders(conn: Connection, *, limit: int) -> list[Holder]:
    return [Holder(*row) for row in await conn.rows("list_holders", limit=limit)]
