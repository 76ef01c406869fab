"""Did a wake arrive, and what was in it? This endpoint shows every wake, for people who have no endpoint yet.

It checks signatures as a receiver should, but it also accepts a wake whose signature is invalid: it shows wakes, and
acts on none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec
from aiohttp import web

from pulse.model.errors import InvalidOption, InvalidSignature, PulseError
from pulse.model.redaction import NO_REDACTION, Redaction
from pulse.webhooks import verify

log = logging.getLogger("pulse.echo")

HOST = "127.0.0.1"
MAX_BODY = 1 << 20  # bytes; the payload of a wake has at most 64 KiB
CACHED_FOR = 10.0  # seconds: a delivering process caches the secrets for as long
MAX_OWNERS = 100  # whose secrets are cached
Secrets = Callable[[str | None], Awaitable[Sequence[str]]]
"""Reads the secrets of an owner, or of the default owner if none is given."""


class Signature(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNCHECKED = "unchecked"  # the secret is not known, or cannot be read


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A request that arrived, usually a wake."""

    at: datetime
    path: str
    wake_id: str | None
    alarm_id: str | None
    occurrence: str | None
    owner: str | None
    label: str | None
    payload: Any
    attempt: int | None
    signature: Signature
    why: str | None  # why the signature is invalid or unchecked
    answered: int  # the HTTP status that we answered


class Echo:
    """Shows every request that arrives. Without `secrets` it does not check signatures."""

    def __init__(
        self,
        show: Callable[[Arrival], None],
        *,
        secrets: Secrets | None = None,
        status: int = 200,
        redaction: Redaction = NO_REDACTION,
    ) -> None:
        self._show = show
        self._secrets = secrets
        self._status = status
        self._redaction = redaction
        self._cache: dict[str | None, tuple[float, Sequence[str]]] = {}  # by owner: the time of reading, the secrets

    async def answer(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(text="Pulse echo: send wakes here by POST, and they are shown on its terminal.\n")
        body = await request.read()
        signature, why = await self._check(body, request)
        shown = self._redaction.json(body.decode(errors="replace")).encode() if self._redaction else body
        self._show(_arrival(shown, request, signature, why, self._status))
        return web.json_response({"echo": signature.value}, status=self._status)

    async def _check(self, body: bytes, request: web.Request) -> tuple[Signature, str | None]:
        if self._secrets is None:
            return Signature.UNCHECKED, "there is no secret to check it with"
        # The owner that the wake names. Naming another owner gains nothing: the secret must be that owner's.
        owner = _text(_read_body(body).get("owner"))
        try:
            for attempt in range(2):  # the secret may have been replaced since it was read
                found = await self._read_secrets(self._secrets, owner, is_again=attempt > 0)
                try:
                    verify(body, dict(request.headers), found)
                except InvalidSignature as error:
                    why = str(error)
                else:
                    return Signature.VALID, None
        except PulseError as error:
            return Signature.UNCHECKED, f"the secret cannot be read: {error}"
        return Signature.INVALID, why

    async def _read_secrets(self, secrets: Secrets, owner: str | None, *, is_again: bool) -> Sequence[str]:
        read_at, found = self._cache.get(owner, (float("-inf"), ()))
        if is_again or time.monotonic() - read_at > CACHED_FOR:
            found = await secrets(owner)
            if len(self._cache) >= MAX_OWNERS:
                self._cache.clear()
            self._cache[owner] = time.monotonic(), found
        return found


@asynccontextmanager
async def serve_echo(echo: Echo, *, port: int) -> AsyncIterator[int]:
    """Serve the endpoint on this machine until the block ends, and yield its port. Port 0 means any free port."""
    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_route("*", "/{path:.*}", echo.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except (OSError, OverflowError) as error:
            raise InvalidOption("port", port, f"be one that this machine can listen on ({error})") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _arrival(body: bytes, request: web.Request, signature: Signature, why: str | None, status: int) -> Arrival:
    wake = _read_body(body)
    return Arrival(
        at=datetime.now(UTC),
        path=request.path,
        wake_id=request.headers.get("webhook-id"),
        alarm_id=_text(wake.get("alarm_id")),
        occurrence=_text(wake.get("occurrence")),
        owner=_text(wake.get("owner")),
        label=_text(wake.get("label")),
        payload=wake.get("payload"),
        attempt=wake["attempt"] if isinstance(wake.get("attempt"), int) else None,
        signature=signature,
        why=why,
        answered=status,
    )


def _read_body(body: bytes) -> dict[str, Any]:
    """Return the fields of a wake. Of any other body, return all of it as the payload."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {"payload": body.decode(errors="replace")}
    return found if isinstance(found, dict) and "alarm_id" in found else {"payload": found}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
