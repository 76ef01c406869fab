"""Does the schema still suit this release? A process asks again and again, over a connection that is open anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.errors import SchemaMismatch
from pulse.store.schema.migrate import SchemaState, mismatch

if TYPE_CHECKING:
    from pulse.store.connections.pool import Connection


async def read_schema(conn: Connection) -> SchemaState:
    [row] = await conn.rows("read_schema")
    return SchemaState(row["version"], row["works_from"], 0)


async def check_schema(conn: Connection, schema: str) -> None:
    if problem := mismatch(await read_schema(conn), schema):
        raise SchemaMismatch(problem)
