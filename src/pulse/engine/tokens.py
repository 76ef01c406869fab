"""Who holds which token, and how is that known without asking the database at every call?

What was found is believed for a few seconds. After that, one statement asks again about every token that was used
meanwhile, so that looking after tokens costs the same whether one worker is connected or a thousand.
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

BELIEVED_FOR = 3.0  # seconds: how late, at most, another server learns of a revocation
MAX_REMEMBERED = 10_000  # hashes nobody knows; a flood of them is forgotten, not kept
LOOK_UP_EVERY = 0.02  # seconds between two statements about tokens that are not known yet, however many are shown


class Tokens:
    """The use cases of tokens, over one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._found: dict[bytes, Token] = {}
        self._unknown: set[bytes] = set()
        self._used: set[bytes] = set()  # of those found, since the last time all were asked about
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()
        self._next_look: tuple[set[bytes], asyncio.Task[dict[bytes, Token]]] | None = None
        self._looking_up = asyncio.Lock()
        self._looked_up_at = float("-inf")

    async def create(self, name: str, scopes: Sequence[str], lifetime: timedelta | None = None) -> tuple[Token, str]:
        """The token and its secret, which is told this once and kept nowhere."""
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
        """All there ever were, by name."""
        return await self._database.run(store.list_tokens)

    async def revoke(self, name: str) -> Token:
        """Here from the next call on; elsewhere within seconds. Revoking twice changes nothing."""
        check_token_name(name)
        async with self._asking:  # an answer from before must not be taken for one from after
            token = await self._database.run(lambda conn: store.revoke_token(conn, name=name))
            self._asked_at = float("-inf")
        if token is None:
            raise TokenNotFound(name)
        return token

    async def is_anything_there(self) -> bool:
        """Whether there ever was a token. Also if all are revoked: that must close a door, not open it."""
        return await self._database.run(store.has_tokens)

    async def find(self, secret: str) -> Token | None:
        """The token of this secret, also if it is revoked or expired; None if there never was one."""
        return await self.find_hashed(hash_of(secret)) if is_secret(secret) else None

    async def find_hashed(self, digest: bytes) -> Token | None:
        if self._is_old():
            async with self._asking:
                if self._is_old():
                    await self._ask_again()
        found = self._found.get(digest)
        if found is None and digest not in self._unknown:
            found = await self._look_up(digest)
        if found is not None:
            self._used.add(digest)
        return found

    def _is_old(self) -> bool:
        return self._clock() - self._asked_at > BELIEVED_FOR

    async def _ask_again(self) -> None:
        """About all that were used of late. Without a database what was true stays so: it ends no stream."""
        used = list(self._used)
        try:
            found = await self._read(used) if used else {}
        except Unavailable as error:
            log.warning("tokens cannot be looked up, so those known are believed: %s", error)
        else:
            self._found, self._used = found, set()
            self._unknown.clear()
        self._asked_at = self._clock()

    async def _look_up(self, digest: bytes) -> Token | None:
        """Ask the database about a token that is not known yet, in one statement with all others of this moment.

        Whoever shows made-up tokens by the thousand costs the database no more than one statement every so often, and
        a right token among them waits no longer than that.
        """
        if self._next_look is None:
            digests: set[bytes] = set()
            self._next_look = digests, asyncio.create_task(self._look_up_all(digests))
        digests, look = self._next_look
        digests.add(digest)
        return (await asyncio.shield(look)).get(digest)

    async def _look_up_all(self, digests: set[bytes]) -> dict[bytes, Token]:
        async with self._looking_up:
            await asyncio.sleep(max(0.0, self._looked_up_at + LOOK_UP_EVERY - self._clock()))
            self._next_look = None  # it is complete: whoever comes from now on is asked about by the next one
            self._looked_up_at = self._clock()
            found = await self._read(list(digests))
        self._found |= found
        if len(self._unknown) >= MAX_REMEMBERED:
            self._unknown.clear()
        self._unknown |= digests - found.keys()
        return found

    async def _read(self, digests: Sequence[bytes]) -> dict[bytes, Token]:
        return await self._database.run(lambda conn: store.find_tokens(conn, digests=digests))
