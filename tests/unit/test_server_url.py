"""Are addresses of servers read as they are meant, and is every other text refused with what would be right?"""

from __future__ import annotations

import pytest

from pulse.model.errors import InvalidServerUrl
from pulse.model.network.server_url import Address, parse_listen, parse_server_url
from pulse.settings import Settings


@pytest.mark.parametrize(
    ("url", "addresses", "is_secure"),
    [
        ("grpc://here", [("here", 8701)], False),
        ("grpc://127.0.0.1:9000", [("127.0.0.1", 9000)], False),
        ("grpcs://[::1]:9000/", [("::1", 9000)], True),
        ("grpc://a:1,grpc://b:2", [("a", 1), ("b", 2)], False),
        ("grpcs://a, b:2", [("a", 8701), ("b", 2)], True),
    ],
)
def test_a_url_names_servers(url: str, addresses: list[tuple[str, int]], is_secure: bool) -> None:
    servers = parse_server_url(url)

    assert list(servers.addresses) == addresses
    assert servers.is_secure is is_secure


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "must begin with grpc:// or grpcs://"),
        ("here:8701", "must begin with grpc:// or grpcs://"),
        ("grpc:here", "must begin with grpc:// or grpcs://"),
        ("http://here", "must begin with grpc:// or grpcs://"),
        ("grpc://", "must have hosts and ports only"),
        ("grpc://a,,b", "must have hosts and ports only"),
        ("grpc://here/path", "must have hosts and ports only"),
        ("grpc://here?x=1", "must have hosts and ports only"),
        ("grpc://here:0", "must have hosts and ports only"),
        ("grpc://here:eight", "cannot be read"),
        ("grpc://here:99999", "cannot be read"),
        ("grpc://a,grpcs://b", "must be all grpc:// or all grpcs://"),
        ("grpc://a,grpc://a:8701", "must name each server once"),
        ("grpc://me:secret@here", "PULSE_TOKEN"),
    ],
)
def test_any_other_text_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidServerUrl) as refused:
        Settings(server_url=url)

    assert said in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:8701", Address("127.0.0.1", 8701), True),
        ("127.9.9.9", Address("127.9.9.9", 8701), True),
        ("localhost:0", Address("localhost", 0), True),
        ("[::1]:1", Address("::1", 1), True),
        ("0.0.0.0:8701", Address("0.0.0.0", 8701), False),
        ("[::]:8701", Address("::", 8701), False),
        ("jobs.internal:8701", Address("jobs.internal", 8701), False),
    ],
)
def test_an_address_to_listen_on(text: str, address: Address, is_loopback: bool) -> None:
    found = parse_listen(text)

    assert found == address
    assert found.is_loopback is is_loopback
    assert parse_listen(str(found)) == found


@pytest.mark.parametrize("text", ["", ":8701", "8701:", "grpc://here:1", "here:1/x", "here:99999", "::1", "a@b:1"])
def test_what_is_no_address_to_listen_on_is_refused(text: str) -> None:
    with pytest.raises(InvalidServerUrl, match="listen must be host:port"):
        Settings(listen=text)
