"""Which statements promote, expire, reap and prune jobs?"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from asyncpg import PostgresError

from pulse.model.jobs import JobStatus
from pulse.store.connections.pool import may_be_of_one
from pulse.store.jobs.rows import ReadyTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from asyncpg import Record

    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection


class MovedJob(NamedTuple):
    """A job that a duty moved, its state now, and how long it waits there."""

    id: UUID
    status: JobStatus
    wait: timedelta | None


class RowRefused(Exception):
    """Postgres refuses to move a batch, perhaps because of a single row in it."""


async def promote_jobs(conn: Connection, *, bucket: int, limit: int) -> tuple[int, list[ReadyTopic]]:
    with _catch_refusals():
        return _promoted_topics(await conn.rows("promote_jobs", bucket=bucket, limit=limit))


async def expire_jobs(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    with _catch_refusals():
        return [row["id"] for row in await conn.rows("expire_jobs", bucket=bucket, limit=limit)]


async def reap_jobs(conn: Connection, *, bucket: int, limit: int, ended_before: datetime) -> list[MovedJob]:
    with _catch_refusals():
        return _moved_jobs(await conn.rows("reap_jobs", bucket=bucket, limit=limit, ended_before=ended_before))


async def ids_to_promote(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_promote", bucket=bucket, limit=limit)]


async def ids_to_expire(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_expire", bucket=bucket, limit=limit)]


async def ids_to_reap(conn: Connection, *, bucket: int, limit: int, ended_before: datetime) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_reap", bucket=bucket, limit=limit, ended_before=ended_before)]


# The ids come from the head of the index that these three scan, so a limit of as many rows ends the scan once all are
# found.


async def promote_jobs_among(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> tuple[int, list[ReadyTopic]]:
    with _catch_refusals():
        return _promoted_topics(await conn.rows("promote_jobs_among", bucket=bucket, limit=len(ids), ids=ids))


async def expire_jobs_among(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> list[UUID]:
    with _catch_refusals():
        return [row["id"] for row in await conn.rows("expire_jobs_among", bucket=bucket, limit=len(ids), ids=ids)]


async def reap_jobs_among(
    conn: Connection, *, bucket: int, ended_before: datetime, ids: Sequence[UUID]
) -> list[MovedJob]:
    with _catch_refusals():
        rows = await conn.rows("reap_jobs_among", bucket=bucket, limit=len(ids), ended_before=ended_before, ids=ids)
    return _moved_jobs(rows)


async def prune_jobs(conn: Connection, *, bucket: int, keep: Settings, limit: int) -> int:
    rows = await conn.rows(
        "prune_jobs",
        bucket=bucket,
        keep_completed=keep.keep_completed,
        keep_cancelled=keep.keep_cancelled,
        keep_dead_lettered=keep.keep_dead_lettered,
        limit=limit,
    )
    return int(rows[0][0])


async def prune_results(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("prune_results", bucket=bucket, limit=limit))[0][0])


def _moved_jobs(rows: Sequence[Record]) -> list[MovedJob]:
    return [MovedJob(row["id"], JobStatus(row["status"]), row["wait"]) for row in rows]


def _promoted_topics(rows: Sequence[Record]) -> tuple[int, list[ReadyTopic]]:
    return sum(row["jobs"] for row in rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]


@contextmanager
def _catch_refusals() -> Iterator[None]:
    """Raise `RowRefused` instead of an error that a single row may have caused."""
    try:
        yield
    except PostgresError as error:
        if not may_be_of_one(error):
            raise
        # Without the detail of the error: it quotes the whole row, with its payload, and this message is logged.
        raise RowRefused(f"{type(error).__name__}: {error.message}") from error
