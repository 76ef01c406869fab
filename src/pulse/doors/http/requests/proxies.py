"""From which address does a request come, if proxies stand between?

Each proxy writes at the right end of `X-Forwarded-For` who asked it. So one goes from right to left for as long as
those who wrote are proxies of ours (`PULSE_HTTP_PROXIES`): the first who is none is the one who asks, and what stands
left of that, they may have made up.
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
    """What cannot be read ends the way: then it is the proxy itself that asks."""
    found = _read(peer)
    if found is None:
        return peer
    for text in reversed(",".join(forwarded).split(",")):
        if not any(found in network for network in proxies):
            break
        before = _read(text.strip())
        if before is None:
            break
        found = before
    return str(found)


def _read(text: str) -> Address | None:
    """Also with a port, as some proxies write it. An IPv4 address is one, whichever kind of socket it came through."""
    if match := _WITH_PORT.fullmatch(text):
        text = match["six"] or match["four"] or ""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
