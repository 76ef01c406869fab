"""Did a wake arrive, and what did it say? An endpoint that shows whatever comes, for those who have none yet.

It checks signatures as a receiver should, but takes a wake all the same: it is there to look at, not to guard.
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
LARGEST = 1 << 20  # bytes of a body; a wake has at most 64 KiB of payload
BELIEVED_FOR = 10.0  # seconds: as long as a process goes on signing with secrets it has read

MAX_OWNERS = 100  # whose secrets are kept for that long
Secrets = Callable[[str | None], Awaitable[Sequence[str]]]
"""Reads the secrets of an owner, or of the default owner if none is given."""


class Signature(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNCHECKED = "unchecked"  # there is no secret to check it with


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A wake as it came."""

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
    why: str | None  # it is invalid or unchecked
    answered: int  # our status


class Echo:
    """Shows what arrives. Without `secrets` signatures are not checked."""

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
        self._known: dict[str | None, tuple[float, Sequence[str]]] = {}  # by owner, with the time of reading

    async def answer(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(text="Pulse echo: wakes that are sent here by POST are shown on its terminal.\n")
        body = await request.read()
        signature, why = await self._check(body, request)
        shown = self._redaction.json(body.decode(errors="replace")).encode() if self._redaction else body
        self._show(_arrival(shown, request, signature, why, self._status))
        return web.json_response({"echo": signature.value}, status=self._status)

    async def _check(self, body: bytes, request: web.Request) -> tuple[Signature, str | None]:
        if self._secrets is None:
            return Signature.UNCHECKED, "there is no secret to check it with"
        owner = _text(_read_body(body).get("owner"))  # as it says of itself: a stranger's secret proves nothing
        try:
            for attempt in range(2):  # the secret may have been replaced since it was read
                known = await self._read(self._secrets, owner, is_again=attempt > 0)
                try:
                    verify(body, dict(request.headers), known)
                except InvalidSignature as error:
                    why = str(error)
                else:
                    return Signature.VALID, None
        except PulseError as error:
            return Signature.UNCHECKED, f"the secret cannot be read: {error}"
        return Signature.INVALID, why

    async def _read(self, secrets: Secrets, owner: str | None, *, is_again: bool) -> Sequence[str]:
        read_at, known = self._known.get(owner, (float("-inf"), ()))
        if is_again or time.monotonic() - read_at > BELIEVED_FOR:
            known = await secrets(owner)
            if len(self._known) >= MAX_OWNERS:
                self._known.clear()
            self._known[owner] = time.monotonic(), known
        return known


@asynccontextmanager
async def serve_echo(echo: Echo, *, port: int) -> AsyncIterator[int]:
    """Until the block ends; hands out the port, which for 0 is any free one. On this machine only."""
    app = web.Application(client_max_size=LARGEST)
    app.router.add_route("*", "/{path:.*}", echo.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, HOST, port).start()
        except (OSError, OverflowError) as error:
            raise InvalidOption("port", port, f"be free to listen on ({error})") from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _arrival(body: bytes, request: web.Request, signature: Signature, why: str | None, status: int) -> Arrival:
    said = _read_body(body)
    return Arrival(
        at=datetime.now(UTC),
        path=request.path,
        wake_id=request.headers.get("webhook-id"),
        alarm_id=_text(said.get("alarm_id")),
        occurrence=_text(said.get("occurrence")),
        owner=_text(said.get("owner")),
        label=_text(said.get("label")),
        payload=said.get("payload"),
        attempt=said["attempt"] if isinstance(said.get("attempt"), int) else None,
        signature=signature,
        why=why,
        answered=status,
    )


def _read_body(body: bytes) -> dict[str, Any]:
    """What is no wake is shown as if all of it were the payload."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {"payload": body.decode(errors="replace")}
    return said if isinstance(said, dict) and "alarm_id" in said else {"payload": said}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
