"""How is a test database created, emptied, and its clock moved?

This is only for databases and schemas that were created for tests.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from pulse.store.connections.pool import LOST, connect, translate
from pulse.store.schema.migrate import migrate
from pulse.store.statements import in_schema

if TYPE_CHECKING:
    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection

KEPT = ("migrations", "installation", "secrets", "wake_secrets")  # tables with rows that migrations insert
# DELETE takes a millisecond as long as there are few rows; TRUNCATE takes twenty, to make new files for every index.
EMPTY = """
do $$
declare
    name text;
begin
    set local lock_timeout = '5s';
    for name in select tablename from pg_tables where schemaname = '{schema}' and tablename <> all ('{{{kept}}}') loop
        execute format('delete from {schema}.%I', name);
    end loop;
end
$$
"""
# The clock goes on from its offset. If it stood still, an instant of the real clock would stay in the future for ever.
NOW = """
create or replace function pulse.now() returns timestamptz language sql stable parallel safe
as $$select statement_timestamp(){offset}$$
"""


async def make_database(server_url: str, name: str) -> str:
    """Create a database on this server and return its URL."""
    await _execute(server_url, f'create database "{name}"')
    return urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))


async def make_schema(settings: Settings) -> None:
    await migrate(settings)


async def drop_schema(settings: Settings) -> None:
    await _execute(str(settings.database_url), f'drop schema if exists "{settings.schema}" cascade')


async def empty(conn: Connection, *, schema: str) -> None:
    """Delete every job, and everything else that a test left in the schema."""
    await conn.execute(EMPTY.format(schema=schema, kept=",".join(KEPT)))


async def shift_time(conn: Connection, *, schema: str, by: timedelta | None) -> None:
    """Set the clock of the schema ahead of the real one by this much, or back to the real one for None."""
    offset = f" + interval '{by.total_seconds():f} seconds'" if by else ""
    await conn.execute(in_schema(NOW.format(offset=offset), schema))


async def list_waiting(conn: Connection, *, schema: str) -> list[tuple[str, str]]:
    """Return the tasks that have waiting jobs, each with the topic of these jobs."""
    sql = "select distinct task, topic from pulse.jobs where status = 'PENDING' order by task, topic"
    return [(row["task"], row["topic"]) for row in await conn.fetch(in_schema(sql, schema))]


async def _execute(url: str, sql: str) -> None:
    from pulse.settings import Settings

    try:
        conn = await connect(Settings(database_url=url))
    except (*LOST, asyncpg.PostgresError, ValueError) as error:
        raise translate(error) from error
    try:
        await conn.execute(sql)
    except (*LOST, asyncpg.PostgresError) as error:
        raise translate(error) from error
    finally:
        conn.terminate()
