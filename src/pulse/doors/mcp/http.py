"""Who may use MCP over HTTP? Callers with a token, or, if there are no tokens, every program on this machine.

A page in a browser on this machine can reach loopback, too, by making its own host name resolve to it (DNS rebinding).
So requests with a host name that is not ours are refused, and so are requests of foreign pages.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from pulse.doors.access import Gate, caller
from pulse.doors.http.requests.protocol import Connection
from pulse.model.errors import (
    AccessDenied,
    InvalidInput,
    InvalidPayload,
    InvalidSettings,
    PulseError,
    Unauthenticated,
    Unavailable,
)
from pulse.model.text import count_values
from pulse.model.tokens import ADMIN, Token

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcp.server.lowlevel.server import Server
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pulse.doors.access import Caller
    from pulse.engine.tokens import Tokens
    from pulse.model.network.server_url import Address

PATH = "/mcp"
MAX_BODY = 2 << 20  # bytes of a request: a job's payload may have one MiB
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
MAX_VALUES = 50_000  # of a request: each of them is built several times
GRACE = 3  # seconds for running requests
DEADLINE = 60.0  # seconds for the head of a request, and as many for its body


def check_mcp_exposure(address: Address, *, has_tokens: bool) -> None:
    """Refuse to listen beyond loopback without tokens: everybody who can set an alarm can have URLs called."""
    if address.is_loopback or has_tokens:
        return
    raise InvalidSettings(
        f"listening on {address} would let everybody who can reach this machine set alarms and submit jobs: make a "
        "token first (`pulse tokens create`), or listen on 127.0.0.1"
    )


def make_app(
    server: Server[Any], gate: McpGate, *, host: str, names: Sequence[str] = (), deadline: float = DEADLINE
) -> ASGIApp:
    """Return the application. It accepts the host names in `names`, beside the address it listens on and loopback."""
    hosts = [*LOOPBACK, f"[{host}]" if ":" in host else host, *names]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,  # nothing is kept between requests, so there is no session to steal or to lose
        json_response=True,
        max_request_body_size=MAX_BODY,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[form for name in hosts for form in (name, f"{name}:*")],
            allowed_origins=[
                f"{scheme}://{form}" for scheme in ("http", "https") for name in hosts for form in (name, f"{name}:*")
            ],
        ),
    )
    return GateMiddleware(app, gate, deadline)


class GateMiddleware:
    """Refuses requests that the gate does not admit, and bodies that are too slow or too large."""

    def __init__(self, app: ASGIApp, gate: McpGate, deadline: float) -> None:
        self._app = app
        self._gate = gate
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        credentials = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        try:
            found = await self._gate.recognize(credentials)
            body = await self._read(receive)
        except PulseError as error:
            await _refuse(error, send)
            return
        token = caller.set(found)
        try:
            await self._app(scope, _receive_again(body, receive), send)
        finally:
            caller.reset(token)

    async def _read(self, receive: Receive) -> bytes:
        """Read the whole body, and check it before anything is built from it."""
        body, has_more = bytearray(), True
        try:
            async with asyncio.timeout(self._deadline):
                while has_more and len(body) <= MAX_BODY:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise InvalidInput("the client disconnected before the end of the body")
                    body += message.get("body", b"")
                    has_more = message.get("more_body", False)
        except TimeoutError:
            raise TooSlow(f"the body took longer than {self._deadline:g} s: send it faster") from None
        if len(body) > MAX_BODY:
            raise InvalidPayload(f"the request is larger than {MAX_BODY >> 20} MiB")
        _check_values(bytes(body))
        return bytes(body)


class TooSlow(InvalidInput):
    code = "too_slow"


def _check_values(body: bytes) -> None:
    """Refuse a body with too many values. A body that is not JSON is refused later, when it is read."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        found = count_values(body.decode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if found > MAX_VALUES:
        raise InvalidPayload(f"the request must have at most {MAX_VALUES:,} values, not {found:,}")


def _receive_again(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives the body that was read already, and then further messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    return next_message


class OwnToken:
    """The one token that is known in front of a server with tokens: ours. A caller who shows it may use that server
    through us."""

    def __init__(self, secret: str, *, owner: str) -> None:
        self._secret = secret
        # The server checks what the token may do, so everything is allowed here.
        self._token = Token(owner, (ADMIN,), datetime.now(UTC), None, None, is_expired=False)

    async def find(self, secret: str) -> Token | None:
        return self._token if hmac.compare_digest(secret.encode(), self._secret.encode()) else None


class McpGate(Gate):
    """A gate that recognizes the caller before a request is read. The tool that the request calls checks the rights."""

    def __init__(self, tokens: Tokens | OwnToken | None, *, calls_per_second: float) -> None:
        super().__init__(cast("Any", tokens), calls_per_second=calls_per_second)

    async def recognize(self, credentials: Sequence[str]) -> Caller:
        found = await self._authenticate(credentials, "header")
        if not found.is_trusted:
            self._rate.take(found.name)
        return found


class HttpServer(uvicorn.Server):
    """A uvicorn server that handles no signals: the command does, since it has a database to close as well."""

    def __init__(self, app: ASGIApp, *, deadline: float = DEADLINE) -> None:
        config = uvicorn.Config(
            app,
            http=partial(Connection, deadline=deadline),  # type: ignore[arg-type]  # it is only called
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _refuse(error: PulseError, send: Send) -> None:
    status = 401 if isinstance(error, Unauthenticated) else 403 if isinstance(error, AccessDenied) else 429
    status = 503 if isinstance(error, Unavailable) else 400 if isinstance(error, InvalidInput) else status
    status = 413 if isinstance(error, InvalidPayload) else 408 if isinstance(error, TooSlow) else status
    body = json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="pulse"'))
    if status in (408, 413):  # the rest of the body may never arrive
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
