"""Is every way to spell an address that must not be called refused, and every good one taken?"""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.delivery.webhook import _url_of
from pulse.model.errors import InvalidInput, InvalidOption, InvalidSettings, InvalidTarget
from pulse.model.network.targets import Rules, check_headers, check_target, is_forbidden, parse_target
from tests.delivery.hostile_urls import HOSTILE_URLS

STRICT = Rules.read("", "80,443,8080,8443", plain_http=False)
PLAIN = Rules.read("", "80,443", plain_http=True)
# fmt: off
FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1",
    "127.255.255.255", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192",
    "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "::", "::1", "::7f00:1",
    "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:93.184.216.34", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::5db8:d822", "64:ff9b:1::a00:1", "100::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:5db8:d822::1", "3fff::1", "5f00::1",
    "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "4000::1",
]
# fmt: on
HOME = Rules.read("127.0.0.0/8, 10.1.0.0/16", "443", plain_http=False)


@pytest.mark.parametrize(
    ("url", "shown", "destination"),
    [
        ("https://example.com/wake", "https://example.com/wake", "https://example.com:443"),
        ("HTTPS://EXAMPLE.com:443", "https://example.com/", "https://example.com:443"),
        ("https://example.com:8443?a=b", "https://example.com:8443/?a=b", "https://example.com:8443"),
        ("https://my_app.example.com/a@b:c", "https://my_app.example.com/a@b:c", "https://my_app.example.com:443"),
        ("https://bücher.example/ü", "https://xn--bcher-kva.example/%C3%BC", "https://xn--bcher-kva.example:443"),
        ("https://93.184.216.34/", "https://93.184.216.34/", "https://93.184.216.34:443"),
        ("https://[2606:4700:0:0::1]/", "https://[2606:4700::1]/", "https://[2606:4700::1]:443"),
        ("https://x.test/%2e%2F?q={1}", "https://x.test/%2e%2F?q=%7B1%7D", "https://x.test:443"),
    ],
)
def test_a_good_url_has_one_spelling(url: str, shown: str, destination: str) -> None:
    target = check_target(url, STRICT)

    assert (target.url, target.destination) == (shown, destination)
    assert check_target(target.url, STRICT) == target
    assert str(_url_of(target)) == shown  # and aiohttp reads the same host from it


@pytest.mark.parametrize("url", [url.format(port=443) for url in HOSTILE_URLS])
def test_a_hostile_url_is_refused_by_its_text_or_leads_through_a_look_up(url: str) -> None:
    try:
        target = check_target(url, PLAIN)
    except InvalidTarget:
        return
    assert target.address is None
    assert target.host.endswith(".test")


def test_there_are_enough_hostile_urls() -> None:
    assert len(set(HOSTILE_URLS)) == len(HOSTILE_URLS) >= 60


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://example.com/", "must begin with https://"),
        ("example.com", "must begin with https://"),
        ("https://me:secret@example.com/", "credentials"),
        ("https://example.com/#top", "fragment"),
        ("https:///path", "must have a host"),
        ("https://:443/", "must have a host"),
        ("https://0177.1/", "unusual spelling"),
        ("https://2130706433/", "unusual spelling"),
        ("https://example.com./", "must not end with a dot"),
        ("https://exa%6dple.com/", "percent-encoded"),
        ("https://exam ple.com/", "whitespace"),
        ("https://example.com\\@evil.test/", "backslashes"),
        ("https://[fe80::1%25eth0]/", "must have no zone"),
        ("https://[::1/", "brackets"),
        ("https://[1.2.3.4]/", "not an IPv6 address"),
        ("https://a..b/", "looked up"),
        (f"https://{'a' * 64}.com/", "looked up"),
        (f"https://{'a.' * 127}com/", "looked up"),
        ("https://faß.example/", "two names"),
        ("https://" + "ü" * 80 + ".test/", "cannot be written as ASCII"),
        ("https://example.com:0/", "from 1 to 65535"),
        ("https://example.com:65536/", "from 1 to 65535"),
        ("https://example.com:/", "from 1 to 65535"),
        ("https://example.com:22/", "the port must be one of PULSE_ALARM_PORTS (80, 443, 8080, 8443), not 22"),
        ("http://example.com/", "without TLS"),
        ("http://93.184.216.34/", "without TLS"),
        ("https://10.0.0.1/", "not a public address"),
        ("https://localhost/", "is this machine: list 127.0.0.0/8,::1 in PULSE_ALARM_NETWORKS"),
        ("http://localhost:8015/", "is this machine: list 127.0.0.0/8,::1 in PULSE_ALARM_NETWORKS"),
        ("https://app.localhost/", "is this machine"),
        ("https://example.com/" + "x" * 2000, "at most 2000"),
    ],
)
def test_the_message_says_what_is_wrong(url: str, words: str) -> None:
    with pytest.raises(InvalidTarget) as refused:
        check_target(url, STRICT)

    assert words in str(refused.value)
    assert "secret" not in str(refused.value)
    assert isinstance(refused.value, InvalidInput)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9999/",
        "https://10.1.2.3:22/",
        "http://app.localhost:443/",
        "http://intranet:443/",
        "http://localhost:8015/",  # and where a name leads is checked when it is looked up
        "https://intranet:9/",
    ],
)
def test_what_the_operator_lists_may_be_called(url: str) -> None:
    assert check_target(url, HOME).url == url


