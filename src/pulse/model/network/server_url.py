"""Where is a server, and where may it listen?

grpc://jobs.internal:8701                   in clear text
grpcs://jobs-a:8701,grpcs://jobs-b:8701     over TLS, several of them; jobs-b alone would do after the first
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
        """Whether only this machine can reach it. A name other than localhost may lead anywhere, so it does not."""
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
    """The servers of a PULSE_SERVER_URL. Those after the first may leave the scheme out."""
    parts = [part.strip() for part in text.split(",")]
    scheme = parts[0].partition("://")[0]
    if scheme not in SCHEMES or "://" not in parts[0]:
        raise InvalidServerUrl(f"server url {_shown(text)} does not begin with grpc:// or grpcs://: write {EXAMPLE}")
    addresses = tuple(_server(part if "://" in part else f"{scheme}://{part}", scheme, text) for part in parts)
    if len(set(addresses)) < len(addresses):
        raise InvalidServerUrl(f"server url {_shown(text)} names one server twice")
    return Servers(addresses, scheme == "grpcs")


def _server(part: str, scheme: str, whole: str) -> Address:
    if part.partition("://")[0] != scheme:
        raise InvalidServerUrl(f"server url {_shown(whole)} mixes schemes: either all are grpc:// or all are grpcs://")
    try:
        found = urlsplit(part)
        host, port = found.hostname, found.port
    except ValueError as error:
        raise InvalidServerUrl(f"server url {_shown(whole)} cannot be read ({error}): write {EXAMPLE}") from None
    if found.username is not None or found.password is not None:
        raise InvalidServerUrl("a server url holds no credentials: give the token in PULSE_TOKEN")
    if not host or port == 0 or found.path not in ("", "/") or found.query or found.fragment:
        raise InvalidServerUrl(f"server url {_shown(whole)} must be hosts and ports and no more: write {EXAMPLE}")
    return Address(host, port or DEFAULT_PORT)


def parse_listen(text: str, default_port: int = DEFAULT_PORT) -> Address:
    """The one address a server is to listen on."""
    try:
        found = urlsplit(f"//{text.strip()}")
        host, port = found.hostname, found.port
    except ValueError as error:
        raise InvalidServerUrl(_wrong_listen(text, f" ({error})")) from None
    is_more = found.path or found.query or found.fragment or found.username is not None
    if not host or host.isdigit() or is_more:  # digits alone are a port whose host was forgotten
        raise InvalidServerUrl(_wrong_listen(text))
    return Address(host, default_port if port is None else port)


def _wrong_listen(text: str, why: str = "") -> str:
    right = "write host:port, such as 127.0.0.1:8701, 0.0.0.0:8701 or [::1]:8701"
    return f"listen {text[:100]!r} is not an address{why}: {right}"


def _shown(url: str) -> str:
    """Without what may be a secret in front of an @."""
    return repr(url.rpartition("@")[2][:100])
