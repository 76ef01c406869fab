"""Which statements set one alarm, find it and change it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pulse.store.alarms.rows import read_alarm, read_first, read_headers

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from pulse.model.alarms import (
        Alarm,
        AlarmStatus,
    )
    from pulse.store.connections.pool import Connection


async def set_alarm(conn: Connection, row: dict[str, object]) -> tuple[UUID, str]:
    """Return the id of the alarm, and what was done: set, replaced, same, taken or used."""
    [found] = await conn.rows("set_alarm", alarm=msgspec.json.encode(row).decode())
    return found["alarm_id"], found["deed"]


async def get_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return read_first(await conn.rows("get_alarm", id=id))


async def find_alarm(conn: Connection, *, owner: str, name: str) -> Alarm | None:
    return read_first(await conn.rows("find_alarm", owner=owner, name=name))


async def find_headers(conn: Connection, *, owner: str, name: str) -> tuple[str | None, dict[str, str]] | None:
    """Return the url of an alarm and its headers as they are sent: to be kept, and not to be shown."""
    rows = await conn.rows("find_headers", owner=owner, name=name)
    return (rows[0]["url"], read_headers(rows[0])) if rows else None


async def find_by_call(conn: Connection, *, call_id: UUID, owner: str, name: str | None) -> Alarm | None:
    return read_first(await conn.rows("find_by_call", call_id=call_id, owner=owner, name=name))


async def find_by_key(conn: Connection, *, owner: str, idempotency_key: str) -> tuple[Alarm, bytes] | None:
    """Return the alarm that was set with this key, and the fingerprint of what was asked for."""
    rows = await conn.rows("find_by_key", owner=owner, idempotency_key=idempotency_key)
    return (read_alarm(rows[0]), rows[0]["fingerprint"]) if rows else None


async def lock_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return read_first(await conn.rows("lock_alarm", id=id))


async def cancel_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return read_first(await conn.rows("cancel_alarm", id=id))


async def pause_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return read_first(await conn.rows("pause_alarm", id=id))


async def resume_alarm(conn: Connection, *, id: UUID, occurrence: datetime, next: datetime) -> Alarm:  # noqa: A002
    return read_alarm((await conn.rows("resume_alarm", id=id, occurrence=occurrence, next=next))[0])


async def end_alarm(conn: Connection, *, id: UUID, status: AlarmStatus, error: str | None) -> Alarm:  # noqa: A002
    return read_alarm((await conn.rows("end_alarm", id=id, status=status.value, error=error))[0])


async def fire_alarm(conn: Connection, *, id: UUID, occurrence: datetime) -> Alarm:  # noqa: A002
    return read_alarm((await conn.rows("fire_alarm", id=id, occurrence=occurrence))[0])
