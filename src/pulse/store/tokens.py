"""Which statements keep tokens, and the secrets of the installation?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.model.tokens import Token, known_scopes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from asyncpg import Record

    from pulse.store.connections.pool import Connection


async def create_token(
    conn: Connection,
    *,
    name: str,
    digest: bytes,
    scopes: Sequence[str],
    lifetime: timedelta | None,
) -> Token | None:
    """Create a token and return it, or None if another token has the name."""
    rows = await conn.rows("create_token", name=name, digest=digest, scopes=scopes, lifetime=lifetime)
    return _token(rows[0]) if rows else None


async def list_tokens(conn: Connection) -> list[Token]:
    return [_token(row) for row in await conn.rows("list_tokens")]


async def find_tokens(conn: Connection, *, digests: Sequence[bytes]) -> dict[bytes, Token]:
    """Return the tokens that exist, by their digests, including revoked and expired ones."""
    return {row["hash"]: _token(row) for row in await conn.rows("find_tokens", digests=digests)}


async def revoke_token(conn: Connection, *, name: str) -> Token | None:
    rows = await conn.rows("revoke_token", name=name)
    return _token(rows[0]) if rows else None


async def has_tokens(conn: Connection) -> bool:
    return bool((await conn.rows("has_tokens"))[0]["is_there"])


def _token(row: Record) -> Token:
    return Token(
        row["name"],
        known_scopes(row["scopes"]),
        row["created_at"],
        row["expires_at"],
        row["revoked_at"],
        row["is_expired"],
    )


async def read_secret(conn: Connection, *, name: str) -> bytes:
    """Return a random value that only this installation has."""
    return bytes((await conn.rows("read_secret", name=name))[0]["secret"])
