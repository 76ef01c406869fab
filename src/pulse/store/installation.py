"""How many buckets does the installation have, what time is it there, and does it take writes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.store.connections.pool import Connection


async def read_installation(conn: Connection) -> int:
    return int((await conn.rows("read_installation"))[0]["buckets"])


async def read_clock(conn: Connection) -> datetime:
    [row] = await conn.rows("read_clock")
    now: datetime = row["now"]
    return now


async def try_to_write(conn: Connection) -> None:
    """Raise if the database takes no writes."""
    await conn.rows("try_to_write")
