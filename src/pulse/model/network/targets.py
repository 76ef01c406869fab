"""Which addresses may an alarm call, and what may it send along?

Everything that is not a global unicast address is refused, unless the operator lists its network. URLs are read here
by a strict reading of our own and put together anew, so that no other reader of the same text can be led elsewhere:
what is not spelled in the one usual way (0177.1, 2130706433, a trailing dot) is refused, not understood.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from pulse.model.errors import InvalidOption, InvalidSettings, InvalidTarget
from pulse.model.network.networks import read_networks

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_LIMIT = 2_000
HOST_LIMIT = 253
HEADERS_LIMIT = 32
HEADERS_SIZE_LIMIT = 8 << 10
PORTS = {"http": 80, "https": 443}
EXAMPLE = "write one such as https://example.com/wake"

# Python's `is_global` is not enough: releases differ, and none knows the last of these.
_FORBIDDEN_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # looks public, and tells an Azure machine its secrets
        ),
    )
)
# Global unicast is this and no more: ::1, v4-mapped and v4-compatible, NAT64, fc00::/7, fe80::/10 … lie outside.
_GLOBAL_V6 = IPv6Network("2000::/3")
_FORBIDDEN_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # of protocols; Teredo, which wraps an IPv4 address, among them
            "2001:db8::/32",
            "2002::/16",  # 6to4 wraps one as well
            "3fff::/20",
        ),
    )
)

_UNUSUAL = re.compile(r"[\x00-\x20\x7f-\x9f\\\u2028\u2029\ud800-\udfff]|\s")
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(#.*)?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_AMBIGUOUS = re.compile("[ßς\u200c\u200d]")  # IDNA 2003 and 2008 lead to different hosts
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_TOKEN_68 = re.compile(r"[!-~]+")
_OURS = frozenset(
    (
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "te", "trailer", "upgrade"),
        *("expect", "keep-alive", "user-agent", "idempotency-key", "accept-encoding"),
    )
)
_OUR_PREFIXES = ("proxy-", "webhook-")


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator allows: settings.alarm_networks, alarm_ports and alarm_plain_http."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    ports: frozenset[int] = frozenset({80, 443, 8080, 8443})
    plain_http: bool = False

    @classmethod
    def read(cls, networks: str, ports: str, plain_http: bool) -> Rules:  # noqa: FBT001
        return cls(
            read_networks("alarm_networks", networks),
            frozenset(_listed_port(text) for text in _listed(ports)),
            plain_http,
        )

    def lists(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Target:
    url: str  # put together anew: ASCII, without a port that goes without saying
    scheme: str
    host: str  # an IPv6 address without its brackets
    port: int
    destination: str  # scheme://host:port

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """None: the host is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def check_target(url: str, rules: Rules) -> Target:
    """Where an alarm may go, as far as the text tells: where a name leads is known when it is looked up."""
    target = parse_target(url)
    address = target.address
    if address is None:
        _check_name(target, rules)
    elif is_forbidden(address, rules):
        raise InvalidTarget(f"{address} is not a public address: call one that is, or list it in PULSE_ALARM_NETWORKS")
    if address is None or not rules.lists(address):
        _check_text(target, rules)
    return target


def is_forbidden(address: IPv4Address | IPv6Address, rules: Rules) -> bool:
    """True for all that is not global unicast, and for IPv6 that wraps IPv4, unless listed as it stands."""
    if rules.lists(address):
        return False
    if isinstance(address, IPv4Address):
        return any(address in network for network in _FORBIDDEN_V4) or not address.is_global
    return address not in _GLOBAL_V6 or any(address in network for network in _FORBIDDEN_V6) or not address.is_global


def check_port(port: int, rules: Rules, address: IPv4Address | IPv6Address) -> None:
    """Refuse a port that alarms may not call at this address: in the operator's networks they may call any."""
    if port not in rules.ports and not rules.lists(address):
        _refuse_port(port, rules)


def may_be_plain(address: IPv4Address | IPv6Address, rules: Rules) -> bool:
    """Whether an address may be spoken to without TLS."""
    return rules.plain_http or rules.lists(address)


def parse_target(url: str) -> Target:
    """What a URL says, whether or not alarms may go there."""
    if not isinstance(url, str):
        raise InvalidTarget(f"a url must be text, not {type(url).__name__}: {EXAMPLE}")
    if len(url) > URL_LIMIT:
        raise InvalidTarget(f"the url has {len(url)} characters: at most {URL_LIMIT} are allowed")
    if _UNUSUAL.search(url):
        raise InvalidTarget("the url has whitespace, control characters or backslashes in it: percent-encode them")
    parts = _PARTS.fullmatch(url)
    scheme = parts[1].lower() if parts else ""
    if not parts or scheme not in PORTS:
        raise InvalidTarget(f"the url does not begin with https:// or http://: {EXAMPLE}")
    if parts[4]:
        raise InvalidTarget("the url has a fragment (#…), which is never sent: leave it out")
    host, port = _authority(parts[2], scheme)
    shown = f"[{host}]" if ":" in host else host
    place = shown if port == PORTS[scheme] else f"{shown}:{port}"
    rest = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    return Target(f"{scheme}://{place}{quote(rest, safe=_SAFE)}", scheme, host, port, f"{scheme}://{shown}:{port}")


