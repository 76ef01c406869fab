"""Which ended leases may be taken away now, by what the database remembers of the looks at them?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from pulse.store.connections.pool import Connection


class Look(NamedTuple):
    """What one look at the leases found."""

    ended_before: datetime  # leases that ended earlier may be taken away
    until_steady: timedelta  # until every ended lease may be
    buckets: list[int]  # those that have ended leases


async def look_at_leases(
    conn: Connection, *, buckets: Sequence[int], lease: timedelta, longest_gap: timedelta, spacing: timedelta
) -> Look:
    """Note that somebody looks at the leases now, and tell which of them may be taken away."""
    rows = await conn.rows("look_at_leases", buckets=buckets, lease=lease, longest_gap=longest_gap, spacing=spacing)
    return Look(*rows[0])
