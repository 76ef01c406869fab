"""Which tokens are there, and how are they checked without a query at every call?

Tokens are cached for a few seconds. After that, one statement reads all tokens again that were used meanwhile, so that
checking them costs the same whether one worker is connected or a thousand.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from pulse.model.errors import TokenNameTaken, TokenNotFound, Unavailable
from pulse.model.tokens import check_lifetime, check_token_name, hash_of, is_secret, new_secret, read_scopes
from pulse.store import tokens as store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from pulse.model.tokens import Token
    from pulse.store.connections.pool import Database

log = logging.getLogger("pulse.tokens")

CACHED_FOR = 3.0  # seconds: how late, at most, another server learns of a revocation
MAX_UNKNOWN = 10_000  # hashes of unknown tokens that are cached; a flood of them is forgotten
LOOK_UP_EVERY = 0.02  # seconds between two statements about tokens that are not cached, however many there are


class Tokens:
    """The use cases of tokens, over one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._found: dict[bytes, Token] = {}
        self._unknown: set[bytes] = set()
        self._used: set[bytes] = set()  # hashes in `_found` that were used since the last refresh
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._next_look_up: tuple[set[bytes], asyncio.Task[dict[bytes, Token]]] | None = None
        self._looking_up = asyncio.Lock()
        self._looked_up_at = float("-inf")

    async def create(self, name: str, scopes: Sequence[str], lifetime: timedelta | None = None) -> tuple[Token, str]:
        """Create a token, and return it with its secret, which is not stored and cannot be read again."""
        check_token_name(name)
        check_lifetime(lifetime)
        texts = [str(scope) for scope in read_scopes(scopes)]
        secret = new_secret()
        token = await self._database.run(
            lambda conn: store.create_token(conn, name=name, digest=hash_of(secret), scopes=texts, lifetime=lifetime)
        )
        if token is None:
            raise TokenNameTaken(name)
        return token, secret

    async def list(self) -> list[Token]:
        """Return all tokens, also revoked and expired ones, by name."""
        return await self._database.run(store.list_tokens)

    async def revoke(self, name: str) -> Token:
        """Revoke a token: here from the next call on, at other servers within seconds. To revoke it again changes
        nothing."""
        check_token_name(name)
        async with self._refreshing:  # a refresh that began before must not restore the token
            token = await self._database.run(lambda conn: store.revoke_token(conn, name=name))
            self._refreshed_at = float("-inf")
        if token is None:
            raise TokenNotFound(name)
        return token

    async def has_any(self) -> bool:
        """Tell whether any token exists. Revoked ones count: to revoke the last one must not open the doors."""
        return await self._database.run(store.has_tokens)

    async def find(self, secret: str) -> Token | None:
        """Return the token of this secret, even if it is revoked or expired, or None if there is none."""
        return await self.find_hashed(hash_of(secret)) if is_secret(secret) else None

    async def find_hashed(self, digest: bytes) -> Token | None:
        if self._is_old():
            async with self._refreshing:
                if self._is_old():
                    await self._refresh()
        token = self._found.get(digest)
        if token is None and digest not in self._unknown:
            token = await self._look_up(digest)
        if token is not None:
            self._used.add(digest)
        return token

    def _is_old(self) -> bool:
        return self._clock() - self._refreshed_at > CACHED_FOR

    async def _refresh(self) -> None:
        """Read all recently used tokens again. Without a database the cached ones stay valid, so no stream ends."""
        used = list(self._used)
        try:
            found = await self._read(used) if used else {}
        except Unavailable as error:
            log.warning("tokens cannot be read, so the cached ones stay valid: %s", error)
        else:
            self._found, self._used = found, set()
            self._unknown.clear()
        self._refreshed_at = self._clock()

    async def _look_up(self, digest: bytes) -> Token | None:
        """Read a token that is not cached, in one statement with all others that are asked for at the same time.

        A caller that sends invented tokens by the thousand costs the database no more than one statement in
        LOOK_UP_EVERY, and a valid token among them waits no longer than that.
        """
        if self._next_look_up is None:
            digests: set[bytes] = set()
            self._next_look_up = digests, asyncio.create_task(self._look_up_all(digests))
        digests, look_up = self._next_look_up
        digests.add(digest)
        return (await asyncio.shield(look_up)).get(digest)

    async def _look_up_all(self, digests: set[bytes]) -> dict[bytes, Token]:
        async with self._looking_up:
            await asyncio.sleep(max(0.0, self._looked_up_at + LOOK_UP_EVERY - self._clock()))
            self._next_look_up = None  # this one is complete; tokens from now on belong to the next one
            self._looked_up_at = self._clock()
            found = await self._read(list(digests))
        self._found |= found
        if len(self._unknown) >= MAX_UNKNOWN:
            self._unknown.clear()
        self._unknown |= digests - found.keys()
        return found

    async def _read(self, digests: Sequence[bytes]) -> dict[bytes, Token]:
        return await self._database.run(lambda conn: store.find_tokens(conn, digests=digests))
