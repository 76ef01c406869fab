"""Which statements list jobs, page by page?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncpg import Record

    from pulse.store.connections.pool import Connection


async def list_ids(conn: Connection, statement: str, **parameters: object) -> list[Record]:
    """Run one of the list_… statements. Return the ids that match, and last the row where the scan ended."""
    return await conn.rows(statement, **parameters)
