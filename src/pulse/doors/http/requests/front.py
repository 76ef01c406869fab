"""Which requests are none of ours to answer, and what do all answers carry?

Without tokens whoever reaches the port may do everything, and a browser on this machine reaches it for any page it
shows. Two things tell such a request from a person's own: a page's own name in `Host`, if its DNS was turned to this
machine, and its address in `Origin`.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from pulse.doors.http.errors import Refused, answer_to
from pulse.doors.http.requests.protocol import LINGER
from pulse.model.network.server_url import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOR_PROBES = frozenset({"/livez", "/readyz", "/healthz", "/metrics"})  # which come by address
ON_EVERY_ANSWER = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
OVER_TLS = {"strict-transport-security": "max-age=31536000"}
READING = frozenset({"GET", "HEAD", "OPTIONS"})
# What browsers and clients send as Host: a name or an address, and nothing that a parser of URLs could take apart.
HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{0,5})?")


class Front:
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
        self._hosts = hosts  # none: any, if there are tokens
        self._is_local = not has_tokens and not has_certificates  # it listens on loopback, or would not have started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._deadline)
        try:
            self._check(exchange.headers, scope["path"], scope["method"])
        except Refused as error:
            await answer_to(error, scope["path"])(scope, exchange.receive, exchange.send)
            return
        # Matched as it was sent: a name with a slash, %2F, is one segment and not two.
        raw = scope["raw_path"].decode("latin-1")
        await self._app({**scope, "path": raw}, exchange.receive, exchange.send)

    def _check(self, headers: Headers, path: str, method: str) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._hosts and path not in FOR_PROBES and _name_of(host) not in self._hosts:
            raise Refused(403, "forbidden_host", f"this server is not asked by the name {host!r}: see PULSE_HTTP_HOSTS")
        if self._is_local and not _is_loopback(host):
            raise Refused(
                403, "forbidden_host", f"without tokens, only localhost and loopback addresses are served, not {host!r}"
            )
        # A link on another site may lead here; whatever changes something must come from here.
        is_led = method in READING or headers.get("sec-fetch-site") in (None, "same-origin", "none")
        if not self._has_tokens and (is_foreign(origin, host) or not is_led):
            raise Refused(403, "forbidden_origin", "without tokens, pages of other sites are not served")


class Exchange:
    """One request and its answer. It knows whether the whole body has come, and for how long it is waited for.

    Whoever is refused before that could go on sending for ever, so the connection is closed behind the answer: but not
    at once, since most clients read nothing until they have sent everything, and would find only a broken connection.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, deadline: float) -> None:
        self._deadline, self._until = deadline, asyncio.get_running_loop().time() + deadline
        self._is_answered = False
        self._is_encrypted = scope["scheme"] == "https"
        self.headers = Headers(scope=scope)
        self._receive, self._send = receive, send
        self._has_all = self.headers.get("content-length", "0") == "0" and "transfer-encoding" not in self.headers

    async def receive(self) -> Message:
        """The body, until the deadline; of one who is answered already it only matters whether they are still there."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if self._has_all else self._until):
                return await self._next()
        if not self._is_answered:
            raise Refused(408, "too_slow", f"the body took longer than {self._deadline:g} s: send it faster")
        return await self._next()

    async def _next(self) -> Message:
        message = await self._receive()
        self._has_all = self._has_all or not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._is_answered = True
            headers = MutableHeaders(scope=message)
            for name, value in (ON_EVERY_ANSWER | (OVER_TLS if self._is_encrypted else {})).items():
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
    """Whether a page of another site asks; one whose address cannot be read is."""
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != host.lower()
    except ValueError:
        return True


def _is_loopback(host: str) -> bool:
    read = HOST.fullmatch(host)
    return read is not None and Address(read["name"].strip("[]").lower(), 0).is_loopback


def _name_of(host: str) -> str:
    return re.sub(r":\d*$", "", host.lower())
