"""Who is calling, are they allowed to, and do they call too often? Every door uses this file.

A door knows the credentials of a call and the right that the call needs, and asks `Gate` to admit it. The topic of a
call is known only once its job has been read; `caller.get().check(right, topic)` then checks that.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import TYPE_CHECKING

from pulse.model.errors import Forbidden, LimitExceeded, ScheduleNotFound, Unauthenticated
from pulse.model.text import check_name
from pulse.model.tokens import ADMIN, PER_TOPIC, Right, ScopeKind, hash_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pulse.engine.tokens import Tokens
    from pulse.model.tokens import Scope, Token

CALLS_PER_SECOND = 5_000.0
SHOWN_SCOPES = 10  # in a message

# For each right: the smallest scopes that grant it, and what it allows, in general and for one topic or owner.
NEEDS: dict[Right, tuple[tuple[ScopeKind, ...], str, str]] = {
    Right.SUBMIT: ((ScopeKind.SUBMIT,), "submitting jobs", "submitting to topic {}"),
    Right.FOLLOW: ((ScopeKind.SUBMIT, ScopeKind.READ), "following jobs", "following jobs of topic {}"),
    Right.MANAGE: (
        (ScopeKind.SUBMIT, ScopeKind.OPERATE),
        "acting on jobs and schedules",
        "acting on jobs and schedules of topic {}",
    ),
    Right.WORK: ((ScopeKind.WORK,), "working", "working on topic {}"),
    Right.VIEW: ((ScopeKind.READ,), "listing", "listing what there is of topic {}"),
    Right.OPERATE: ((ScopeKind.OPERATE,), "operating", "operating topic {}"),
    Right.ADMIN: ((ScopeKind.ADMIN,), "administering", "administering topic {}"),
    Right.SET_ALARM: ((ScopeKind.ALARMS,), "setting alarms", "setting alarms of owner {}"),
    Right.VIEW_ALARM: ((ScopeKind.ALARMS, ScopeKind.READ), "viewing alarms", "viewing alarms of owner {}"),
    Right.MANAGE_ALARM: ((ScopeKind.ALARMS, ScopeKind.OPERATE), "managing alarms", "managing alarms of owner {}"),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request, as its token names it."""

    name: str
    scopes: tuple[Scope, ...]
    is_trusted: bool = False  # there is no token: authentication is off, or our own process calls
    digest: bytes = field(default=b"", repr=False)

    def may(self, right: Right, topic: str | None = None) -> bool:
        """Tell whether the caller has this right for the topic; without a topic, whether for any topic at all."""
        return any(scope.grants(right, topic) for scope in self.scopes)

    def check(self, right: Right, topic: str | None = None) -> None:
        if not self.may(right, topic):
            raise Forbidden(self.name, f"{_lack(right, topic)}; it has {_listed(self.scopes)}")

    def check_topics(self, topics: Sequence[str]) -> None:
        """Check that a starting worker may work on all of its topics; the error says how it could start."""
        allowed = [topic for topic in topics if self.may(Right.WORK, topic)]
        denied = [topic for topic in topics if not self.may(Right.WORK, topic)]
        if denied and not allowed:
            self.check(Right.WORK, denied[0])
        if denied:
            which, scopes = ("topic", "that scope") if len(denied) == 1 else ("topics", "those scopes")
            named = _some([repr(topic[:200]) for topic in denied])
            raise Forbidden(
                self.name,
                f"may not work on {which} {named}, only on {_some(allowed)}: give it {scopes}, or start the worker "
                f"with --topics {_some(allowed, ',')}",
            )

    def worker_named(self, own: str) -> str:
        """Return the name that a worker has in the rows: its token's name comes first, so that no other token can use
        it."""
        return check_name("worker", f"{self.name}/{check_name('worker', own)}")


LOCAL = Caller("local", (ADMIN,), is_trusted=True)

caller: ContextVar[Caller] = ContextVar("caller")  # of the current call


def check_logged(check: Callable[[Right, str], None], name: str, topic: str | None) -> None:
    """Check that the caller may read the log of a schedule.

    The topic of a deleted schedule is no longer known (None). Its log needs the right to follow jobs of every topic;
    other callers get ScheduleNotFound.
    """
    try:
        check(Right.FOLLOW, topic or "*")
    except Forbidden:
        if topic is None:
            raise ScheduleNotFound(name) from None
        raise


