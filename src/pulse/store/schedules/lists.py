"""Which statements find, list, search and count schedules?"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

from pulse.model.text import NAME_LIMIT
from pulse.store.schedules.rows import read_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from pulse.model.list_filters import ScheduleSearch
    from pulse.model.schedules import (
        Schedule,
        ScheduleFilter,
        ScheduleStatus,
    )
    from pulse.store.connections.pool import Connection


LAST_NAME = "\U0010ffff" * NAME_LIMIT  # appended to a prefix: no name with that prefix comes later


class ScannedSchedule(NamedTuple):
    """A schedule that a search has found. The last one is where the scan ended, with how many it has seen."""

    id: UUID
    name: str
    matches: bool
    seen: int


async def find_schedules(conn: Connection, names: Sequence[str] = (), ids: Sequence[UUID] = ()) -> list[Schedule]:
    return [read_schedule(row) for row in await conn.rows("find_schedules", names=names, ids=ids)]


async def list_schedules(conn: Connection, wanted: ScheduleFilter, *, after: str, limit: int) -> list[Schedule]:
    rows = await conn.rows(
        "list_schedules",
        after=after,
        status=wanted.status,
        paused=wanted.paused,
        task=wanted.task,
        topic=wanted.topic,
        tag=wanted.tag,
        limit=limit,
    )
    return [read_schedule(row) for row in rows]


async def search_schedules(
    conn: Connection,
    wanted: ScheduleSearch,
    *,
    after: str,
    status: ScheduleStatus | None,
    paused: bool | None,
    scan: int,
    limit: int,
) -> list[ScannedSchedule]:
    rows = await conn.rows(
        "search_schedules",
        after=after,
        first=wanted.start,
        last=wanted.start + LAST_NAME,
        status=status,
        paused=paused,
        task=wanted.task,
        topic=wanted.topic,
        part=wanted.part,
        scan=scan,
        limit=limit,
    )
    return list(starmap(ScannedSchedule, rows))


async def search_broken(
    conn: Connection, wanted: ScheduleSearch, *, after: str, scan: int, limit: int
) -> list[ScannedSchedule]:
    rows = await conn.rows(
        "search_broken",
        after=after,
        first=wanted.start,
        last=wanted.start + LAST_NAME,
        task=wanted.task,
        topic=wanted.topic,
        part=wanted.part,
        scan=scan,
        limit=limit,
    )
    return list(starmap(ScannedSchedule, rows))


async def next_schedules(conn: Connection, *, until: datetime, limit: int) -> list[Schedule]:
    return [read_schedule(row) for row in await conn.rows("next_schedules", until=until, limit=limit)]


async def count_schedules(conn: Connection, *, limit: int) -> dict[str, int]:
    return {row["state"]: row["schedules"] for row in await conn.rows("count_schedules", limit=limit)}
