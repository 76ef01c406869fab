"""From which address does a request come if it passed through proxies?

Each proxy appends the address of its client to `X-Forwarded-For`. So the addresses are read from right to left, for as
long as they belong to our own proxies (`PULSE_HTTP_PROXIES`). The first address that does not is the client's. It may
have made up everything to the left of that.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from pulse.model.network.networks import Address, Network

_WITH_PORT = re.compile(r"\[(?P<six>[^\]]*)\](?::\d{1,5})?|(?P<four>[\d.]+):\d{1,5}")


def address_of(request: Request, proxies: Sequence[Network]) -> str:
    peer = request.client.host if request.client else ""
    return find_address(peer, request.headers.getlist("x-forwarded-for"), proxies)


def find_address(peer: str, forwarded: Sequence[str], proxies: Sequence[Network]) -> str:
    """Return the address of the client. An entry that cannot be read ends the search, at the proxy that wrote it."""
    found = _read(peer)
    if found is None:
        return peer
    for text in reversed(",".join(forwarded).split(",")):
        if not any(found in network for network in proxies):
            break
        previous = _read(text.strip())
        if previous is None:
            break
        found = previous
    return str(found)


def _read(text: str) -> Address | None:
    """Read an address. Some proxies write it with a port, and an IPv6 socket writes IPv4 addresses as mapped ones."""
    if match := _WITH_PORT.fullmatch(text):
        text = match["six"] or match["four"] or ""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
