"""Which statements keep the sessions of people who are signed in?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from datetime import timedelta

    from pulse.store.connections.pool import Connection


class SessionFound(NamedTuple):
    token_digest: bytes
    is_to_note: bool


async def open_session(conn: Connection, *, digest: bytes, token_digest: bytes, lifetime: timedelta) -> None:
    await conn.rows("open_session", digest=digest, token_digest=token_digest, lifetime=lifetime)


async def find_session(conn: Connection, *, digest: bytes, idle: timedelta) -> SessionFound | None:
    rows = await conn.rows("find_session", digest=digest, idle=idle)
    return SessionFound(*rows[0]) if rows else None


async def note_session(conn: Connection, *, digest: bytes) -> None:
    await conn.rows("note_session", digest=digest)


async def close_session(conn: Connection, *, digest: bytes) -> None:
    await conn.rows("close_session", digest=digest)


async def prune_sessions(conn: Connection, *, idle: timedelta) -> None:
    await conn.rows("prune_sessions", idle=idle)
