"""Which statements list and search alarms, and list their deliveries?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pulse.model.alarms import Alarm, AlarmFilter, AlarmStatus, Delivery, DeliveryOutcome
from pulse.store.alarms.rows import read_alarm

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from asyncpg import Record

    from pulse.store.connections.pool import Connection


class ScannedAlarm(NamedTuple):
    """An alarm that a search has found. The last one is where the scan ended, with how many it has seen."""

    id: UUID
    at: datetime | None  # the instant that the list is ordered by, if it is
    matches: bool
    seen: int


async def list_alarms(conn: Connection, wanted: AlarmFilter, *, owner: str, before: UUID, limit: int) -> list[Alarm]:
    rows = await conn.rows(
        "list_alarms",
        owner=owner,
        before=before,
        status=wanted.status,
        paused=wanted.paused,
        label=wanted.label,
        limit=limit,
    )
    return [read_alarm(row) for row in rows]


async def list_all_alarms(conn: Connection, wanted: AlarmFilter, *, before: UUID, limit: int) -> list[Alarm]:
    """Return alarms of every owner."""
    rows = await conn.rows(
        "list_all_alarms", before=before, status=wanted.status, paused=wanted.paused, label=wanted.label, limit=limit
    )
    return [read_alarm(row) for row in rows]


async def search_alarms(
    conn: Connection,
    *,
    before: UUID,
    status: AlarmStatus | None,
    paused: bool | None,
    part: str | None,
    scan: int,
    limit: int,
) -> list[ScannedAlarm]:
    rows = await conn.rows(
        "search_alarms", before=before, status=status, paused=paused, part=part, scan=scan, limit=limit
    )
    return [ScannedAlarm(row["id"], None, row["matches"], row["seen"]) for row in rows]


async def search_owned(
    conn: Connection,
    *,
    owner: str,
    before: UUID,
    status: AlarmStatus | None,
    paused: bool | None,
    part: str | None,
    scan: int,
    limit: int,
) -> list[ScannedAlarm]:
    rows = await conn.rows(
        "search_owned", owner=owner, before=before, status=status, paused=paused, part=part, scan=scan, limit=limit
    )
    return [ScannedAlarm(row["id"], None, row["matches"], row["seen"]) for row in rows]


async def search_failed(
    conn: Connection, *, before: tuple[datetime, UUID], owner: str | None, part: str | None, scan: int, limit: int
) -> list[ScannedAlarm]:
    rows = await conn.rows(
        "search_failed", before_at=before[0], before=before[1], owner=owner, part=part, scan=scan, limit=limit
    )
    return [ScannedAlarm(row["id"], row["finished_at"], row["matches"], row["seen"]) for row in rows]


async def search_failing(
    conn: Connection, *, after: tuple[datetime, UUID], owner: str | None, part: str | None, scan: int, limit: int
) -> list[ScannedAlarm]:
    rows = await conn.rows(
        "search_failing", after_at=after[0], after=after[1], owner=owner, part=part, scan=scan, limit=limit
    )
    return [ScannedAlarm(row["id"], row["next_fire_at"], row["matches"], row["seen"]) for row in rows]


async def read_alarms(conn: Connection, *, ids: Sequence[UUID]) -> list[Alarm]:
    """Return these alarms in the order of the ids, without those that are gone."""
    found = {row["id"]: read_alarm(row) for row in await conn.rows("read_alarms", ids=ids)}
    return [found[each] for each in ids if each in found]


async def list_deliveries(conn: Connection, *, alarm_id: UUID, before: int, limit: int) -> list[tuple[int, Delivery]]:
    """Return deliveries, each with the number by which the next page can begin after it."""
    rows = await conn.rows("list_deliveries", alarm_id=alarm_id, before=before, limit=limit)
    return [(row["lease_id"], _delivery(row)) for row in rows]


def _delivery(row: Record) -> Delivery:
    return Delivery(
        occurrence=row["occurrence"],
        attempt=row["attempt"],
        outcome=DeliveryOutcome(row["outcome"]),
        started_at=row["started_at"],
        duration=row["duration"],
        status=row["status"],
        error=row["error"],
        answer=row["answer"],
        note=row["note"],
    )
