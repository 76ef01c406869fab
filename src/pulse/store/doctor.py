"""What does the database say about itself? Two of the questions need connections of their own."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg

from pulse.model.doctor.findings import (
    Ages,
    Broken,
    Clock,
    Connections,
    Durability,
    Miscount,
    Pin,
    ServerFacts,
    TableFacts,
)
from pulse.store.connections.notifications import send_notification
from pulse.store.connections.pool import LOST, connect, translate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.model.jobs import JobStatus
    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection, Database


async def read_server(conn: Connection) -> ServerFacts:
    return ServerFacts(*(await conn.rows("read_server"))[0])


async def read_durability(conn: Connection) -> Durability:
    return Durability(*(await conn.rows("read_durability"))[0])


async def read_time_source(conn: Connection) -> Clock:
    asked_at = datetime.now(UTC)
    [row] = await conn.rows("read_time_source")
    return Clock(row["source"], row["now"], asked_at, datetime.now(UTC))


async def list_pins(conn: Connection, *, limit: int) -> list[Pin]:
    return [Pin(*row) for row in await conn.rows("list_pins", limit=limit)]


async def list_tables(conn: Connection) -> list[TableFacts]:
    return [TableFacts(*row) for row in await conn.rows("list_tables")]


async def count_connections(conn: Connection) -> Connections:
    return Connections(*(await conn.rows("count_connections"))[0])


async def read_queue_usage(conn: Connection) -> float:
    return float((await conn.rows("read_queue_usage"))[0]["usage"])


async def read_ages(conn: Connection) -> Ages:
    return Ages(*(await conn.rows("read_ages"))[0])


async def oldest_lapsed(conn: Connection, *, buckets: Sequence[int]) -> timedelta | None:
    lapse: timedelta | None = (await conn.rows("oldest_lapsed", buckets=buckets))[0]["lapse"]
    return lapse


async def miscounts(
    conn: Connection, *, buckets: Sequence[int], statuses: Sequence[JobStatus], limit: int
) -> list[Miscount]:
    named = [status.value for status in statuses]
    return [Miscount(*row) for row in await conn.rows("miscounts", buckets=buckets, statuses=named, limit=limit)]


async def broken_schedules(conn: Connection) -> Broken | None:
    rows = await conn.rows("broken_schedules")
    return Broken(*rows[0]) if rows else None


async def zones_in_use(conn: Connection) -> list[str]:
    return sorted(row["tz"] for row in await conn.rows("zones_in_use"))


# --- with connections of their own


async def is_pooled(settings: Settings) -> bool:
    """Return whether a pooler gives connections a server process only while a transaction lasts.

    If it does, a second client that begins a transaction gets the process that answered the first client a moment ago,
    or else another process answers the first one meanwhile. Without a pooler, or with one that pools sessions, each
    client keeps its own process.
    """
    ask = "select pg_backend_pid()"
    try:
        async with AsyncExitStack() as stack:
            first, second = await _connect(settings, stack), await _connect(settings, stack)
            before = await first.fetchval(ask)
            async with second.transaction():
                others = await second.fetchval(ask)
                after = await first.fetchval(ask)
    except (*LOST, asyncpg.PostgresError) as error:
        raise translate(error, settings) from error
    return bool(others == before or after != before)


async def does_notification_arrive(database: Database, *, within: float) -> bool:
    """Return whether a notification that is sent as usual arrives at a listener."""
    settings, channel = database.settings, f"pulse.doctor.{secrets.token_hex(8)}"
    arrived = asyncio.Event()
    try:
        async with AsyncExitStack() as stack:
            listener = await _connect(settings, stack, url=settings.listen_url)
            await listener.add_listener(channel, lambda *_: arrived.set())
            await database.run(lambda conn: send_notification(conn, channel=channel, message="?"))
            async with asyncio.timeout(within):
                await arrived.wait()
    except TimeoutError:
        return False
    except (*LOST, asyncpg.PostgresError) as error:
        raise translate(error, settings) from error
    return True


async def _connect(settings: Settings, stack: AsyncExitStack, url: str | None = None) -> asyncpg.Connection[Any]:
    conn = await connect(settings, url=url, statement_cache_size=0)
    stack.callback(conn.terminate)
    return conn
