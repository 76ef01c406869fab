"""Which addresses may an alarm call, and which headers may it send?

Every address that is not global unicast is refused, unless the operator lists its network. URLs are parsed here,
strictly, and then put together again, so that no other parser can read the same text as another address: unusual
spellings of a host (0177.1, 2130706433, a trailing dot) are refused.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from pulse.model.errors import NOT_SHOWN, InvalidOption, InvalidSettings, InvalidTarget
from pulse.model.network.networks import read_networks

if TYPE_CHECKING:
    from collections.abc import Mapping

URL_LIMIT = 2_000
HOST_LIMIT = 253
HEADERS_LIMIT = 32
HEADERS_SIZE_LIMIT = 8 << 10
PORTS = {"http": 80, "https": 443}
EXAMPLE = "write one such as https://example.com/wake"

# Python's `is_global` is not enough: it differs between releases, and none of them knows the last of these.
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
            "168.63.129.16/32",  # looks public, but gives an Azure machine its secrets
        ),
    )
)
# This is all of global unicast. ::1, v4-mapped, v4-compatible, NAT64, fc00::/7 and fe80::/10 lie outside.
_GLOBAL_V6 = IPv6Network("2000::/3")
_FORBIDDEN_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # reserved for protocols such as Teredo, which embeds an IPv4 address
            "2001:db8::/32",
            "2002::/16",  # 6to4, which embeds an IPv4 address
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
    """The targets that the operator allows: settings.alarm_networks, alarm_ports and alarm_plain_http."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    ports: frozenset[int] = frozenset({80, 443, 8080, 8443})
    plain_http: bool = False

    @classmethod
    def read(cls, networks: str, ports: str, plain_http: bool) -> Rules:  # noqa: FBT001
        return cls(
            read_networks("alarm_networks", networks),
            frozenset(_read_port_setting(text) for text in _split_list(ports)),
            plain_http,
        )

    def lists(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Target:
    url: str  # put together from its parts: ASCII, without the default port
    scheme: str
    host: str  # an IPv6 address without its brackets
    port: int
    destination: str  # scheme://host:port

    @property
    def address(self) -> IPv4Address | IPv6Address | None:
        """Return the host as an address, or None if it is a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def check_target(url: str, rules: Rules) -> Target:
    """Return the target of a URL. Refuse one that alarms may not call, as far as the text shows: the addresses of a
    name are checked when it is looked up."""
    target = parse_target(url)
    address = target.address
    if address is None:
        _check_name(target, rules)
    elif is_forbidden(address, rules):
        raise InvalidTarget(f"{address} is not a public address: use one that is, or list it in PULSE_ALARM_NETWORKS")
    if address is None or not rules.lists(address):
        _check_text(target, rules)
    return target


def is_forbidden(address: IPv4Address | IPv6Address, rules: Rules) -> bool:
    """Tell whether alarms may not call an address: one that is not global unicast, or IPv6 with an IPv4 address
    embedded, unless the operator lists the address itself."""
    if rules.lists(address):
        return False
    if isinstance(address, IPv4Address):
        return any(address in network for network in _FORBIDDEN_V4) or not address.is_global
    return address not in _GLOBAL_V6 or any(address in network for network in _FORBIDDEN_V6) or not address.is_global


def check_port(port: int, rules: Rules, address: IPv4Address | IPv6Address) -> None:
    """Refuse a port that alarms may not call at this address. In the operator's networks they may call any port."""
    if port not in rules.ports and not rules.lists(address):
        _refuse_port(port, rules)


def may_be_plain(address: IPv4Address | IPv6Address, rules: Rules) -> bool:
    """Tell whether an address may be called without TLS."""
    return rules.plain_http or rules.lists(address)


def parse_target(url: str) -> Target:
    """Return the parts of a URL, whether or not alarms may call it."""
    if not isinstance(url, str):
        raise InvalidTarget(f"the url must be text, not {type(url).__name__}: {EXAMPLE}")
    if len(url) > URL_LIMIT:
        raise InvalidTarget(f"the url must have at most {URL_LIMIT} characters, not {len(url)}")
    if _UNUSUAL.search(url):
        raise InvalidTarget("the url must have no whitespace, control characters or backslashes: percent-encode them")
    parts = _PARTS.fullmatch(url)
    scheme = parts[1].lower() if parts else ""
    if not parts or scheme not in PORTS:
        raise InvalidTarget(f"the url must begin with https:// or http://: {EXAMPLE}")
    if parts[4]:
        raise InvalidTarget("the url must have no fragment (#…), which is never sent: leave it out")
    host, port = _authority(parts[2], scheme)
    shown = f"[{host}]" if ":" in host else host
    place = shown if port == PORTS[scheme] else f"{shown}:{port}"
    rest = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    return Target(f"{scheme}://{place}{quote(rest, safe=_SAFE)}", scheme, host, port, f"{scheme}://{shown}:{port}")


_SAFE = "!$%&'()*+,/:;=?@[]~"  # not percent-encoded in a path or query


def _authority(text: str, scheme: str) -> tuple[str, int]:
    if "@" in text:
        raise InvalidTarget(
            "the url must have no credentials: send them in a header of the alarm, such as authorization"
        )
    if text.startswith("["):
        inside, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise InvalidTarget(f"the host of the url must have its IPv6 address in brackets: {EXAMPLE}")
        return _literal_v6(inside), _port(port[1:], scheme) if port else PORTS[scheme]
    host, colon, port = text.partition(":")
    return _host(host), _port(port, scheme) if colon else PORTS[scheme]


def _port(text: str, scheme: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise InvalidTarget(
            f"the port must be a number from 1 to 65535, or left out for {PORTS[scheme]}, not {text[:20]!r}"
        )
    return int(text)


def _literal_v6(text: str) -> str:
    if "%" in text:
        raise InvalidTarget(
            "an IPv6 address must have no zone, which means something on one machine only: leave it out"
        )
    try:
        return str(IPv6Address(text))
    except ValueError:
        raise InvalidTarget(f"[{text[:60]}] is not an IPv6 address: {EXAMPLE}") from None


def _host(text: str) -> str:
    if not text:
        raise InvalidTarget(f"the url must have a host: {EXAMPLE}")
    if "%" in text:
        raise InvalidTarget(f"host {text[:60]!r} must not be percent-encoded")
    if text.endswith("."):
        raise InvalidTarget(f"host {text[:60]!r} must not end with a dot: leave it out")
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
        raise InvalidTarget(f"host {text[:60]!r} is an address in an unusual spelling: write it like 93.184.216.34")
    return host


def _ascii(host: str) -> str:
    if _AMBIGUOUS.search(host):
        raise InvalidTarget(f"host {host[:60]!r} may mean two names: write the right one in its xn-- form")
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise InvalidTarget(f"host {host[:60]!r} cannot be written as ASCII: write it in its xn-- form") from None


def refuse_this_machine(host: str) -> None:
    """Refuse a name that means this machine. Most machines have two loopback addresses, so both must be listed."""
    if _is_this_machine(host):
        raise InvalidTarget(f"{host} is this machine: list 127.0.0.0/8,::1 in PULSE_ALARM_NETWORKS to allow it")


def _is_this_machine(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def _check_name(target: Target, rules: Rules) -> None:
    loopback = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
    if not any(rules.lists(address) for address in loopback):
        refuse_this_machine(target.host)


def _check_text(target: Target, rules: Rules) -> None:
    """Refuse a port or a plain http:// that is not allowed, as far as the text shows.

    A name may lead into the operator's networks, where both are allowed. That is checked when it is looked up.
    """
    if target.address is None and rules.networks:
        return
    if target.port not in rules.ports:
        _refuse_port(target.port, rules)
    if target.scheme == "http" and not rules.plain_http:
        raise InvalidTarget("the url must begin with https://: without TLS others can read the wake")


def _refuse_port(port: int, rules: Rules) -> NoReturn:
    allowed = ", ".join(map(str, sorted(rules.ports))) or "none"
    raise InvalidTarget(f"the port must be one of PULSE_ALARM_PORTS ({allowed}), not {port}")


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an alarm. Refuse those that Pulse itself sets or that control the connection."""
    if len(headers) > HEADERS_LIMIT:
        raise InvalidOption("headers", len(headers), f"number at most {HEADERS_LIMIT}")
    checked: dict[str, str] = {}
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header(name, value)
        if name.lower() in seen:
            raise InvalidOption(
                "headers", NOT_SHOWN, f"have each name once, in whatever case ({name[:60]!r} comes twice)"
            )
        seen.add(name.lower())
        checked[name] = value.strip(" \t")
    if sum(len(name) + len(value.encode()) + 4 for name, value in checked.items()) > HEADERS_SIZE_LIMIT:
        raise InvalidOption("headers", NOT_SHOWN, f"have at most {HEADERS_SIZE_LIMIT >> 10} KiB together")
    return checked


def _check_header(name: object, value: object) -> None:
    """Refuse a header by a message without its value, which may be a secret."""
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidOption("headers", str(name)[:60], "have names of letters, digits and -")
    if name.lower() in _OURS or name.lower().startswith(_OUR_PREFIXES):
        must = f"leave out {name[:60]!r}: Pulse sets it itself, or it belongs to the connection"
        raise InvalidOption("headers", NOT_SHOWN, must)
    if value == "…":
        must = f"give the value of {name[:60]!r} itself: '…' only stands for a hidden one"
        raise InvalidOption("headers", NOT_SHOWN, must)
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        must = f"have values of one line of Latin-1 text without control characters ({name[:60]!r} has not)"
        raise InvalidOption("headers", NOT_SHOWN, must)


def check_bearer(name: str, token: str) -> None:
    if not _TOKEN_68.fullmatch(token):
        raise InvalidSettings(f"{name} must be printable ASCII without spaces, as it is sent in a header")


def _split_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _read_port_setting(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise InvalidSettings(f"alarm_ports must be port numbers between commas, such as 443,8443, not {text!r}")
    return int(text)
