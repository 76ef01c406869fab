"""Where does the gRPC server listen, with which limits and which certificates?

It serves health beside the given services, and reflection where nobody needs a token. A second server on the same port
is an error: SO_REUSEPORT is off, so the two do not silently share the port.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pulse.doors.grpc.reading import TolerantServer
from pulse.model.errors import InvalidSettings
from pulse.model.network.server_url import Address, parse_listen
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pulse.settings import Settings

MAX_STREAMS = 10_000  # on one connection: as many calls as may wait for jobs at a server, since a client has only one
PACKAGE = pb.DESCRIPTOR.package
ALIVE = health_pb2.HealthCheckResponse.SERVING


class Port:
    """One listening gRPC server. Start it in the event loop that is to serve it."""

    def __init__(
        self,
        settings: Settings,
        servicers: Sequence[object],
        interceptors: Sequence[Any] = (),
        *,
        reflects: bool = True,
    ) -> None:
        self.address = parse_listen(settings.listen)  # has the real port once the server is started
        self._tls = read_tls(settings)
        self._server = grpc.aio.server(interceptors=list(interceptors), options=_options(settings))
        self._health = health.aio.HealthServicer()
        self._services = [name for servicer in servicers for name in _add(servicer, self._server)]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if reflects:
            served = [*self._services, health.SERVICE_NAME, reflection.SERVICE_NAME]
            reflection.enable_server_reflection(served, self._server)

    async def start(self) -> None:
        for name in self._services:
            await self._health.set(name, ALIVE)
        self.address = self.address._replace(port=self._bind())
        await self._server.start()

    async def drain(self) -> None:
        """Report NOT_SERVING to load balancers, since this server is about to stop. It still answers calls."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace: float) -> None:
        """Accept no more calls, and end those still running after `grace` seconds."""
        await self._server.stop(grace)

    def _bind(self) -> int:
        _try_to_bind(self.address)  # gRPC would say that binding failed, but not why
        try:
            if self._tls is None:
                return self._server.add_insecure_port(str(self.address))
            return self._server.add_secure_port(str(self.address), self._tls.credentials())
        except RuntimeError as error:
            raise InvalidSettings(f"cannot listen on {self.address}: {error}") from error


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", settings.message_limit),
        ("grpc.max_send_message_length", settings.message_limit),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        # These three find a half-open connection within 40 s, even if its client only waits.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Do not limit pings: gRPC allocates 4 KiB for each ping over its limit, and never frees them.
        ("grpc.http2.max_ping_strikes", 0),
    ]


def _add(servicer: object, server: grpc.aio.Server) -> list[str]:
    """Add a servicer to the server as every service that it implements, and return their full names."""
    found = [name for name in pb.DESCRIPTOR.services_by_name if isinstance(servicer, _kind(name))]
    for name in found:
        getattr(pb_grpc, f"add_{name}Servicer_to_server")(servicer, TolerantServer(server))
    return [f"{PACKAGE}.{name}" for name in found]


def _kind(service: str) -> type:
    return getattr(pb_grpc, f"{service}Servicer")  # type: ignore[no-any-return]


def _try_to_bind(address: Address) -> None:
    try:
        family, kind, _, _, socket_address = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(socket_address)
    except OSError as error:
        raise InvalidSettings(
            f"cannot listen on {address} ({error.strerror or error}): choose another with --listen or PULSE_LISTEN"
        ) from error


class Tls(NamedTuple):
    cert: bytes
    key: bytes
    client_ca: bytes | None  # None: clients need no certificate

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key, self.cert)],
            root_certificates=self.client_ca,
            require_client_auth=self.client_ca is not None,
        )


def read_tls(settings: Settings) -> Tls | None:
    """Return the certificates of the settings; None: no TLS.

    They are checked here because gRPC would start with wrong ones, and then fail every handshake.
    """
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise InvalidSettings("TLS needs a certificate and its key: set both PULSE_TLS_CERT and PULSE_TLS_KEY")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls = Tls(_read(cert), _read(key), _read(client_ca) if client_ca else None)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")  # never ask for a password on the terminal
    except (ssl.SSLError, ValueError) as error:
        raise InvalidSettings(f"{cert} and {key} must be a certificate and its key, both in PEM: {error}") from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except ssl.SSLError as error:
        raise InvalidSettings(f"{client_ca} must hold a certificate in PEM: {error}") from error
    return tls


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidSettings(f"{file} cannot be read: {error.strerror}") from error
