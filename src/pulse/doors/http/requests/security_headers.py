"""Which requests are refused because of their `Host` or `Origin`, and which headers does every response have?

Without tokens everybody who reaches the port may do everything, and so may any page in a browser on this machine. Two
headers tell the request of such a page from one that a person makes: `Host` has the page's own name, if that name was
made to resolve to this machine (DNS rebinding), and `Origin` has the page's address.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from pulse.doors.http.errors import HttpRefusal, json_error
from pulse.doors.http.requests.protocol import LINGER
from pulse.model.network.server_url import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROBED_PATHS = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})  # probes send an address as Host, not a name
ON_EVERY_RESPONSE = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
OVER_TLS = {"strict-transport-security": "max-age=31536000"}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# A name or an address, as browsers and clients send it, without any character that has a meaning in a URL.
HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{0,5})?")


class SecurityMiddleware:
    """Refuses requests by their `Host` and `Origin`, and passes the others on as an `Exchange`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        has_tokens: bool,
        has_certificates: bool,
        deadline: float,
        hosts: frozenset[str] = frozenset(),
    ) -> None:
        self._app = app
        self._has_tokens = has_tokens
        self._deadline = deadline  # seconds, for a body
        self._hosts = hosts  # empty: any host, if there are tokens
        self._is_local = not has_tokens and not has_certificates  # such a server starts only on loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._deadline)
        try:
            self._check(exchange.headers, scope["path"], scope["method"])
        except HttpRefusal as error:
            await json_error(error, scope["path"])(scope, exchange.receive, exchange.send)
            return
        # Routes match the path before it is decoded, so that a name with a slash, %2F, is one segment and not two.
        raw = scope["raw_path"].decode("latin-1")
        await self._app({**scope, "path": raw}, exchange.receive, exchange.send)

    def _check(self, headers: Headers, path: str, method: str) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts and path not in PROBED_PATHS and _name_of(host) not in self._hosts:
            raise HttpRefusal(403, "forbidden_host", f"this server has no host name {host!r}: see PULSE_HTTP_HOSTS")
        if self._is_local and not _is_loopback(host):
            raise HttpRefusal(
                403, "forbidden_host", f"without tokens, the host must be localhost or a loopback address, not {host!r}"
            )
        # Another site may link to our pages, but a request that changes something must come from our own pages.
        is_allowed = method in SAFE_METHODS or headers.get("sec-fetch-site") in (None, "same-origin", "none")
        if not self._has_tokens and (is_foreign(origin, host) or not is_allowed):
            raise HttpRefusal(403, "forbidden_origin", "without tokens, requests from pages of other sites are refused")


class Exchange:
    """One request and its response. It knows whether the whole body has arrived, and how long to wait for it.

    A client that is refused before its whole body has arrived could go on sending for ever, so its connection is closed
    after the response. It is not closed at once: most clients read nothing until they have sent everything, and would
    only see a broken connection.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, deadline: float) -> None:
        self._deadline, self._until = deadline, asyncio.get_running_loop().time() + deadline
        self._is_answered = False
        self._is_encrypted = scope["scheme"] == "https"
        self.headers = Headers(scope=scope)
        self._receive, self._send = receive, send
        self._has_all = self.headers.get("content-length", "0") == "0" and "transfer-encoding" not in self.headers

    async def receive(self) -> Message:
        """Return the next part of the body, or raise once the deadline has passed.

        After the response the deadline does not matter: this then only tells when the client disconnects.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if self._has_all else self._until):
                return await self._next()
        if not self._is_answered:
            raise HttpRefusal(408, "too_slow", f"the body took longer than {self._deadline:g} s: send it faster")
        return await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._has_all = self._has_all or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_answered = True
            headers = MutableHeaders(scope=message)
            for name, value in (ON_EVERY_RESPONSE | (OVER_TLS if self._is_encrypted else {})).items():
                headers.setdefault(name, value)
            headers["date"] = formatdate(usegmt=True)
            if not self._has_all:
                headers["connection"] = "close"
        elif not self._has_all and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body"}
        await self._send(message)

    async def _linger(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while not self._has_all:
                    await self._next()


def is_foreign(origin: str | None, host: str) -> bool:
    """Tell whether a page of another site sends the request. An address that cannot be read is foreign."""
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:
        return True


def _is_loopback(host: str) -> bool:
    match = HOST.fullmatch(host)
    return match is not None and Address(match["name"].strip("[]").lower(), 0).is_loopback


def _name_of(host: str) -> str:
    return re.sub(r":\d*$", "", host.lower())
