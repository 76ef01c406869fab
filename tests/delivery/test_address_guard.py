"""Is no forbidden address ever dialled, whatever the URL, the resolver or the environment says?"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from ipaddress import ip_address

import pytest

from pulse.delivery.address_guard import SHARE, Lookups, check_resolves, guard, guarded_sockets
from pulse.model.errors import InvalidTarget
from pulse.model.network.targets import Rules, check_target
from tests.delivery.endpoints import OK, PUBLIC, Dials, Endpoint, a_deliverer, a_wake, answering, endpoint
from tests.delivery.hostile_urls import HOSTILE_URLS, hostile_lookup

STRICT = Rules.read("", "443", plain_http=True)


@pytest.fixture
async def canary() -> AsyncIterator[Endpoint]:
    """Listens on both loopback addresses, on one port. Nobody may ever come."""
    async with endpoint(answering(OK)) as made:
        server = await asyncio.start_server(made.serve, "::1", made.port)
        yield made
        server.close()


@pytest.fixture
async def dials() -> Dials:
    return Dials()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What look-ups that hang wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("url", HOSTILE_URLS)
async def test_a_hostile_url_dials_nobody(url: str, canary: Endpoint, dials: Dials) -> None:
    """With every rule but the one for addresses turned off, so that it is this one that holds."""
    ports = f"80,443,{canary.port}"
    async with a_deliverer(
        resolve=hostile_lookup, alarm_networks="", alarm_ports=ports, alarm_plain_http=True
    ) as deliverer:
        found = await deliverer.deliver(a_wake(url.format(port=canary.port)), secrets=[])

    assert found.error
    assert found.status is None
    assert dials.addresses == []
    assert canary.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "loopback.test", "loopback6.test", "localhost"])
async def test_the_canary_and_the_watch_would_notice(host: str, canary: Endpoint, dials: Dials) -> None:
    def lookup(name: str) -> list[str]:
        return ["127.0.0.1"] if name == "localhost" else hostile_lookup(name)

    async with a_deliverer(resolve=lookup, alarm_ports=str(canary.port)) as deliverer:
        found = await deliverer.deliver(a_wake(f"http://{host}:{canary.port}/"), secrets=[])

    assert found.is_success
    assert len(dials.addresses) == canary.connections == 1


async def test_an_alarm_that_was_set_under_other_rules_is_held_to_those_of_now(dials: Dials) -> None:
    async with a_deliverer(resolve=lambda _: [PUBLIC], alarm_ports="443") as deliverer:
        found = await deliverer.deliver(a_wake("https://public.test:8443/"), secrets=[])

    assert found.error == "the port must be one of PULSE_ALARM_PORTS (443), not 8443"
    assert dials.addresses == []


def in_turn(*answers: list[str]) -> Callable[[str], list[str]]:
    remaining = list(answers)
    return lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]


async def test_a_name_that_is_bound_anew_after_its_check_is_dialled_where_it_was_checked(
    canary: Endpoint, dials: Dials
) -> None:
    rebinding = in_turn([PUBLIC], ["127.0.0.1"])
    options = {"alarm_networks": "", "alarm_ports": str(canary.port), "alarm_plain_http": True}
    async with a_deliverer(resolve=rebinding, **options) as deliverer:
        wake = a_wake(f"http://rebinding.test:{canary.port}/")

        first = await deliverer.deliver(wake, secrets=[])
        later = [await deliverer.deliver(wake, secrets=[]) for _ in range(3)]

    assert first.error == f"cannot connect to rebinding.test:{canary.port}: Connection refused"
    assert dials.addresses == [PUBLIC]
    assert {found.error for found in later} == {
        "rebinding.test leads to an address that alarms may not call: it is not a public address"
    }
    assert canary.connections == 0


async def test_a_name_that_was_good_when_the_alarm_was_set_is_checked_when_it_is_called(
    canary: Endpoint, dials: Dials
) -> None:
    rebinding = in_turn([PUBLIC], ["127.0.0.1"])
    url = f"https://rebinding.test:{canary.port}/"
    rules = Rules.read("", str(canary.port), plain_http=False)

    await check_resolves(check_target(url, rules), rules, 1.0, resolve=rebinding)
    async with a_deliverer(resolve=rebinding, alarm_networks="", alarm_ports=str(canary.port)) as deliverer:
        found = await deliverer.deliver(a_wake(url), secrets=[])

    assert "not a public address" in (found.error or "")
    assert dials.addresses == []


async def test_a_mixed_answer_is_refused_as_a_whole(dials: Dials) -> None:
    async with a_deliverer(resolve=lambda _: [PUBLIC, "10.0.0.1"], alarm_networks="") as deliverer:
        found = await deliverer.deliver(a_wake("https://mixed.test/"), secrets=[])

    assert found.error == "mixed.test leads to an address that alarms may not call: it is not a public address"
    assert dials.addresses == []


async def test_every_checked_address_is_tried(dials: Dials) -> None:
    both = [PUBLIC, "2606:4700::1"]
    async with a_deliverer(resolve=lambda _: both, alarm_networks="") as deliverer:
        found = await deliverer.deliver(a_wake("https://both.test/"), secrets=[])

    assert "Connection refused" in (found.error or "")
    assert set(dials.addresses) == set(both)


@pytest.mark.parametrize("addresses", [[PUBLIC], ["127.0.0.1", PUBLIC]], ids=str)
async def test_a_name_is_called_without_tls_only_within_the_listed_networks(addresses: list[str], dials: Dials) -> None:
    async with a_deliverer(resolve=lambda _: addresses) as deliverer:
        found = await deliverer.deliver(a_wake("http://name.test/"), secrets=[])

    assert found.error == "name.test leads to an address that is not called without TLS: write https://"
    assert dials.addresses == []


async def test_a_name_within_the_listed_networks_is_called_on_any_port(canary: Endpoint, dials: Dials) -> None:
    async with a_deliverer(resolve=lambda _: ["127.0.0.1", "::1"], alarm_ports="443") as deliverer:
        found = await deliverer.deliver(a_wake(f"http://name.test:{canary.port}/"), secrets=[])

    assert found.is_success
    assert len(dials.addresses) == canary.connections == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("addresses", [[PUBLIC], ["127.0.0.1", PUBLIC], [PUBLIC, "::1"]], ids=str)
async def test_a_name_that_leads_outside_as_well_is_called_on_no_port_but_those_for_all(
    addresses: list[str], scheme: str, canary: Endpoint, dials: Dials
) -> None:
    rules = {"alarm_ports": "443,80", "alarm_plain_http": True}
    async with a_deliverer(resolve=lambda _: addresses, **rules) as deliverer:
        found = await deliverer.deliver(a_wake(f"{scheme}://name.test:{canary.port}/"), secrets=[])

    assert found.error == f"the port must be one of PULSE_ALARM_PORTS (80, 443), not {canary.port}"
    assert (dials.addresses, canary.connections) == ([], 0)


async def test_a_name_that_is_bound_anew_to_the_outside_reaches_no_other_port(canary: Endpoint, dials: Dials) -> None:
    """First to the listed network, then out of it: only the connection that was checked is used."""
    url = f"http://rebinding.test:{canary.port}/"
    rebinding = in_turn(["127.0.0.1"], ["127.0.0.1"], [PUBLIC])
    rules = Rules.read("127.0.0.0/8", "443", plain_http=True)

    await check_resolves(check_target(url, rules), rules, 1.0, resolve=rebinding)
    options = {"alarm_networks": "127.0.0.0/8", "alarm_ports": "443", "alarm_plain_http": True}
    async with a_deliverer(resolve=rebinding, **options) as deliverer:
        first = await deliverer.deliver(a_wake(url), secrets=[])
        pooled = await deliverer.deliver(a_wake(url), secrets=[])
    async with a_deliverer(resolve=rebinding, **options) as deliverer:
        later = await deliverer.deliver(a_wake(url), secrets=[])

    assert (first.is_success, pooled.is_success) == (True, True)
    assert later.error == f"the port must be one of PULSE_ALARM_PORTS (443), not {canary.port}"
    assert dials.addresses == ["127.0.0.1"]


async def test_a_port_that_is_not_for_all_is_refused_when_the_alarm_is_set_unless_the_name_stays_inside() -> None:
    rules = Rules.read("127.0.0.0/8,10.1.0.0/16", "443", plain_http=False)
    target = check_target("https://name.test:8015/", rules)

    await check_resolves(target, rules, 1.0, resolve=lambda _: ["127.0.0.1", "10.1.2.3"])
    with pytest.raises(InvalidTarget, match=r"the port must be one of PULSE_ALARM_PORTS \(.*\), not 8015"):
        await check_resolves(target, rules, 1.0, resolve=lambda _: ["10.1.2.3", PUBLIC])
    with pytest.raises(InvalidTarget, match="not a public address"):
        await check_resolves(target, rules, 1.0, resolve=lambda _: ["10.1.2.3", "10.2.0.1"])


async def test_a_port_that_is_not_for_all_is_refused_while_its_name_cannot_be_looked_up() -> None:
    def nobody(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    rules = Rules.read("127.0.0.0/8", "443", plain_http=False)

    with pytest.raises(
        InvalidTarget, match=r"port 8015 is allowed in PULSE_ALARM_NETWORKS only, and name.test cannot be"
    ):
        await check_resolves(check_target("https://name.test:8015/", rules), rules, 1.0, resolve=nobody)


async def test_a_machine_whose_localhost_is_only_half_listed_says_what_to_list(dials: Dials) -> None:
    async with a_deliverer(resolve=lambda _: ["::1", "127.0.0.1"], alarm_networks="127.0.0.0/8") as deliverer:
        found = await deliverer.deliver(a_wake("http://localhost:8015/"), secrets=[])

    assert found.error == "localhost is this machine: list 127.0.0.0/8,::1 in PULSE_ALARM_NETWORKS to allow it"
    assert dials.addresses == []


def test_a_socket_for_a_port_that_may_not_be_called_is_not_even_made() -> None:
    make = guarded_sockets(guard(Rules.read("10.1.0.0/16", "443", plain_http=True), "http"))

    make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("10.1.0.1", 22))).close()
    make((socket.AF_INET, socket.SOCK_STREAM, 0, "", (PUBLIC, 443))).close()
    with pytest.raises(PermissionError, match=r"the port must be one of PULSE_ALARM_PORTS \(.*\), not 22"):
        make((socket.AF_INET, socket.SOCK_STREAM, 0, "", (PUBLIC, 22)))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.0.0.1", "::ffff:127.0.0.1"])
def test_a_socket_for_a_forbidden_address_is_not_even_made(address: str) -> None:
    """The second wall: even if the resolver were to let it through."""
    make = guarded_sockets(guard(STRICT, "http"))
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    with pytest.raises(PermissionError, match="not a public address"):
        make((family, socket.SOCK_STREAM, 0, "", (address, 80)))


async def test_the_second_wall_holds_alone(canary: Endpoint, dials: Dials, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve_all(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, object]]:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 6, "flags": 0}]

    monkeypatch.setattr("pulse.delivery.address_guard.GuardedResolver.resolve", resolve_all)
    async with a_deliverer(alarm_networks="", alarm_ports=str(canary.port)) as deliverer:
        found = await deliverer.deliver(a_wake(f"https://x.test:{canary.port}/"), secrets=[])

    assert "not a public address" in (found.error or "")
    assert (dials.addresses, canary.connections) == ([], 0)


async def test_proxies_of_the_environment_are_ignored(
    canary: Endpoint, dials: Dials, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    async with a_deliverer(resolve=lambda _: [PUBLIC], alarm_networks="", alarm_plain_http=True) as deliverer:
        await deliverer.deliver(a_wake("http://public.test/"), secrets=[])
        await deliverer.deliver(a_wake("https://public.test/"), secrets=[])

    assert dials.addresses == [PUBLIC, PUBLIC]
    assert canary.connections == 0


async def test_a_look_up_that_hangs_counts_within_the_deadline(release: threading.Event) -> None:
    def hang(_: str) -> list[str]:
        release.wait(20)
        return [PUBLIC]

    begun = time.monotonic()
    async with a_deliverer(resolve=hang, alarm_deadline=timedelta(seconds=0.2)) as deliverer:
        found = await deliverer.deliver(a_wake("https://hangs.test/"), secrets=[])
    release.set()

    assert found.error == "no answer within 0.2 s"
    assert time.monotonic() - begun < 2


async def test_a_look_up_that_hangs_holds_one_thread_and_none_of_others(release: threading.Event) -> None:
    asked: list[str] = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        if host == "hangs.test":
            release.wait(20)
        return [PUBLIC]

    lookups = Lookups(lookup, threads=2)
    hanging = [asyncio.create_task(lookups.addresses("hangs.test")) for _ in range(50)]
    await asyncio.sleep(0)

    assert await lookups.addresses("well.test") == [ip_address(PUBLIC)]
    assert await asyncio.to_thread(lambda: "the default threads are free") == "the default threads are free"
    assert asked == ["hangs.test", "well.test"]

    release.set()
    assert await asyncio.gather(*hanging) == [[ip_address(PUBLIC)]] * 50
    lookups.close()


async def test_no_answer_is_kept() -> None:
    lookups = Lookups(in_turn([PUBLIC], ["127.0.0.1"]))

    assert [await lookups.addresses("x.test") for _ in range(2)] == [[ip_address(PUBLIC)], [ip_address("127.0.0.1")]]
    lookups.close()


async def test_what_nobody_waits_for_any_more_is_not_looked_up(release: threading.Event) -> None:
    asked: list[str] = []

    def lookup(host: str) -> list[str]:
        asked.append(host)
        release.wait(20)
        return [PUBLIC]

    lookups = Lookups(lookup, threads=1)
    first = asyncio.create_task(lookups.addresses("first.test"))
    impatient = asyncio.create_task(lookups.addresses("second.test"))
    await asyncio.sleep(0.01)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    release.set()

    assert await first == [ip_address(PUBLIC)]
    assert await lookups.addresses("third.test") == [ip_address(PUBLIC)]
    assert asked == ["first.test", "third.test"]
    lookups.close()


async def test_a_name_that_is_not_there_says_so() -> None:
    def nobody(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with a_deliverer(resolve=nobody) as deliverer:
        found = await deliverer.deliver(a_wake("https://nobody.test/?token=hunter2"), secrets=[])

    assert found.error == "nobody.test cannot be looked up: Name or service not known"


async def test_a_name_that_leads_inside_is_refused_when_the_alarm_is_set() -> None:
    target = check_target("https://inside.test/", STRICT)

    with pytest.raises(InvalidTarget, match=r"inside.test leads to an address that alarms may not call") as refused:
        await check_resolves(target, STRICT, 1.0, resolve=lambda _: [PUBLIC, "10.0.0.1"])

    assert "10.0.0.1" not in str(refused.value)  # nobody learns our addresses by setting alarms


async def test_our_log_says_where_a_refused_name_leads(caplog: pytest.LogCaptureFixture) -> None:
    target = check_target("https://inside.test/", STRICT)

    with caplog.at_level(logging.INFO, "pulse.alarms"), pytest.raises(InvalidTarget):
        await check_resolves(target, STRICT, 1.0, resolve=lambda _: ["10.0.0.1"])

    assert caplog.messages == ["inside.test leads to 10.0.0.1, which is not a public address: it is not called"]


async def test_names_of_one_owner_that_hang_keep_no_other_owner_waiting(release: threading.Event) -> None:
    begun = 0

    def lookup(host: str) -> list[str]:
        nonlocal begun
        if host.endswith(".evil"):
            begun += 1
            release.wait(20)
        return [PUBLIC]

    lookups = Lookups(lookup)
    hanging = [asyncio.create_task(lookups.addresses(f"{each}.evil", owner="evil", within=20)) for each in range(500)]
    await asyncio.sleep(0.01)

    found = [await lookups.addresses(f"{each}.test", owner="good") for each in range(20)]

    assert found == [[ip_address(PUBLIC)]] * 20
    assert begun <= SHARE  # though 500 of them wait
    release.set()
    assert await asyncio.gather(*hanging) == [[ip_address(PUBLIC)]] * 500
    await asyncio.sleep(0.01)
    assert lookups._shares == {}
    lookups.close()


async def test_a_look_up_has_a_deadline_of_its_own(release: threading.Event) -> None:
    lookups = Lookups(lambda _: [PUBLIC] if release.wait(20) else [])

    with pytest.raises(OSError, match=r"it takes longer than 0.05 s"):
        await lookups.addresses("slow.evil", within=0.05)

    release.set()
    lookups.close()


async def test_an_owner_whose_names_hang_keeps_nobody_from_having_theirs_checked(release: threading.Event) -> None:
    def hang(_: str) -> list[str]:
        release.wait(20)
        return ["10.0.0.1"]

    target = check_target("https://later.test/", STRICT)
    evil = [asyncio.create_task(check_resolves(target, STRICT, 20.0, owner="evil", resolve=hang)) for _ in range(50)]
    await asyncio.sleep(0.01)

    with pytest.raises(InvalidTarget):
        await check_resolves(target, STRICT, 20.0, owner="good", resolve=lambda _: ["10.0.0.1"])

    release.set()
    refused = await asyncio.gather(*evil, return_exceptions=True)
    assert sum(isinstance(each, InvalidTarget) for each in refused) == SHARE


async def test_a_name_that_cannot_be_looked_up_in_time_is_taken(release: threading.Event) -> None:
    def hang(_: str) -> list[str]:
        release.wait(20)
        return ["10.0.0.1"]

    def nobody(_: str) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure")

    target = check_target("https://later.test/", STRICT)

    await check_resolves(target, STRICT, 0.05, resolve=hang)
    await check_resolves(target, STRICT, 1.0, resolve=nobody)
    await check_resolves(target, STRICT, 1.0, resolve=lambda _: [PUBLIC])
