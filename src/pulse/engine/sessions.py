"""Who is signed in at the dashboard? Each session is a row, so that it outlives a server and can be ended at any.

A session stands for a token that was given at sign-in. Its own secret is random and new at each sign-in, and only its
hash is stored. Sessions are cached for a few seconds, like tokens: a page and everything it loads need one query.
"""

from __future__ import annotations

import re
import secrets
import time
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from pulse.store import sessions as store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.store.connections.pool import Connection, Database

IDLE = timedelta(hours=12)
LIFETIME = timedelta(days=7)
CACHED_FOR = 3.0  # seconds
MAX_CACHED = 10_000

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The use cases of sessions, over one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._cache: dict[bytes, tuple[bytes | None, float]] = {}  # the token's hash, and when it was read

    async def open(self, token_digest: bytes) -> str:
        """Open a session, and return its secret."""
        secret = secrets.token_urlsafe(32)
        await self._database.run(
            lambda conn: store.open_session(conn, digest=_digest(secret), token_digest=token_digest, lifetime=LIFETIME)
        )
        return secret

    async def find(self, secret: str) -> bytes | None:
        """Return the hash of the token that the session stands for, or None if the session has ended."""
        if not _SECRET.fullmatch(secret):
            return None
        digest = _digest(secret)
        token_digest, read_at = self._cache.get(digest, (None, float("-inf")))
        if self._clock() - read_at > CACHED_FOR:
            token_digest = await self._database.run(lambda conn: _find(conn, digest))
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[digest] = (token_digest, self._clock())
        return token_digest

    async def close(self, secret: str) -> None:
        """End a session: here at once, at other servers within seconds."""
        digest = _digest(secret)
        self._cache.pop(digest, None)
        await self._database.run(lambda conn: store.close_session(conn, digest=digest))


async def _find(conn: Connection, digest: bytes) -> bytes | None:
    found = await store.find_session(conn, digest=digest, idle=IDLE)
    if found is None:
        return None
    if found.is_to_note:
        await store.note_session(conn, digest=digest)
    return found.token_digest


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
