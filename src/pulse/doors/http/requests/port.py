"""Where does the HTTP server listen? uvicorn serves our own socket, in the event loop of the rest of the server.

uvicorn's main loop does not run: it wakes up ten times a second to check for signals and to format the date, and a
server with nothing to do should do nothing.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from pulse.doors.http.requests.protocol import Connection
from pulse.model.errors import InvalidSettings
from pulse.model.network.server_url import HTTP_PORT, Address, parse_listen

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from pulse.settings import Settings

BACKLOG = 2048
MIN_GRACE = 0.25  # seconds in which idle connections close


class HttpPort:
    """One listening HTTP server. Start it in the event loop that is to serve it."""

    def __init__(self, settings: Settings, app: ASGIApp, *, end_streams: Callable[[], None] = lambda: None) -> None:
        """Create a server for this application. `end_streams` ends the responses that would never end themselves."""
        self._end_streams = end_streams
        self.address = parse_listen(settings.http_listen, HTTP_PORT)  # has the real port once the server is started
        self.scheme = "http" if settings.tls_cert is None else "https"
        config = uvicorn.Config(
            app,
            http=partial(Connection, deadline=settings.http_deadline.total_seconds()),  # type: ignore[arg-type]  # it is only called
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=BACKLOG,
            **_tls(settings),
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        self._socket: socket.socket | None = None
        self._is_stopped = False

    async def start(self) -> None:
        self._socket = _bind(self.address)
        self.address = self.address._replace(port=self._socket.getsockname()[1])
        await self._server.startup(sockets=[self._socket])

    async def stop(self, grace: float) -> None:
        """Accept no more requests, and end those still running after `grace` seconds. Call it again to shorten that."""
        if self._socket is None or self._is_stopped:
            return
        self._end_streams()
        self._server.config.timeout_graceful_shutdown = max(grace, MIN_GRACE)  # type: ignore[assignment]  # a fraction will do
        await self._server.shutdown(sockets=[self._socket])
        await asyncio.gather(*self._server.server_state.tasks, return_exceptions=True)
        self._is_stopped = True


def _tls(settings: Settings) -> dict[str, Any]:
    """Return the options for the certificates of the gRPC port, which has checked them."""
    if settings.tls_cert is None:
        return {}
    found: dict[str, Any] = {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}
    if settings.tls_client_ca is not None:
        found |= {"ssl_ca_certs": str(settings.tls_client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found


def send_at_once(listener: socket.socket) -> None:
    """Let each connection of this listener send small packets at once.

    The head and the body of a response are two packets. Without this option the second waits until the client has
    acknowledged the first, which takes 40 ms. asyncio sets the option only on sockets that were created with their
    protocol.
    """
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _bind(address: Address) -> socket.socket:
    try:
        family, kind, _, _, socket_address = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            send_at_once(found)
            found.bind(socket_address)
            found.setblocking(False)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise InvalidSettings(
            f"cannot listen on {address} for HTTP ({error.strerror or error}): choose another with --http-listen or "
            "PULSE_HTTP_LISTEN, or leave it empty to serve no HTTP"
        ) from error
    return found
