"""Which requests are none of ours to answer, and what do all answers carry?

Without tokens whoever reaches the port may do everything, and a browser on this machine reaches it for any page it
shows. Two things tell such a request from a person's own: a page's own name in `Host`, if its DNS was turned to this
machine, and its address in `Origin`.
"""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from pulse.doors.http.answering import Refused, answer_to
from pulse.model.server_url import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ON_EVERY_ANSWER = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


class Front:
    def __init__(self, app: ASGIApp, *, has_tokens: bool, has_certificates: bool) -> None:
        self._app = app
        self._has_tokens = has_tokens
        self._is_local = not has_tokens and not has_certificates  # it listens on loopback, or would not have started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        is_read = headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers

        async def receive_to_the_end() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                more = ON_EVERY_ANSWER | {"date": formatdate(usegmt=True)}
                # Whoever was refused before all was read could go on sending for ever.
                MutableHeaders(scope=message).update(more if is_read else more | {"connection": "close"})
            await send(message)

        try:
            self._check(headers)
        except Refused as error:
            await answer_to(error, scope["path"])(scope, receive, send_with_headers)
            return
        # Matched as it was sent: a name with a slash, %2F, is one segment and not two.
        raw = scope["raw_path"].decode("latin-1")
        await self._app({**scope, "path": raw}, receive_to_the_end, send_with_headers)

    def _check(self, headers: Headers) -> None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._is_local and not _is_loopback(host):
            raise Refused(
                403, "forbidden_host", f"without tokens, only localhost and loopback addresses are served, not {host!r}"
            )
        if not self._has_tokens and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise Refused(403, "forbidden_origin", "without tokens, pages of other sites are not served")


def _is_loopback(host: str) -> bool:
    try:
        return Address(urlsplit(f"//{host}").hostname or "", 0).is_loopback
    except ValueError:
        return False
