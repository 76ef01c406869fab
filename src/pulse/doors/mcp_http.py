"""Who may speak MCP over HTTP? Whoever shows a token, or, where there are none, whoever is on this machine.

A page in a browser on this machine reaches loopback too, by a name of its own that it has turned there. So requests
that call us by a name we do not have are refused, as are those of foreign pages.
"""

from __future__ import annotations

import hmac
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from pulse.doors.access import Gate, caller
from pulse.model.errors import AccessDenied, InvalidSettings, PulseError, Unauthenticated, Unavailable
from pulse.model.tokens import ADMIN, Token

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mcp.server.lowlevel.server import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

    from pulse.doors.access import Caller
    from pulse.engine.tokens import Tokens
    from pulse.model.server_url import Address

PATH = "/mcp"
LARGEST = 2 << 20  # bytes of a request: a job's payload may have one MiB
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
GRACE = 3  # seconds for requests under way


def check_mcp_exposure(address: Address, *, has_tokens: bool) -> None:
    """Refuse to let strangers in: whoever can set an alarm can have URLs called."""
    if address.is_loopback or has_tokens:
        return
    raise InvalidSettings(
        f"listening on {address} would let everybody who can reach this machine set alarms and submit jobs: make a "
        "token first (`pulse tokens create`), or listen on 127.0.0.1"
    )


def make_app(server: Server[Any], gate: McpGate, *, host: str, names: Sequence[str] = ()) -> ASGIApp:
    """`names` are those by which it may be called, beside the address it listens on and this machine's own."""
    hosts = [*LOOPBACK, f"[{host}]" if ":" in host else host, *names]
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,  # nothing is kept between two requests, so there is no session to steal or to lose
        json_response=True,
        max_request_body_size=LARGEST,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=[form for name in hosts for form in (name, f"{name}:*")],
            allowed_origins=[
                f"{scheme}://{form}" for scheme in ("http", "https") for name in hosts for form in (name, f"{name}:*")
            ],
        ),
    )
    return Front(app, gate)


class Front:
    """Nobody gets past it without the token that is asked for."""

    def __init__(self, app: ASGIApp, gate: McpGate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
        try:
            found = await self._gate.recognize(shown)
        except PulseError as error:
            await _refuse(error, send)
            return
        token = caller.set(found)
        try:
            await self._app(scope, receive, send)
        finally:
            caller.reset(token)


class OwnToken:
    """Behind a server that asks for tokens, we have one of them: who shows that very one may use it through us."""

    def __init__(self, secret: str, *, owner: str) -> None:
        self._secret = secret
        # What it may do is the server's to say.
        self._token = Token(owner, (ADMIN,), datetime.now(UTC), None, None, is_expired=False)

    async def find(self, secret: str) -> Token | None:
        return self._token if hmac.compare_digest(secret.encode(), self._secret.encode()) else None


class McpGate(Gate):
    """Who it is, is known before a request is read; what it may do, when the tool is known that it calls."""

    def __init__(self, tokens: Tokens | OwnToken | None, *, calls_per_second: float) -> None:
        super().__init__(cast("Any", tokens), calls_per_second=calls_per_second)

    async def recognize(self, shown: Sequence[str]) -> Caller:
        found = await self._authenticate(shown, "header")
        if not found.is_trusted:
            self._rate.take(found.name)
        return found


class HttpServer(uvicorn.Server):
    """Signals are the command's to hear: it has a database to let go of as well."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
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
    status = 503 if isinstance(error, Unavailable) else status
    body = json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="pulse"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
