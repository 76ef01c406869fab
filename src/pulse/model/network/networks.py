"""Which networks does a setting list?"""

from __future__ import annotations

import ipaddress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from pulse.model.errors import InvalidSettings

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def read_networks(setting: str, text: str) -> tuple[Network, ...]:
    return tuple(_network(setting, part.strip()) for part in text.split(",") if part.strip())


def read_proxies(text: str) -> tuple[Network, ...]:
    """Return the proxies that may say which client they forward for. Refuse a network of all addresses."""
    networks = read_networks("http_proxies", text)
    for network in networks:
        if network.prefixlen == 0:
            raise InvalidSettings(
                f"http_proxies must list your proxies, not {network}, by which any client could make up its address"
            )
    return networks


def _network(setting: str, text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidSettings(
            f"{setting} must be networks or addresses between commas, such as 10.1.0.0/16,192.168.7.9: {error}"
        ) from None
