"""Does a host name lead to an address that alarms may call?

A name is looked up when a connection is opened, all its addresses are checked, and the connection uses one of exactly
these addresses: there is no second look-up that could answer differently. The socket is checked once more before it is
connected, which also covers addresses that need no look-up. A pooled connection has passed all these checks.
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
SHARE = 4  # threads for one owner: a look-up that hangs occupies its thread after its callers have given up
LOOK_UP = 2.0  # seconds for which a caller waits for a look-up
RECEIVE_BUFFER = 64 << 10  # small, since answers are short: a flood of data stays with its sender


owner_called_for: ContextVar[str] = ContextVar("owner_called_for", default="")  # the owner whose wake is delivered


def look_up(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def guard(rules: Rules, scheme: str) -> Refuse:
    """Return a function that refuses addresses which alarms may not call with this scheme.

    Only the operator's networks may be called on any port, and without TLS unless plain_http allows that everywhere.

    The addresses of a name are written to the log only: a caller that sets alarms must not learn internal addresses.
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
    """Allow every address. The default target is the operator's own choice, wherever it is."""


class Lookups:
    """Looks up names in threads of its own.

    A look-up cannot be stopped, so one that hangs must not delay others: all callers that wait for the same host share
    one thread, a look-up that no caller waits for any more is not begun, and an owner has only a few threads at a time,
    so that its names cannot keep those of other owners from being looked up. Answers are not cached.
    """

    def __init__(self, resolve: Resolve = look_up, threads: int = THREADS) -> None:
        self._resolve = resolve
        self._executor = ThreadPoolExecutor(threads, "pulse-lookup")
        self._pending: dict[str, _Lookup] = {}
        self._shares: dict[str, asyncio.Semaphore] = {}

    async def addresses(self, host: str, *, owner: str = "", within: float = LOOK_UP) -> list[Address]:
        """Return the addresses of a host. Raise OSError if there are none, or none in time."""
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
            lookup = self._pending.get(host)  # another caller may have begun it meanwhile
            if lookup is None:
                lookup = self._begin(host, owner, share)
            else:
                share.release()
        lookup.waiting += 1
        try:
            addresses = await asyncio.shield(asyncio.wrap_future(lookup.work))
        finally:
            lookup.waiting -= 1
            if not lookup.waiting:
                lookup.work.cancel()  # this has no effect once it has begun
        return [ip_address(text) for text in addresses]

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self, host: str, owner: str, share: asyncio.Semaphore) -> _Lookup:
        loop = asyncio.get_running_loop()
        work = self._executor.submit(self._resolve, host)
        lookup = self._pending[host] = _Lookup(work)

        def end(_: object) -> None:  # runs in the thread of the look-up
            self._pending.pop(host, None)
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(self._give_back, owner, share)

        work.add_done_callback(end)
        return lookup

    def _give_back(self, owner: str, share: asyncio.Semaphore) -> None:
        share.release()
        if not share.locked() and share._value == SHARE:  # no thread of this owner is in use: forget the owner
            self._shares.pop(owner, None)


class _Lookup:
    __slots__ = ("waiting", "work")

    def __init__(self, work: Future[Sequence[str]]) -> None:
        self.work, self.waiting = work, 0


class GuardedResolver(AbstractResolver):
    """Gives aiohttp exactly the addresses that were checked. The name stays in the Host header and in TLS."""

    def __init__(self, lookups: Lookups, refuse: Refuse) -> None:
        self._lookups, self._refuse = lookups, refuse

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._lookups.addresses(host, owner=owner_called_for.get())
        for address in addresses:  # one bad address refuses the name: the connection might use it next time
            self._refuse(host, address, port)
        return [_result(host, port, address) for address in addresses]

    async def close(self) -> None:
        """Do nothing: the look-ups are shared, and their owner closes them."""


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
    """Return the function by which aiohttp makes sockets. It gets each address, literal or looked up, before the
    socket is connected."""

    def make(info: tuple[int, int, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, place = info
        try:
            refuse("the url", ip_address(place[0]), place[1])
        except InvalidTarget as error:
            raise PermissionError(EACCES, str(error)) from None  # aiohttp expects an OSError here
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        return opened

    return make


_CHECK_THREADS = ThreadPoolExecutor(16, "pulse-check")  # not those of deliveries, which must not wait for checks
_checks_under_way: Counter[str] = Counter()  # by owner


async def check_resolves(
    target: Target, rules: Rules, within: float, *, owner: str = "", resolve: Resolve = look_up
) -> None:
    """Check the target of an alarm that is being set. Raise InvalidTarget if its name leads to a forbidden address.

    A name that cannot be looked up in time is accepted, and so is one of an owner who has several look-ups that hang:
    it is checked again at every call. It is not accepted with a port that only the operator's networks allow.
    """
    if target.address is not None:
        return
    if _checks_under_way[owner] >= SHARE:
        _check_unknown(target, rules)
        return
    _checks_under_way[owner] += 1
    work = asyncio.get_running_loop().run_in_executor(_CHECK_THREADS, resolve, target.host)
    work.add_done_callback(lambda done: _end_check(owner, done))
    try:
        addresses = await asyncio.wait_for(asyncio.shield(work), within)
    except (TimeoutError, OSError):
        _check_unknown(target, rules)
        return
    refuse = guard(rules, target.scheme)
    for text in addresses:
        refuse(target.host, ip_address(text), target.port)


def _check_unknown(target: Target, rules: Rules) -> None:
    """Refuse a port that is allowed in the operator's networks only, since the name may lead elsewhere."""
    if target.port not in rules.ports:
        raise InvalidTarget(
            f"port {target.port} is allowed in PULSE_ALARM_NETWORKS only, and {target.host} cannot be looked up now: "
            "add the port to PULSE_ALARM_PORTS, or try again"
        )


def _end_check(owner: str, done: asyncio.Future[Sequence[str]]) -> None:
    _checks_under_way[owner] -= 1
    if not _checks_under_way[owner]:
        del _checks_under_way[owner]
    if not done.cancelled():
        done.exception()  # marks it as retrieved: the caller may have given up
