"""Who visits the dashboard, and did one of our own pages send the request?

With tokens, a visitor signs in with one and gets a session: a cookie that scripts cannot read and other sites cannot
send. Without tokens (loopback in development) everybody is the local operator. In both cases a form must carry a CSRF
token that only our own pages have, and must come from our own pages, which the browser tells in `Origin` or
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
from pulse.doors.dashboard.live import MAX_OF_MANY, MAX_OF_ONE, StreamLimit
from pulse.doors.http.errors import HttpRefusal
from pulse.doors.http.requests.proxies import address_of
from pulse.doors.http.requests.security_headers import is_foreign
from pulse.model.errors import Forbidden, Unauthenticated
from pulse.model.network.networks import read_proxies
from pulse.model.tokens import Right, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pulse.doors.http.services import Services

VIEWING = Right.VIEW  # the right that a token needs to sign in
SECURE_COOKIE, COOKIE = "__Host-pulse", "pulse_session"
CSRF_FIELD = "csrf"
CSRF_HEADER = "x-pulse-csrf"
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
    csrf_token: str  # which the forms of our pages carry
    secret: str | None = None  # of the session


class Guard:
    """Finds the visitors of a server's pages, and signs them in and out."""

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
        """Return the visitor; None: they have to sign in first."""
        if not self.has_sign_in:
            return Visitor(LOCAL, self._csrf_token(self._own_key))
        secret = read_cookie(request, cookie_name(request), KEY)
        if secret is None:
            return None
        token_digest = await self._services.engine.sessions.find(secret)
        caller = await self._caller(token_digest) if token_digest else None
        return Visitor(caller, self._csrf_token(secret.encode()), secret) if caller else None

    async def is_token_usable(self, visitor: Visitor) -> bool:
        """Tell whether the token that opened this visitor's session is neither revoked nor expired."""
        return await self._services.gate.still_allowed(visitor.caller)

    async def _caller(self, token_digest: bytes) -> Caller | None:
        token = await self._services.engine.tokens.find_hashed(token_digest)
        if token is None or not token.is_usable:
            return None
        return Caller(token.name, token.scopes, digest=token_digest)

    @staticmethod
    def _csrf_token(key: bytes) -> str:
        return hmac.new(key, b"pulse forms", sha256).hexdigest()

    def check_form(self, request: Request, visitor: Visitor, csrf_token: str) -> None:
        """Check that one of our own pages sent this form, and that it was drawn for this visitor."""
        check_origin(request)
        if not hmac.compare_digest(csrf_token.encode(), visitor.csrf_token.encode()):
            raise HttpRefusal(
                403, "forbidden_form", "this form is out of date: load the page again, and send it once more"
            )

    def stream_limits(self, request: Request, visitor: Visitor) -> tuple[StreamLimit, ...]:
        """Return the limits that a stream of this visitor counts towards.

        One of them is the token's, since its holder can open any number of sessions.
        """
        if visitor.secret is None:
            return (StreamLimit("Your address", address_of(request, self._proxies), MAX_OF_MANY),)
        return (
            StreamLimit("Your session", visitor.csrf_token, MAX_OF_ONE),
            StreamLimit("Your token", visitor.caller.digest, MAX_OF_MANY),
        )

    # --- signing in and out

    async def sign_in(self, request: Request, secret: str) -> str:
        """Open a new session, and return its secret.

        A known token is accepted however many wrong ones came from its address: behind a proxy everybody may have one
        address, and nobody guesses 256 bits.
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
            raise Forbidden(token.name, f"lacks the scope read, which the dashboard needs; it has {has}")
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
            raise HttpRefusal(429, "limit_exceeded", "too many unknown tokens: try again in a minute")


def check_origin(request: Request) -> None:
    """Refuse a form of another site."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if is_foreign(origin, request.headers.get("host", "")) or site not in (None, "same-origin", "none"):
        raise HttpRefusal(403, "forbidden_origin", "forms of other sites are refused")


def is_secure(request: Request) -> bool:
    """Tell whether the browser uses TLS, either to us or to a proxy that says so.

    Every client is believed that says so. A client that lies only gets a cookie that it cannot send back, while a
    proxy that is not listed must not lead to a cookie that is sent without TLS.
    """
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto", "").lower() == "https"


def cookie_name(request: Request) -> str:
    return SECURE_COOKIE if is_secure(request) else COOKIE


def set_cookie(request: Request, answer: Response, secret: str) -> None:
    answer.set_cookie(cookie_name(request), secret, httponly=True, samesite="lax", secure=is_secure(request), path="/")


def drop_cookie(request: Request, answer: Response) -> None:
    answer.delete_cookie(cookie_name(request), httponly=True, samesite="lax", secure=is_secure(request), path="/")
