"""Does this name lead to an address that may be called?

A name is looked up when a connection is opened, all its addresses are checked, and the connection goes to one of those
very addresses: there is no second look-up that could answer differently. The socket is checked once more before it is
connected, and that check also sees the addresses nobody looks up. A pooled connection has passed all this.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from errno import EACCES
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from aiohttp.abc import AbstractResolver, ResolveResult

from pulse.model.errors import InvalidTarget
from pulse.model.network.targets import Rules, Target, check_port, is_forbidden, may_be_plain, refuse_this_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Address = IPv4Address | IPv6Address
    Resolve = Callable[[str], Sequence[str]]  # a host's addresses; may block, raises OSError if there are none
    Refuse = Callable[[str, Address, int], None]  # raises InvalidTarget for an address or port that may not be called

log = logging.getLogger("pulse.alarms")

THREADS = 64  # made when they are needed
SHARE = 4  # of them for one owner: a look-up that hangs holds its thread for longer than anybody waits for it
LOOK_UP = 2.0  # seconds: who waits for a name waits no longer
RECEIVE_BUFFER = 64 << 10  # answers are short, so a flood waits at its sender and not in our memory


owner_called_for: ContextVar[str] = ContextVar("owner_called_for", default="")  # whose wake is being delivered


def look_up(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def guard(rules: Rules, scheme: str) -> Refuse:
    """Return what refuses an address. Only the operator's networks are called on any port; without TLS, too, unless
    plain_http says so.

    Where a name leads is for our log alone: whoever sets alarms need not learn our addresses.
    """

    def refuse(host: str, address: Address, port: int) -> None:
        if is_forbidden(address, rules):
            log.info("%s leads to %s, which is not a public address: it is not called", host, address)
            refuse_this_machine(host)
            raise InvalidTarget(f"{host} leads to an address that alarms may not call: it is not a public address")
        check_port(port, rules, address)
        if scheme == "http" and not may_be_plain(address, rules):
            raise InvalidTarget(f"{host} leads to an address that is not called without TLS: write https://")

    return refuse


def allow_all(host: str, address: Address, port: int) -> None:
    """For the default target: the operator's own, wherever it is."""


class Lookups:
    """Looks names up in threads of its own.

    A look-up cannot be stopped. So that one that hangs holds up nobody else, all who wait for the same host share one
    thread, what nobody waits for any more is not begun, and an owner has a few threads at a time: the names of one that
    never answer keep no other's from being looked up. No answer is kept: who asks later asks anew.
    """

    def __init__(self, resolve: Resolve = look_up, threads: int = THREADS) -> None:
        self._resolve = resolve
        self._executor = ThreadPoolExecutor(threads, "pulse-lookup")
        self._pending: dict[str, _Lookup] = {}
        self._shares: dict[str, asyncio.Semaphore] = {}

    async def addresses(self, host: str, *, owner: str = "", within: float = LOOK_UP) -> list[Address]:
        """Return a host's addresses. Raises OSError if there are none, or none in time."""
        try:
            async with asyncio.timeout(within):
                return await self._addresses(host, owner)
        except TimeoutError:
            raise TimeoutError(f"it takes longer than {within:g} s") from None

    async def _addresses(self, host: str, owner: str) -> list[Address]:
        lookup = self._pending.get(host)
        if lookup is None:
            share = self._shares.setdefault(owner, asyncio.Semaphore(SHARE))
            await share.acquire()
            lookup = self._pending.get(host)  # somebody else may have begun meanwhile
            if lookup is None:
                lookup = self._begin(host, owner, share)
            else:
                share.release()
        lookup.waiting += 1
        try:
            found = await asyncio.shield(asyncio.wrap_future(lookup.work))
        finally:
            lookup.waiting -= 1
            if not lookup.waiting:
                lookup.work.cancel()  # of no effect once it has begun
        return [ip_address(text) for text in found]

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self, host: str, owner: str, share: asyncio.Semaphore) -> _Lookup:
        loop = asyncio.get_running_loop()
        work = self._executor.submit(self._resolve, host)
        lookup = self._pending[host] = _Lookup(work)

        def end(_: object) -> None:  # in the thread that did it
            self._pending.pop(host, None)
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(self._give_back, owner, share)

        work.add_done_callback(end)
        return lookup

    def _give_back(self, owner: str, share: asyncio.Semaphore) -> None:
        share.release()
        if not share.locked() and share._value == SHARE:  # nobody has any of it: owners come and go
            self._shares.pop(owner, None)


class _Lookup:
    __slots__ = ("waiting", "work")

    def __init__(self, work: Future[Sequence[str]]) -> None:
        self.work, self.waiting = work, 0


class GuardedResolver(AbstractResolver):
    """Hands aiohttp the very addresses that were checked. The name stays in the Host header and in TLS."""

    def __init__(self, lookups: Lookups, refuse: Refuse) -> None:
        self._lookups, self._refuse = lookups, refuse

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._lookups.addresses(host, owner=owner_called_for.get())
        for address in addresses:  # one that is refused refuses the name: it may be the one that answers next time
            self._refuse(host, address, port)
        return [_result(host, port, address) for address in addresses]

    async def close(self) -> None:
        """The look-ups are shared, and closed by whoever made them."""


def _result(host: str, port: int, address: Address) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=str(address),
        port=port,
        family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )


def guarded_sockets(refuse: Refuse) -> Callable[[Any], socket.socket]:
    """Makes the sockets of aiohttp: it is told the address, literal or looked up, just before it is connected to."""

    def make(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, place = info
        try:
            refuse("the url", ip_address(place[0]), place[1])
        except InvalidTarget as error:
            raise PermissionError(EACCES, str(error)) from None  # what aiohttp expects of a socket that fails
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        return made

    return make


_WRITE_TIME = ThreadPoolExecutor(16, "pulse-check")  # apart from those of deliveries, which need not wait for it
_under_way: Counter[str] = Counter()  # of those, by owner


async def check_resolves(
    target: Target, rules: Rules, within: float, *, owner: str = "", resolve: Resolve = look_up
) -> None:
    """For when an alarm is set: raises InvalidTarget if its name leads where it may not.

    Quietly accepts what cannot be looked up in time, or for an owner with several names under way that hang: it is
    checked again whenever it is called. Not on a port that is only for the operator's networks.
    """
    if target.address is not None:
        return
    if _under_way[owner] >= SHARE:
        _check_unknown(target, rules)
        return
    _under_way[owner] += 1
    work = asyncio.get_running_loop().run_in_executor(_WRITE_TIME, resolve, target.host)
    work.add_done_callback(lambda done: _end_check(owner, done))
    try:
        found = await asyncio.wait_for(asyncio.shield(work), within)
    except (TimeoutError, OSError):
        _check_unknown(target, rules)
        return
    refuse = guard(rules, target.scheme)
    for text in found:
        refuse(target.host, ip_address(text), target.port)


def _check_unknown(target: Target, rules: Rules) -> None:
    """Refuse a port that may be called only where the name may or may not lead."""
    if target.port not in rules.ports:
        raise InvalidTarget(
            f"port {target.port} is called only in PULSE_ALARM_NETWORKS, and {target.host} cannot be looked up: "
            "add the port to PULSE_ALARM_PORTS, or try again"
        )


def _end_check(owner: str, done: asyncio.Future[Sequence[str]]) -> None:
    _under_way[owner] -= 1
    if not _under_way[owner]:
        del _under_way[owner]
    if not done.cancelled():
        done.exception()  # nobody else may be there to see it
