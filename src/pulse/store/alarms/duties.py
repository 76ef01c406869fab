"""Which statements make due alarms ready, take back expired leases, and prune?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.store.connections.pool import Connection


async def ready_alarms(conn: Connection, *, limit: int) -> int:
    return int((await conn.rows("ready_alarms", limit=limit))[0]["alarms"])


async def expire_alarms(conn: Connection, *, limit: int) -> int:
    return int((await conn.rows("expire_alarms", limit=limit))[0]["alarms"])


async def prune_alarms(conn: Connection, *, keep: timedelta, keep_deliveries: timedelta, limit: int) -> tuple[int, int]:
    [row] = await conn.rows("prune_alarms", keep=keep, keep_deliveries=keep_deliveries, limit=limit)
    return row["alarms"], row["deliveries"]
