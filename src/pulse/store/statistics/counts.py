"""How many jobs are in each state?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.jobs import JobStatus

if TYPE_CHECKING:
    from pulse.store.connections.pool import Connection


async def roll_tallies(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("roll_tallies", bucket=bucket, limit=limit))[0][0])


async def forget_counts(conn: Connection) -> None:
    await conn.rows("forget_counts")


async def tallied_buckets(conn: Connection) -> list[int]:
    return [row["bucket"] for row in await conn.rows("tallied_buckets")]


async def count_jobs(conn: Connection) -> dict[str, dict[JobStatus, int]]:
    counts: dict[str, dict[JobStatus, int]] = {}
    for row in await conn.rows("count_jobs"):
        counts.setdefault(row["topic"], {})[JobStatus(row["status"])] = row["jobs"]
    return counts
