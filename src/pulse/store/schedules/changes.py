"""Which statements insert, change and delete schedules, and note deploys?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import asyncpg

from pulse.model.errors import ScheduleExists
from pulse.store.schedules.rows import read_schedule, write_schedules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from pulse.model.schedules import (
        Schedule,
    )
    from pulse.store.connections.pool import Connection


class Deploy(NamedTuple):
    """The newest sync of an app's schedules."""

    deploy: int | None
    synced_at: datetime


async def insert_schedules(
    conn: Connection, schedules: Sequence[Schedule], *, buckets: Sequence[int]
) -> list[Schedule]:
    """Insert the schedules whose names are new, and return those."""
    return [read_schedule(row) for row in await conn.rows("insert_schedules", rows=write_schedules(schedules, buckets))]


async def update_schedules(conn: Connection, schedules: Sequence[Schedule], *, buckets: Sequence[int]) -> None:
    try:
        await conn.rows("update_schedules", rows=write_schedules(schedules, buckets))
    except asyncpg.UniqueViolationError:
        raise ScheduleExists(schedules[0].name, "owner, since a moment ago") from None


async def pause_schedule(conn: Connection, *, id: UUID, reason: str) -> None:  # noqa: A002
    await conn.rows("pause_schedule", id=id, reason=reason)


async def resume_schedule(conn: Connection, *, id: UUID, next: datetime | None, status: str) -> None:  # noqa: A002
    await conn.rows("resume_schedule", id=id, next=next, status=status)


async def delete_schedules(conn: Connection, *, ids: Sequence[UUID]) -> None:
    await conn.rows("delete_schedules", ids=ids)


async def lock_schedules(
    conn: Connection, names: Sequence[str] = (), ids: Sequence[UUID] = (), *, app: str | None = None
) -> list[Schedule]:
    return [read_schedule(row) for row in await conn.rows("lock_schedules", names=names, ids=ids, app=app)]


async def note_deploy(conn: Connection, *, app: str) -> Deploy:
    return Deploy(*(await conn.rows("note_deploy", app=app))[0])


async def find_deploy(conn: Connection, *, app: str) -> Deploy | None:
    rows = await conn.rows("find_deploy", app=app)
    return Deploy(*rows[0]) if rows else None


async def confirm_deploy(conn: Connection, *, app: str, deploy: int | None) -> None:
    await conn.rows("confirm_deploy", app=app, deploy=deploy)