_SAFE = "!$%&'()*+,/:;=?@[]~"  # what may stand in a path or query as it is


def _authority(text: str, scheme: str) -> tuple[str, int]:
    if "@" in text:
        raise InvalidTarget("the url holds credentials: send them in a header of the alarm, such as authorization")
    if text.startswith("["):
        inside, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidTarget(f"the host of the url is not an IPv6 address in brackets: {EXAMPLE}")
        return _literal_v6(inside), _port(port[1:], scheme) if port else PORTS[scheme]
    host, colon, port = text.partition(":")
    return _host(host), _port(port, scheme) if colon else PORTS[scheme]


def _port(text: str, scheme: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise InvalidTarget(f"port {text[:20]!r} is not a number from 1 to 65535: leave it out for {PORTS[scheme]}")
    return int(text)


def _literal_v6(text: str) -> str:
    if "%" in text:
        raise InvalidTarget("an IPv6 address with a zone means something on one machine only: leave the zone out")
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise InvalidTarget(f"[{text[:60]}] is not an IPv6 address: {EXAMPLE}") from None


def _host(text: str) -> str:
    if not text:
        raise InvalidTarget(f"the url has no host: {EXAMPLE}")
    if "%" in text:
        raise InvalidTarget(f"host {text[:60]!r} is percent-encoded: write it as it is")
    if text.endswith("."):
        raise InvalidTarget(f"host {text[:60]!r} ends with a dot: leave it out")
    host = text.lower() if text.isascii() else _ascii(text)
    labels = host.split(".")
    if len(host) > HOST_LIMIT or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidTarget(f"host {text[:60]!r} is not a name that can be looked up: {EXAMPLE}")
    if _NUMBER.fullmatch(labels[-1]):  # getaddrinfo would take it for an address, however it is spelled
        return _literal_v4(host, text)
    return host


def _literal_v4(host: str, text: str) -> str:
    try:
        address = IPv4Address(host)
    except ValueError:
        address = None
    if address is None or str(address) != text:
        raise InvalidTarget(f"host {text[:60]!r} is an address in an unusual spelling: write it as in 93.184.216.34")
    return host


def _ascii(host: str) -> str:
    if _AMBIGUOUS.search(host):
        raise InvalidTarget(f"host {host[:60]!r} may mean two names: write the one that is meant in its xn-- form")
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise InvalidTarget(f"host {host[:60]!r} cannot be written as ASCII: write it in its xn-- form") from None


def refuse_this_machine(host: str) -> None:
    """Refuse a name that means this machine. It has two addresses on most: one that is listed alone is not enough."""
    if _is_this_machine(host):
        raise InvalidTarget(f"{host} is this machine: list 127.0.0.0/8,::1 in PULSE_ALARM_NETWORKS to allow it")


def _is_this_machine(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _check_name(target: Target, rules: Rules) -> None:
    loopback = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
    if not any(rules.lists(address) for address in loopback):
        refuse_this_machine(target.host)


def _check_text(target: Target, rules: Rules) -> None:
    """Refuse a port, or to go without TLS, where the text alone tells.

    A name may lead into the operator's networks, where both are allowed: that is known when it is looked up.
    """
    if target.address is None and rules.networks:
        return
    if target.port not in rules.ports:
        _refuse_port(target.port, rules)
    if target.scheme == "http" and not rules.plain_http:
        raise InvalidTarget("http:// is without TLS, so what is sent can be read: write https://")


def _refuse_port(port: int, rules: Rules) -> NoReturn:
    allowed = ", ".join(map(str, sorted(rules.ports))) or "none"
    raise InvalidTarget(f"port {port} is not one alarms may call ({allowed}): see PULSE_ALARM_PORTS")


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers an alarm brings along: none that would change the request's frame or speak in our name."""
    if len(headers) > HEADERS_LIMIT:
        raise InvalidOption("headers", len(headers), f"be at most {HEADERS_LIMIT}")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header(name, value)
        if name.lower() in seen:
            raise InvalidOption("headers", name, "name each header once, in whatever case")
        seen.add(name.lower())
        checked[name] = value.strip(" \t")
    if sum(len(name) + len(value.encode()) + 4 for name, value in checked.items()) > HEADERS_SIZE_LIMIT:
        raise InvalidOption("headers", "more", f"have at most {HEADERS_SIZE_LIMIT >> 10} KiB together")
    return checked


def _check_header(name: object, value: object) -> None:
    """The value is not in the message: it may be a secret."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidOption("headers", str(name)[:60], "have names of letters, digits and -")
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
        raise InvalidOption("headers", name[:60], "leave out what Pulse sets itself or what belongs to the connection")
    if value == "…":
        raise InvalidOption("headers", name[:60], "have the value itself, which is hidden wherever it is shown")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise InvalidOption("headers", name[:60], "have values of Latin-1 text in one line, without control characters")


def check_bearer(name: str, token: str) -> None:
    if not _TOKEN_68.fullmatch(token):
        raise InvalidSettings(f"{name} must be printable ASCII without spaces, as it is sent in a header")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _listed_port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise InvalidSettings(f"alarm_ports: {text!r} is not a port: write numbers between commas, such as 443,8443")
    return int(text)
