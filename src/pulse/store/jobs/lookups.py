"""Which statements look up jobs by their ids?"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.jobs import Attempt, Job, JobHead, JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from asyncpg import Record

    from pulse.store.connections.pool import Connection


class ClaimRow(NamedTuple):
    """The newest claim on a job, and the worker that has it or had it."""

    id: UUID
    lease_id: int
    topic: str
    worker: str | None


async def get_jobs(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, Job]:
    rows = await conn.rows("get_jobs", bucket=bucket, ids=ids)
    return {row["id"]: _job(row) for row in rows}


async def get_job_heads(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, JobHead]:
    rows = await conn.rows("get_job_heads", bucket=bucket, ids=ids)
    return {row["id"]: JobHead(**dict(row) | {"status": JobStatus(row["status"])}) for row in rows}


async def finished_ids(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await conn.rows("finished_ids", bucket=bucket, ids=ids)}


async def read_topics(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, str]:
    return {row["id"]: row["topic"] for row in await conn.rows("read_topics", bucket=bucket, ids=ids)}


async def list_attempts(conn: Connection, *, bucket: int, id: UUID) -> list[Attempt]:  # noqa: A002
    return [Attempt(*row) for row in await conn.rows("list_attempts", bucket=bucket, id=id)]


async def read_leases(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, tuple[JobStatus, int]]:
    rows = await conn.rows("read_leases", bucket=bucket, ids=ids)
    return {row["id"]: (JobStatus(row["status"]), row["lease_id"]) for row in rows}


async def read_claims(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> list[ClaimRow]:
    rows = await conn.rows("read_claims", bucket=bucket, ids=ids)
    return [ClaimRow(row["id"], row["lease_id"], row["topic"], row["locked_by"]) for row in rows]


def _job(row: Record) -> Job:
    values = dict(row)
    values["status"] = JobStatus(values["status"])
    if values["key_held_until"] is not None:  # the driver reads infinity as an instant without a time zone
        values["key_held_until"] = values["key_held_until"].replace(tzinfo=UTC)
    return Job(**values)
