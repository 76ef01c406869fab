"""How does one wake reach its receiver, and what came of it?

A POST that is signed, and bounded in where it may go, in how long it may take and in what is read of the answer.
Nothing an endpoint does is an exception here; whatever came of it is a `WakeResult`.
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

CONNECT = 5.0  # seconds, for looking up, connecting and TLS
KEEP_ALIVE = 4.0  # seconds: less than the 5 after which uvicorn and Node close, so that we seldom meet them closing
DEFAULT = "default"
INVALID = "invalid"  # what cannot be read fails at once, so it may share the slots of one destination
ERROR_LIMIT = 500
ROUTES = 4096  # urls that need not be read anew each time
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
    """Delivers any number of wakes at a time. Who calls it keeps to settings.alarm_slots."""

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
        """Whose slots and breaker a wake counts for."""
        return DEFAULT if url is None else _destination_of(url)

    async def deliver(self, wake: WakeRequest, *, secrets: Sequence[str]) -> WakeResult:
        """Send it once. Raises nothing but CancelledError."""
        begun = time.monotonic()
        owner_called_for.set(wake.owner)
        answer, response = bytearray(), None
        try:
            async with asyncio.timeout(self._deadline):
                response = await self._post(wake, secrets)
                if response.status != 101:  # nothing ends what follows that
                    await read_answer(response, answer)
        except Exception as error:
            # Once there is a status it counts, whatever befalls the rest: a retry would repeat what was accepted.
            if response is None:
                return _unanswered(self._describe(error), begun)
        return _answered(response, bytes(answer), begun)

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
        """Checked anew, as they may have been written by SQL. The default target's token is the operator's say."""
        checked = check_headers(headers)
        if is_default and self._settings.alarm_token:
            return {name: value for name, value in checked.items() if name.lower() != "authorization"}
        return checked

    def _find_route(self, url: str | None) -> _Route:
        if url is not None:
            target = check_target(url, self._rules)
            return _Route(_url_of(target), self._sessions[target.scheme], is_default=False)
        if self._settings.alarm_target is None:
            raise InvalidTarget("the alarm names no url and PULSE_ALARM_TARGET is not set")
        return _Route(_url_of(parse_target(self._settings.alarm_target)), self._sessions[DEFAULT], is_default=True)

    def _session(self, refuse: Refuse, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        connector = BoundedConnector(
            limit=self._settings.alarm_slots,
            resolver=GuardedResolver(self._lookups, refuse),
            use_dns_cache=False,  # a new connection means a new look-up and a new check
            socket_factory=guarded_sockets(refuse),
            keepalive_timeout=KEEP_ALIVE,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers={**HEADERS, **headers},
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT),  # the deadline is one of ours, around it all
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,  # no proxy of the environment, no .netrc
        )

    def _describe(self, error: Exception) -> str:
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            return f"no answer within {self._deadline:g} s"
        return clean_error(_words_of(error), ERROR_LIMIT)


@lru_cache(ROUTES)
def _destination_of(url: str) -> str:
    try:
        return parse_target(url).destination
    except InvalidTarget:
        return INVALID


def _url_of(target: Target) -> URL:
    url = URL(target.url, encoded=True)
    if (url.scheme, url.raw_host, url.port) != (target.scheme, target.host, target.port):
        raise InvalidTarget("the url can be read in two ways: write it in a plainer one")
    return url


def _answered(response: aiohttp.ClientResponse | None, answer: bytes, begun: float) -> WakeResult:
    assert response is not None
    status, headers = response.status, response.headers
    if status == 101:
        response.close()
    return WakeResult(
        status=status,
        error=error_of(status, headers),
        answer=text_of(answer),
        duration=timedelta(seconds=time.monotonic() - begun),
        retry_after=retry_after_of(headers.get("retry-after")),
        is_gone=status == 410,
    )


def _unanswered(error: str, begun: float) -> WakeResult:
    duration = timedelta(seconds=time.monotonic() - begun)
    return WakeResult(status=None, error=error, answer="", duration=duration)


def _words_of(error: Exception) -> str:
    """Short, and without the URL: its query may hold a secret."""
    match error:
        case PulseError() | AnswerTooLong():
            return str(error)
        case aiohttp.ClientConnectorDNSError():
            return f"{error.host} cannot be looked up: {_why(error.os_error)}"
        case aiohttp.ClientConnectorCertificateError():
            return f"TLS: the certificate of {error.host} is not accepted: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {_why(error.os_error)}"
        case aiohttp.ClientOSError():
            return f"the connection was lost: {_why(error)}"
        case _:
            known = (words for kind, words in WORDS.items() if isinstance(error, kind))
            return next(known, f"the wake could not be sent: {type(error).__name__}")


def _why(error: OSError) -> str:
    """The system's words where there are any: asyncio's are "Connect call failed" and the address again."""
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no reason given'})"
    number = error.errno or 0
    if isinstance(error, PermissionError) or number <= 0:  # the guard's own words, or a look-up's
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(number)


WORDS: dict[type[Exception], str] = {
    aiohttp.ServerTimeoutError: f"no connection within {CONNECT:g} s",
    aiohttp.ServerDisconnectedError: "the connection was closed before an answer came",
    aiohttp.ClientResponseError: "the answer is not HTTP as it should be",
}