@pytest.mark.parametrize(
    "url", ["https://10.2.0.1/", "http://93.184.216.34:443/", "https://93.184.216.34:9/", "https://[::1]/"]
)
def test_and_nothing_beside_it(url: str) -> None:
    with pytest.raises(InvalidTarget):
        check_target(url, HOME)


@pytest.mark.parametrize(
    "address",
    FORBIDDEN,
)
def test_what_is_not_global_unicast_is_forbidden(address: str) -> None:
    assert is_forbidden(ip_address(address), STRICT)
    assert not is_forbidden(ip_address(address), Rules.read(address, "443", plain_http=False))


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00::1"]
)
def test_what_is_global_unicast_is_not(address: str) -> None:
    assert not is_forbidden(ip_address(address), STRICT)


def test_a_listed_network_does_not_list_what_wraps_it() -> None:
    assert not is_forbidden(ip_address("10.1.2.3"), HOME)
    assert is_forbidden(ip_address("::ffff:10.1.2.3"), HOME)
    assert is_forbidden(ip_address("64:ff9b::a01:203"), HOME)


@given(st.text(max_size=60) | st.from_regex(r"\Ahttps?://[^/]{0,30}(:[0-9]{0,6})?/.{0,10}\Z"))
def test_any_text_is_either_a_target_or_refused(text: str) -> None:
    try:
        target = parse_target(text)
    except InvalidTarget:
        return
    assert target.url.isascii()
    assert target.url.isprintable()
    assert parse_target(target.url) == target


@pytest.mark.parametrize(
    ("networks", "ports"), [("10.0.0.1/8", ""), ("here", ""), ("", "x"), ("", "0"), ("", "-1"), ("", "70000")]
)
def test_rules_that_cannot_be_read_are_refused(networks: str, ports: str) -> None:
    with pytest.raises(InvalidSettings):
        Rules.read(networks, ports, plain_http=False)


def test_an_alarm_brings_its_own_headers() -> None:
    headers = {"Authorization": "Bearer x", "cookie": "a=b", "X-Mine": " padded\t", "x-latin": "é"}

    assert check_headers(headers) == headers | {"X-Mine": "padded"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "x") for name in ("Host", "Content-Length", "Content-Type", "transfer-encoding", "Connection", "TE")),
        *((name, "x") for name in ("Trailer", "Upgrade", "Expect", "Keep-Alive", "Proxy-Authorization", "User-Agent")),
        *((name, "x") for name in ("webhook-id", "Webhook-Signature", "idempotency-key", "accept-encoding")),
        *((name, "x") for name in ("", "a b", "a:b", "a\r\nb", "é", "a\x00", "(a)")),
        *(("x", value) for value in ("a\r\nHost: evil", "a\nb", "a\x00b", "a\x7f", "a\x1b[0m", "\u2028", "€", "a\x85")),
    ],
)
def test_a_header_that_smuggles_or_speaks_for_us_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match="headers"):
        check_headers({name: value})


@pytest.mark.parametrize(
    "headers",
    [
        {"x-a": "1", "X-A": "2"},
        {f"x-{number}": "1" for number in range(33)},
        {"x-a": "a" * 8192},
        {"x-a": 1},
        {1: "a"},
    ],
    ids=["twice", "many", "large", "number", "name"],
)
def test_headers_are_bounded(headers: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match="headers"):
        check_headers(headers)


def test_a_refused_header_does_not_show_its_value() -> None:
    with pytest.raises(InvalidOption) as refused:
        check_headers({"authorization": "hunter2\n"})

    assert "hunter2" not in str(refused.value)
