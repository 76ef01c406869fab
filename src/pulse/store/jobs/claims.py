"""Which statements lease jobs to workers, and record what workers report?"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

from asyncpg import LockNotAvailableError

from pulse.model.jobs import Claim, Lease, Progress, Report
from pulse.store.jobs.rows import ClaimKey, Mark, ReadyTopic, claim_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from pulse.store.connections.pool import Connection


async def claim_jobs(
    conn: Connection, *, bucket: int, topic: str, workers: Sequence[str], limit: int, lease: timedelta, mark: Mark
) -> list[Claim]:
    """Lease up to `limit` jobs in the topic's order, dealt to the workers in turn."""
    rows = await conn.rows(
        "claim_jobs",
        bucket=bucket,
        topic=topic,
        workers=workers,
        limit=limit,
        lease=lease,
        mark_urgency=mark.urgency,
        mark_ready_at=mark.ready_at,
        mark_id=mark.id,
    )
    return list(starmap(Claim, rows))


async def ready_topics(conn: Connection, *, buckets: Sequence[int], topics: Sequence[str]) -> list[str]:
    return [row["topic"] for row in await conn.rows("ready_topics", buckets=buckets, topics=topics)]


async def heartbeat_jobs(conn: Connection, *, bucket: int, leases: Sequence[Lease], lease: timedelta) -> list[ClaimKey]:
    rows = await conn.rows(
        "heartbeat_jobs",
        bucket=bucket,
        ids=[item.id for item in leases],
        lease_ids=[item.lease_id for item in leases],
        lease=lease,
    )
    return claim_keys(rows)


async def progress_jobs(conn: Connection, *, bucket: int, progress: Sequence[Progress]) -> list[ClaimKey]:
    rows = await conn.rows(
        "progress_jobs",
        bucket=bucket,
        ids=[item.id for item in progress],
        lease_ids=[item.lease_id for item in progress],
        progress=[item.value for item in progress],
    )
    return claim_keys(rows)


async def complete_jobs(conn: Connection, *, bucket: int, reports: Sequence[Report]) -> list[ClaimKey]:
    """Complete the jobs whose claims stand, and return those claims.

    A job whose row its handler's own transaction has locked is passed over, not waited for.
    """
    parameters: dict[str, Any] = {
        "bucket": bucket,
        "ids": [report.id for report in reports],
        "lease_ids": [report.lease_id for report in reports],
        "results": [report.result for report in reports],
    }
    try:
        moved = (await conn.rows("complete_jobs", **parameters))[0]
    except LockNotAvailableError:
        return claim_keys(await conn.rows("complete_free_jobs", **parameters))
    if moved["jobs"] == len(reports):
        return list(zip(parameters["ids"], parameters["lease_ids"], strict=True))
    return list(zip(moved["ids"] or (), moved["lease_ids"] or (), strict=True))


async def fail_jobs(
    conn: Connection, *, bucket: int, reports: Sequence[Report]
) -> tuple[list[ClaimKey], list[timedelta]]:
    """Return the claims that were accepted, and the waits of the jobs among them that will be tried again."""
    rows = await conn.rows(
        "fail_jobs",
        bucket=bucket,
        ids=[report.id for report in reports],
        lease_ids=[report.lease_id for report in reports],
        outcomes=[report.outcome.value for report in reports],
        errors=[report.clean_error for report in reports],
        tracebacks=[report.clean_traceback for report in reports],
        delays=[report.delay for report in reports],
    )
    return claim_keys(rows), [row["wait"] for row in rows if row["wait"] is not None]


async def release_jobs(
    conn: Connection, *, bucket: int, leases: Sequence[Lease]
) -> tuple[list[ClaimKey], list[ReadyTopic]]:
    rows = await conn.rows(
        "release_jobs",
        bucket=bucket,
        ids=[item.id for item in leases],
        lease_ids=[item.lease_id for item in leases],
    )
    return claim_keys(rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def release_unheld(
    conn: Connection, *, bucket: int, workers: Sequence[str], held: Sequence[Lease], after: datetime, before: datetime
) -> tuple[list[ClaimKey], list[ReadyTopic]]:
    """Release the claims of these workers that are not among those they hold."""
    rows = await conn.rows(
        "release_unheld",
        bucket=bucket,
        workers=workers,
        ids=[item.id for item in held],
        lease_ids=[item.lease_id for item in held],
        after=after,
        before=before,
    )
    return claim_keys(rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]
