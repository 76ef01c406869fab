"""When do the next job, the next schedule and the next alarm fall due?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pulse.store.connections.pool import Connection


class DutyPeek(NamedTuple):
    bucket: int
    until_due: timedelta | None
    until_late: timedelta | None
    until_fire: timedelta | None  # until a schedule is due, in whichever bucket
    is_buffering: bool  # an occurrence waits until the job before it has finished
    until_wake: timedelta | None  # until an alarm is due, or the lease of one has expired


class SchedulePeek(NamedTuple):
    until_due: timedelta | None
    is_buffering: bool


class AlarmPeek(NamedTuple):
    until_due: timedelta | None
    has_expired: bool
    has_ready: bool


async def peek_duties(
    conn: Connection, *, buckets: Sequence[int], schedules: bool = True, alarms: bool = True
) -> list[DutyPeek]:
    rows = await conn.rows("peek_duties", buckets=buckets, schedules=schedules, alarms=alarms)
    return [DutyPeek(*row) for row in rows]


async def peek_jobs(conn: Connection, *, buckets: Sequence[int]) -> list[DutyPeek]:
    return [DutyPeek(*row) for row in await conn.rows("peek_jobs", buckets=buckets)]


async def peek_schedules(conn: Connection) -> SchedulePeek:
    return SchedulePeek(*(await conn.rows("peek_schedules"))[0])


async def peek_alarms(conn: Connection) -> AlarmPeek:
    return AlarmPeek(*(await conn.rows("peek_alarms"))[0])
