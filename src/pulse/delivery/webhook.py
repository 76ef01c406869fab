"""How is one wake sent to its receiver?

By a signed POST, with limits on the addresses it may call, on the time it may take, and on how much of the answer is
read. Nothing that an endpoint does raises an error here: every delivery has a `WakeResult`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Self

import aiohttp
from yarl import URL

from pulse.delivery.address_guard import (
    GuardedResolver,
    Lookups,
    allow_all,
    guard,
    guarded_sockets,
    look_up,
    owner_called_for,
)
from pulse.delivery.answers import AnswerTooLong, BoundedConnector, error_of, read_answer, retry_after_of, text_of
from pulse.delivery.signing import sign
from pulse.delivery.wake import WakeRequest, WakeResult
from pulse.model.errors import InvalidTarget, PulseError
from pulse.model.network.targets import Rules, Target, check_headers, check_target, parse_target
from pulse.model.text import clean_error
from pulse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from pulse.delivery.address_guard import Refuse, Resolve
    from pulse.settings import Settings

CONNECT = 5.0  # seconds for the look-up, the connection and TLS
KEEP_ALIVE = 4.0  # seconds: uvicorn and Node close after 5, so a request seldom meets a connection that is closing
DEFAULT = "default"
INVALID = "invalid"  # the destination of all urls that cannot be parsed: their deliveries fail at once
ERROR_LIMIT = 500
ROUTES = 4096  # parsed urls that are cached
HEADERS = {
    "accept": "*/*",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": f"pulse/{__version__}",
}


class _Route(NamedTuple):
    url: URL
    session: aiohttp.ClientSession
    is_default: bool


class Deliverer:
    """Delivers any number of wakes at a time. Its caller keeps to settings.alarm_slots."""

    def __init__(self, settings: Settings, *, resolve: Resolve = look_up) -> None:
        self._settings, self._resolve = settings, resolve
        self._rules = Rules.read(settings.alarm_networks, settings.alarm_ports, settings.alarm_plain_http)
        self._deadline = settings.alarm_deadline.total_seconds()
        self._sessions: dict[str, aiohttp.ClientSession] = {}
        self._route = lru_cache(ROUTES)(self._find_route)

    async def open(self) -> Self:
        self._lookups = Lookups(self._resolve)
        for scheme in ("http", "https"):
            self._sessions[scheme] = self._session(guard(self._rules, scheme), {})
        token = self._settings.alarm_token
        bearer = {"authorization": f"Bearer {token}"} if token else {}
        self._sessions[DEFAULT] = self._session(allow_all, bearer)
        return self

    async def close(self) -> None:
        self._route.cache_clear()
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        self._lookups.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def destination_of(self, url: str | None) -> str:
        """Return the destination whose slots and breaker a wake counts for."""
        return DEFAULT if url is None else _destination_of(url)

    async def deliver(self, wake: WakeRequest, *, secrets: Sequence[str]) -> WakeResult:
        """Send a wake once, and return the result. Raises nothing but CancelledError."""
        started_at = time.monotonic()
        owner_called_for.set(wake.owner)
        answer, response = bytearray(), None
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._post(wake, secrets)
                if response.status != 101:  # what follows a switch of protocols may never end
                    await read_answer(response, answer)
        except Exception as error:
            # A status counts even if the rest of the answer fails: a retry would repeat a wake that was accepted.
            if response is None:
                return _failed_result(self._describe(error), started_at)
        return _result_of(response, bytes(answer), started_at)

    async def _post(self, wake: WakeRequest, secrets: Sequence[str]) -> aiohttp.ClientResponse:
        url, session, is_default = self._route(wake.url)
        timestamp = int(time.time())
        headers = {"webhook-id": wake.id, "webhook-timestamp": str(timestamp), "idempotency-key": wake.id}
        if secrets:
            headers["webhook-signature"] = sign(secrets, id=wake.id, timestamp=timestamp, body=wake.body)
        if wake.headers:
            headers.update(self._own_headers(wake.headers, is_default=is_default))
        return await session.post(url, data=wake.body, headers=headers, allow_redirects=False)

    def _own_headers(self, headers: Mapping[str, str], *, is_default: bool) -> dict[str, str]:
        """Return the headers of the alarm, checked again because SQL may have written them. For the default target,
        the operator's token takes precedence over an authorization header."""
        checked = check_headers(headers)
        if is_default and self._settings.alarm_token:
            return {name: value for name, value in checked.items() if name.lower() != "authorization"}
        return checked

    def _find_route(self, url: str | None) -> _Route:
        if url is not None:
            target = check_target(url, self._rules)
            return _Route(_url_of(target), self._sessions[target.scheme], is_default=False)
        if self._settings.alarm_target is None:
            raise InvalidTarget("the alarm must have a url, because PULSE_ALARM_TARGET is not set")
        return _Route(_url_of(parse_target(self._settings.alarm_target)), self._sessions[DEFAULT], is_default=True)

    def _session(self, refuse: Refuse, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        connector = BoundedConnector(
            limit=self._settings.alarm_slots,
            resolver=GuardedResolver(self._lookups, refuse),
            use_dns_cache=False,  # every new connection needs a new look-up and a new check
            socket_factory=guarded_sockets(refuse),
            keepalive_timeout=KEEP_ALIVE,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers={**HEADERS, **headers},
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT),  # `deliver` itself limits the total time
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # use no proxy of the environment and no .netrc
        )

    def _describe(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            return f"no answer within {self._deadline:g} s"
        return clean_error(_describe_error(error), ERROR_LIMIT)


@lru_cache(ROUTES)
def _destination_of(url: str) -> str:
    try:
        return parse_target(url).destination
    except InvalidTarget:
        return INVALID


def _url_of(target: Target) -> URL:
    url = URL(target.url, encoded=True)
    if (url.scheme, url.raw_host, url.port) != (target.scheme, target.host, target.port):
        raise InvalidTarget("the url can be read in two ways: write a simpler one")
    return url


def _result_of(response: aiohttp.ClientResponse | None, answer: bytes, started_at: float) -> WakeResult:
    assert response is not None
    status, headers = response.status, response.headers
    if status == 101:
        response.close()
    return WakeResult(
        status=status,
        error=error_of(status, headers),
        answer=text_of(answer),
        duration=timedelta(seconds=time.monotonic() - started_at),
        retry_after=retry_after_of(headers.get("retry-after")),
        is_gone=status == 410,
    )


def _failed_result(error: str, started_at: float) -> WakeResult:
    duration = timedelta(seconds=time.monotonic() - started_at)
    return WakeResult(status=None, error=error, answer="", duration=duration)


def _describe_error(error: Exception) -> str:
    """Return a short description of an error, without the URL: its query may have a secret."""
    match error:
        case PulseError() | AnswerTooLong():
            return str(error)
        case aiohttp.ClientConnectorDNSError():
            return f"{error.host} cannot be looked up: {_describe_os_error(error.os_error)}"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS: the certificate of {error.host} is not accepted: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {_describe_os_error(error.os_error)}"
        case aiohttp.ClientOSError():
            return f"the connection was lost: {_describe_os_error(error)}"
        case _:
            known = (text for kind, text in ERROR_TEXTS.items() if isinstance(error, kind))
            return next(known, f"the wake could not be sent: {type(error).__name__}")


def _describe_os_error(error: OSError) -> str:
    """Return the operating system's message if it has one: asyncio's is "Connect call failed" and the address."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    number = error.errno or 0
    if isinstance(error, PermissionError) or number <= 0:  # a message of the address guard or of a look-up
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(number)


ERROR_TEXTS: dict[type[Exception], str] = {
    aiohttp.ServerTimeoutError: f"no connection within {CONNECT:g} s",
    aiohttp.ServerDisconnectedError: "the connection was closed before an answer came",
    aiohttp.ClientResponseError: "the answer is not valid HTTP",
}
