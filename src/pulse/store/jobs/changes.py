"""With which statements do operators change jobs and pause topics?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.jobs import Pause
from pulse.store.jobs.rows import ReadyTopic

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from pulse.store.connections.pool import Connection


async def cancel_jobs(conn: Connection, *, bucket: int, ids: Sequence[UUID], reason: str) -> set[UUID]:
    rows = await conn.rows("cancel_jobs", bucket=bucket, ids=ids, reason=reason)
    return {row["id"] for row in rows}


async def free_replayed_keys(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> None:
    await conn.rows("free_replayed_keys", bucket=bucket, ids=ids)


async def replay_jobs(
    conn: Connection, *, bucket: int, ids: Sequence[UUID], before: datetime
) -> tuple[set[UUID], list[ReadyTopic]]:
    rows = await conn.rows("replay_jobs", bucket=bucket, ids=ids, before=before)
    return {row["id"] for row in rows}, [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def run_jobs_now(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> tuple[set[UUID], list[ReadyTopic]]:
    rows = await conn.rows("run_jobs_now", bucket=bucket, ids=ids)
    return {row["id"] for row in rows}, [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def pause_topic(conn: Connection, *, topic: str, reason: str) -> Pause:
    return Pause(*(await conn.rows("pause_topic", topic=topic, reason=reason))[0])


async def resume_topic(conn: Connection, *, topic: str) -> bool:
    return bool(await conn.rows("resume_topic", topic=topic))


async def list_pauses(conn: Connection) -> list[Pause]:
    return [Pause(*row) for row in await conn.rows("list_pauses")]
