"""Which address does a request come from, whatever it says itself?"""

from __future__ import annotations

import pytest

from pulse.doors.http.requests.proxies import find_address
from pulse.model.network.networks import read_proxies

PROXIES = "10.0.0.0/8, 192.0.2.1, fd00::/8, ::1"


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),  # no proxy of ours: not believed
        ("203.0.113.7", ["198.51.100.1, 10.0.0.1"], "203.0.113.7"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", ["198.51.100.1, 203.0.113.7"], "203.0.113.7"),  # the left one is made up
        ("10.0.0.1", ["10.0.0.9, 203.0.113.7"], "203.0.113.7"),  # even if it is a proxy's
        ("10.0.0.1", ["198.51.100.1,203.0.113.7,192.0.2.1 , 10.2.3.4"], "203.0.113.7"),  # several hops
        ("10.0.0.1", ["198.51.100.1", "203.0.113.7", "10.2.3.4"], "203.0.113.7"),  # a header each
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),  # asked by a proxy itself
        ("10.0.0.1", ["203.0.113.7:4711"], "203.0.113.7"),
        ("::1", ["2001:DB8::0007"], "2001:db8::7"),
        ("::1", ["[2001:db8::7]:4711, fd00::2"], "2001:db8::7"),
        ("::1", ["[2001:db8::7]"], "2001:db8::7"),
        ("2001:db8::9", ["203.0.113.7"], "2001:db8::9"),
        ("::ffff:10.0.0.1", ["::ffff:203.0.113.7"], "203.0.113.7"),  # a socket for both kinds
        ("::ffff:203.0.113.7", ["198.51.100.1"], "203.0.113.7"),
        ("", ["203.0.113.7"], ""),
        *(
            ("10.0.0.1", [f"203.0.113.7, {garbage}"], "10.0.0.1")
            for garbage in (
                "",
                "unknown",
                "_hidden",
                "10.0.0.1.5",
                "999.1.1.1",
                "[",
                "[]:1",
                "1.2.3.4:x",
                "01.2.3.4",
                "٣.1.1.1",
            )
        ),
        ("10.0.0.1", ["," * 5_000], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, what, 10.0.0.2"], "10.0.0.2"),
    ],
)
def test_the_rightmost_who_is_no_proxy_of_ours_asks(peer: str, forwarded: list[str], found: str) -> None:
    assert find_address(peer, forwarded, read_proxies(PROXIES)) == found


def test_by_default_nobody_is_believed() -> None:
    assert find_address("127.0.0.1", ["203.0.113.7"], read_proxies("")) == "127.0.0.1"
