"""Who is signed in at the dashboard? A row says so, so that a session outlives a server and can be ended anywhere.

A session is a token that was shown once. Its own secret is random and new at each sign-in, and only its hash is kept.
What was found is believed for a few seconds, as with tokens: a page and all it loads ask once.
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
BELIEVED_FOR = 3.0  # seconds
MAX_REMEMBERED = 10_000

_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The use cases of sessions, over one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._found: dict[bytes, tuple[bytes | None, float]] = {}  # the token's hash, and since when that is believed

    async def open(self, token_digest: bytes) -> str:
        """The secret of a new session."""
        secret = secrets.token_urlsafe(32)
        await self._database.run(
            lambda conn: store.open_session(conn, digest=_digest(secret), token_digest=token_digest, lifetime=LIFETIME)
        )
        return secret

    async def find(self, secret: str) -> bytes | None:
        """The hash of the token that was shown; None: there is no such session any more."""
        if not _SECRET.fullmatch(secret):
            return None
        digest = _digest(secret)
        token_digest, since = self._found.get(digest, (None, float("-inf")))
        if self._clock() - since > BELIEVED_FOR:
            token_digest = await self._database.run(lambda conn: _find(conn, digest))
            if len(self._found) >= MAX_REMEMBERED:
                self._found.clear()
            self._found[digest] = (token_digest, self._clock())
        return token_digest

    async def close(self, secret: str) -> None:
        """Here at once, elsewhere within seconds."""
        digest = _digest(secret)
        self._found.pop(digest, None)
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