def _lack(right: Right, topic: str | None) -> str:
    """Say which scope is missing, and what needs it. The topic is escaped as `repr` does it: it may hold anything."""
    kinds, action, action_on = NEEDS[right]
    if topic in {None, "*"}:
        return f"lacks the scope {' or '.join(kinds)}, which {action} needs"
    shown = repr(str(topic)[:200])
    scopes = [f"{kind}:{shown[1:-1]}" if kind in PER_TOPIC else str(kind) for kind in kinds]
    return f"lacks the scope {' or '.join(scopes)}, which {action_on.format(shown)} needs"


def _listed(scopes: tuple[Scope, ...]) -> str:
    return _some([str(scope) for scope in scopes]) or "no scope that this server knows"


def _some(found: Sequence[str], comma: str = ", ") -> str:
    more = ["…"] if len(found) > SHOWN_SCOPES else []
    return comma.join([*found[:SHOWN_SCOPES], *more])


class Gate:
    """Admits calls, or raises an error that says why not. All doors of a server share one, so a token has one limit."""

    def __init__(
        self,
        tokens: Tokens | None,
        *,
        calls_per_second: float = CALLS_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
        admitted: bytes | None = None,
    ) -> None:
        """Create a gate that authenticates by `tokens`.

        Without `tokens` nobody is authenticated and every caller is `LOCAL`: for loopback in development only. With
        tokens, a caller whose secret has the hash `admitted` is `LOCAL`, too: only the process that started this
        server has that secret.
        """
        self._tokens = tokens
        self._admitted = admitted
        self._rate = Rate(calls_per_second, clock)

    @property
    def has_tokens(self) -> bool:
        return self._tokens is not None

    async def admit(self, credentials: Sequence[str], right: Right | None, *, where: str) -> Caller:
        """Return the caller, or raise why the call is not admitted.

        `credentials` are the values of all `authorization` fields of the call. `where` names the place of those fields
        in error messages: "header" or "metadata".
        """
        found = await self._authenticate(credentials, where)
        if right is None:
            raise Forbidden(found.name, "may not call this method: no rule allows it")
        if not found.is_trusted:
            self._rate.take(found.name)
        found.check(right)
        return found

    async def still_allowed(self, caller: Caller) -> bool:
        """Tell whether an open stream may go on. All streams together cost one statement every few seconds."""
        if self._tokens is None or caller.is_trusted:
            return True
        token = await self._tokens.find_hashed(caller.digest)
        return token is not None and token.is_usable

    async def _authenticate(self, credentials: Sequence[str], where: str) -> Caller:
        if self._tokens is None:
            return LOCAL
        secret = read_secret(credentials, where)
        if self._admitted is not None and compare_digest(hash_of(secret), self._admitted):
            return LOCAL
        token = await self._tokens.find(secret)
        if token is None:
            raise Unauthenticated("this token is not known here")
        check_usable(token)
        return Caller(token.name, token.scopes, digest=hash_of(secret))


class Rate:
    """A bucket of calls for each token. It fills at a constant rate, up to the calls of one second."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # by token: the calls left, and when they were counted

    def take(self, token: str) -> None:
        now = self._clock()
        left, since = self._left.get(token, (self._capacity, now))
        left = min(left + (now - since) * self._per_second, self._capacity)
        if left < 1:
            self._left[token] = (left, now)
            raise LimitExceeded(
                token, f"makes more than {self._per_second:,.10g} calls a second: try again in a moment"
            )
        self._left[token] = (left - 1, now)

    @property
    def _capacity(self) -> float:
        return max(self._per_second, 1.0)


def read_secret(credentials: Sequence[str], where: str) -> str:
    if not credentials:
        raise Unauthenticated(
            f"no token: set PULSE_TOKEN, or send the {where} `authorization: Bearer <secret>` (`pulse tokens create`)"
        )
    scheme, _, secret = credentials[0].partition(" ")
    if len(credentials) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated(f"the {where} `authorization` must be given once, as `Bearer <secret>`")
    return secret.strip()


def check_usable(token: Token) -> None:
    """Check that a token is neither revoked nor expired. The error may say which: the caller has shown its secret."""
    if token.revoked_at is not None:
        raise Unauthenticated(f"token {token.name!r} was revoked")
    if token.is_expired:
        raise Unauthenticated(f"token {token.name!r} has expired")
