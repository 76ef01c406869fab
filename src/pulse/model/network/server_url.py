"""How are the addresses written at which servers are reached and at which they listen?

grpc://jobs.internal:8701                   in clear text
grpcs://jobs-a:8701,grpcs://jobs-b:8701     over TLS, several servers; those after the first may leave out the scheme
127.0.0.1:8701, [::1]:8701, 0.0.0.0:0       to listen on; port 0 is any free one
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from pulse.model.errors import InvalidServerUrl

DEFAULT_PORT = 8701
HTTP_PORT = 8700
SCHEMES = ("grpc", "grpcs")
EXAMPLE = "grpc://127.0.0.1:8701, grpcs://jobs.example.com, or several of them between commas"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Tell whether only this machine can reach it. Names other than localhost may lead anywhere, so they do not."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Servers(NamedTuple):
    addresses: tuple[Address, ...]  # all of them serve the same jobs
    is_secure: bool


def parse_server_url(text: str) -> Servers:
    """Return the servers of a PULSE_SERVER_URL. Those after the first may leave out the scheme."""
    parts = [part.strip() for part in text.split(",")]
    scheme = parts[0].partition("://")[0]
    if scheme not in SCHEMES or "://" not in parts[0]:
        raise InvalidServerUrl(f"server url must begin with grpc:// or grpcs://, not {_shown(text)}: write {EXAMPLE}")
    addresses = tuple(_server(part if "://" in part else f"{scheme}://{part}", scheme, text) for part in parts)
    if len(set(addresses)) < len(addresses):
        raise InvalidServerUrl(f"server url must name each server once, not {_shown(text)}")
    return Servers(addresses, scheme == "grpcs")


def _server(part: str, scheme: str, whole: str) -> Address:
    if part.partition("://")[0] != scheme:
        raise InvalidServerUrl(f"server url must be all grpc:// or all grpcs://, not {_shown(whole)}")
    try:
        parts = urlsplit(part)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidServerUrl(f"server url {_shown(whole)} cannot be read ({error}): write {EXAMPLE}") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidServerUrl("server url must have no credentials: give the token in PULSE_TOKEN")
    if not host or port == 0 or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidServerUrl(f"server url must have hosts and ports only, not {_shown(whole)}: write {EXAMPLE}")
    return Address(host, port or DEFAULT_PORT)


def parse_listen(text: str, default_port: int = DEFAULT_PORT) -> Address:
    """Return the address that a server is to listen on."""
    try:
        parts = urlsplit(f"//{text.strip()}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidServerUrl(_refuse_listen(text, f" ({error})")) from None
    has_more = parts.path or parts.query or parts.fragment or parts.username is not None
    if not host or host.isdigit() or has_more:  # digits alone are a port whose host was forgotten
        raise InvalidServerUrl(_refuse_listen(text))
    return Address(host, default_port if port is None else port)


def _refuse_listen(text: str, reason: str = "") -> str:
    form = "host:port, such as 127.0.0.1:8701, 0.0.0.0:8701 or [::1]:8701"
    return f"listen must be {form}, not {text[:100]!r}{reason}"


def _shown(url: str) -> str:
    """Return the URL without what stands before an @, which may be a secret."""
    return repr(url.rpartition("@")[2][:100])
