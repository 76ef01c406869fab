"""Which statements read and rotate the secrets that sign wakes?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.alarms import WakeGeneration, WakeRoot

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.store.connections.pool import Connection


async def wake_secrets(conn: Connection) -> list[WakeRoot]:
    """Return the secrets of the installation, newest first. The secrets of owners are derived from them."""
    return [WakeRoot(**row) for row in await conn.rows("wake_secrets")]


async def wake_generations(conn: Connection) -> list[WakeGeneration]:
    """Return the generations of the owners whose secret was replaced, newest first."""
    return [WakeGeneration(**row) for row in await conn.rows("wake_generations")]


async def rotate_wake_secret(conn: Connection, *, secret: str, overlap: timedelta) -> None:
    await conn.rows("rotate_wake_secret", secret=secret, overlap=overlap)


async def rotate_owner_secret(conn: Connection, *, owner: str, overlap: timedelta) -> None:
    await conn.rows("rotate_owner_secret", owner=owner, overlap=overlap)
