"""Who is looking, and was it they who asked?

With tokens, a visitor signs in by showing one and gets a session: a cookie that scripts cannot read and other sites
cannot send along. Without tokens (loopback in development) everybody is the local operator. In both cases a form must
carry a word that only our own pages know, and must come from our own pages: the browser says so in `Origin` or
`Sec-Fetch-Site`.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from pulse.doors.access import LOCAL, Caller, check_usable
from pulse.doors.dashboard.cookies import KEY, read_cookie
from pulse.doors.dashboard.live import MAX_OF_MANY, MAX_OF_ONE, Share
from pulse.doors.http.errors import Refused
from pulse.doors.http.requests.front import is_foreign
from pulse.doors.http.requests.proxies import address_of
from pulse.model.errors import Forbidden, Unauthenticated
from pulse.model.network.networks import read_proxies
from pulse.model.tokens import Right, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pulse.doors.http.services import Services

VIEWING = Right.VIEW  # what a token must grant for its holder to come in
SECURE_COOKIE, COOKIE = "__Host-pulse", "pulse_session"
FORM_WORD = "csrf"
HEADER_WORD = "x-pulse-csrf"
SHORTEST_LOCK = 60.0  # seconds
MAX_FAILURES = 10  # of signing in, within that time, from one address
MAX_ADDRESSES = 10_000

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Visitor:
    caller: Caller
    word: str  # which the forms of our pages carry
    secret: str | None = None  # of the session


class Guard:
    """One for all pages of a server."""

    def __init__(self, services: Services, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._proxies = read_proxies(services.settings.http_proxies)
        self._own_key = secrets.token_bytes(32)  # of this process, for visitors without a session
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    @property
    def has_sign_in(self) -> bool:
        return self._services.gate.has_tokens

    async def find_visitor(self, request: Request) -> Visitor | None:
        """None: they have to sign in first."""
        if not self.has_sign_in:
            return Visitor(LOCAL, self._word(self._own_key))
        secret = read_cookie(request, cookie_name(request), KEY)
        if secret is None:
            return None
        token_digest = await self._services.engine.sessions.find(secret)
        caller = await self._caller(token_digest) if token_digest else None
        return Visitor(caller, self._word(secret.encode()), secret) if caller else None

    async def is_token_usable(self, visitor: Visitor) -> bool:
        """Tell whether the token that opened this visitor's session is neither revoked nor expired."""
        return await self._services.gate.still_allowed(visitor.caller)

    async def _caller(self, token_digest: bytes) -> Caller | None:
        token = await self._services.engine.tokens.find_hashed(token_digest)
        if token is None or not token.is_usable:
            return None
        return Caller(token.name, token.scopes, digest=token_digest)

    @staticmethod
    def _word(key: bytes) -> str:
        return hmac.new(key, b"pulse forms", sha256).hexdigest()

    def check_form(self, request: Request, visitor: Visitor, word: str) -> None:
        """Whether it was one of our pages that sent this, at the will of whoever looks at it."""
        check_origin(request)
        if not hmac.compare_digest(word.encode(), visitor.word.encode()):
            raise Refused(403, "forbidden_form", "this form is out of date: load the page again, and send it once more")

    def shares(self, request: Request, visitor: Visitor) -> tuple[Share, ...]:
        """As whose a stream counts. Of the token, too: whoever has one can open as many sessions as they like."""
        if visitor.secret is None:
            return (Share("Your address", address_of(request, self._proxies), MAX_OF_MANY),)
        return (
            Share("Your session", visitor.word, MAX_OF_ONE),
            Share("Your token", visitor.caller.digest, MAX_OF_MANY),
        )

    # --- signing in and out

    async def sign_in(self, request: Request, secret: str) -> str:
        """Return the secret of a new session, never of one that was there before.

        A known token is let in however many wrong ones came from its address: behind a proxy an address is everybody,
        and nobody guesses 256 bits.
        """
        check_origin(request)
        token = await self._services.engine.tokens.find(secret.strip())
        if token is None:
            self._count_failure(address_of(request, self._proxies))
            raise Unauthenticated("this token is not known here")
        check_usable(token)
        caller = Caller(token.name, token.scopes)
        if not caller.may(VIEWING, "*"):
            has = ", ".join(map(str, token.scopes))
            raise Forbidden(token.name, f"lacks the scope read, which it needs to look at the dashboard; it has {has}")
        return await self._services.engine.sessions.open(hash_of(secret.strip()))

    async def sign_out(self, visitor: Visitor) -> None:
        if visitor.secret is not None:
            await self._services.engine.sessions.close(visitor.secret)

    def _count_failure(self, address: str) -> None:
        """Refuse further wrong tokens of an address that has sent many within a minute."""
        if len(self._failures) >= MAX_ADDRESSES:
            self._failures.clear()
        seen = self._failures.setdefault(address, deque(maxlen=MAX_FAILURES))
        is_guessing = len(seen) == MAX_FAILURES and self._clock() - seen[0] <= SHORTEST_LOCK
        seen.append(self._clock())
        if is_guessing:
            raise Refused(429, "limit_exceeded", "too many tokens that are not known here: wait a minute")


def check_origin(request: Request) -> None:
    """A form of another site is refused, whatever else it brings."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if is_foreign(origin, request.headers.get("host", "")) or site not in (None, "same-origin", "none"):
        raise Refused(403, "forbidden_origin", "forms of other sites are not taken")


def is_secure(request: Request) -> bool:
    """Behind a proxy that ends TLS, it says so. It is believed of anybody: whoever makes that up only gets a cookie
    they cannot send back, and a proxy that is not listed must not lead to a cookie that travels without TLS."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


def cookie_name(request: Request) -> str:
    return SECURE_COOKIE if is_secure(request) else COOKIE


def set_cookie(request: Request, answer: Response, secret: str) -> None:
    answer.set_cookie(cookie_name(request), secret, httponly=True, samesite="lax", secure=is_secure(request), path="/")


def drop_cookie(request: Request, answer: Response) -> None:
    answer.delete_cookie(cookie_name(request), httponly=True, samesite="lax", secure=is_secure(request), path="/")
