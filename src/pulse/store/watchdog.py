"""Which leases may be judged now, by what the database remembers of those who watch them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from pulse.store.connections.pool import Connection


class Look(NamedTuple):
    """What one look at the leases found."""

    ended_before: datetime  # leases that ended earlier may be taken away
    until_steady: timedelta  # how long until that is so of all
    buckets: list[int]  # where any have ended


async def look_at_leases(
    conn: Connection, *, buckets: Sequence[int], lease: timedelta, longest_gap: timedelta, spacing: timedelta
) -> Look:
    """Note that the leases are looked at now, and find those that may be taken away."""
    rows = await conn.rows("look_at_leases", buckets=buckets, lease=lease, longest_gap=longest_gap, spacing=spacing)
    return Look(*rows[0])


async def try_to_write(conn: Connection) -> None:
    """Raise if the database takes no writes."""
    await conn.rows("try_to_write")
