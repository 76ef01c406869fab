"""Who is calling, may they, and is it too much? The same for every door.

A door knows what a call shows for itself and which right it needs, and asks `Gate` to admit it. Which topic a call is
about is known only once the job is in hand: that is what `caller.get().check(right, topic)` is for.
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
SHOWN_SCOPES = 10

# By right: the smallest scopes that have it, and what is done with it, at all and of one topic or owner.
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
    """Whoever makes this call, by their token and not by what they say of themselves."""

    name: str
    scopes: tuple[Scope, ...]
    is_trusted: bool = False  # authentication is off, or it is our own: there is no token behind it
    digest: bytes = field(default=b"", repr=False)

    def may(self, right: Right, topic: str | None = None) -> bool:
        """Without a topic: whether there is any for which it may."""
        return any(scope.grants(right, topic) for scope in self.scopes)

    def check(self, right: Right, topic: str | None = None) -> None:
        if not self.may(right, topic):
            raise Forbidden(self.name, f"{_lack(right, topic)}; it has {_listed(self.scopes)}")

    def check_topics(self, topics: Sequence[str]) -> None:
        """Check that a worker that is about to start may work on all of its topics, and say how it could start."""
        allowed = [topic for topic in topics if self.may(Right.WORK, topic)]
        denied = [topic for topic in topics if not self.may(Right.WORK, topic)]
        if denied and not allowed:
            self.check(Right.WORK, denied[0])
        if denied:
            which, scopes = ("topic", "that scope") if len(denied) == 1 else ("topics", "those scopes")
            named = _some([repr(topic[:200]) for topic in denied])
            raise Forbidden(
                self.name,
                f"may not work on {which} {named}; it may on {_some(allowed)}: give it {scopes}, or start the worker "
                f"with --topics {_some(allowed, ',')}",
            )

    def worker_named(self, own: str) -> str:
        """A worker's name as rows have it: nobody can speak for a worker of another token."""
        return check_name("worker", f"{self.name}/{check_name('worker', own)}")


LOCAL = Caller("local", (ADMIN,), is_trusted=True)

caller: ContextVar[Caller] = ContextVar("caller")  # of the call under way


def check_logged(check: Callable[[Right, str], None], name: str, topic: str | None) -> None:
    """Check that the log of a schedule may be read. Of one that was deleted (no topic) nobody knows the topic any more:
    it is for those who may follow jobs of every topic, and others are told of nothing."""
    try:
        check(Right.FOLLOW, topic or "*")
    except Forbidden:
        if topic is None:
            raise ScheduleNotFound(name) from None
        raise


def _lack(right: Right, topic: str | None) -> str:
    """Return which scope would do, and what for. A topic is shown as Python writes it: it may be anything."""
    kinds, deed, deed_of = NEEDS[right]
    if topic in {None, "*"}:
        return f"lacks the scope {' or '.join(kinds)}, which {deed} needs"
    shown = repr(str(topic)[:200])
    scopes = [f"{kind}:{shown[1:-1]}" if kind in PER_TOPIC else str(kind) for kind in kinds]
    return f"lacks the scope {' or '.join(scopes)}, which {deed_of.format(shown)} needs"


def _listed(scopes: tuple[Scope, ...]) -> str:
    return _some([str(scope) for scope in scopes]) or "no scope that this server knows"


def _some(found: Sequence[str], comma: str = ", ") -> str:
    more = ["…"] if len(found) > SHOWN_SCOPES else []
    return comma.join([*found[:SHOWN_SCOPES], *more])


class Gate:
    """Let calls in, or raise why not. All doors of a server share one, so that a token has one limit."""

    def __init__(
        self,
        tokens: Tokens | None,
        *,
        calls_per_second: float = CALLS_PER_SECOND,
        clock: Callable[[], float] = time.monotonic,
        admitted: bytes | None = None,
    ) -> None:
        """Without `tokens` there is no authentication, and everyone is `LOCAL`: for loopback in development only.

        So is whoever shows the secret with the hash `admitted`, which only the process that started this server has.
        """
        self._tokens = tokens
        self._admitted = admitted
        self._rate = Rate(calls_per_second, clock)

    @property
    def has_tokens(self) -> bool:
        return self._tokens is not None

    async def admit(self, shown: Sequence[str], right: Right | None, *, where: str) -> Caller:
        """`shown` is every `authorization` of the call, and `where` the word for the place it stands in."""
        found = await self._authenticate(shown, where)
        if right is None:
            raise Forbidden(found.name, "may not call this method: it has no rule that would allow it")
        if not found.is_trusted:
            self._rate.take(found.name)
        found.check(right)
        return found

    async def still_allowed(self, caller: Caller) -> bool:
        """Whether a stream that was opened may go on. Costs a statement every few seconds, for all streams together."""
        if self._tokens is None or caller.is_trusted:
            return True
        token = await self._tokens.find_hashed(caller.digest)
        return token is not None and token.is_usable

    async def _authenticate(self, shown: Sequence[str], where: str) -> Caller:
        if self._tokens is None:
            return LOCAL
        secret = read_secret(shown, where)
        if self._admitted is not None and compare_digest(hash_of(secret), self._admitted):
            return LOCAL
        token = await self._tokens.find(secret)
        if token is None:
            raise Unauthenticated("this token is not known here")
        check_usable(token)
        return Caller(token.name, token.scopes, digest=hash_of(secret))


class Rate:
    """A bucket of calls for each token, filled at an even rate up to one second's worth."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # by token: calls, and when that was so

    def take(self, token: str) -> None:
        now = self._clock()
        left, since = self._left.get(token, (self._most, now))
        left = min(left + (now - since) * self._per_second, self._most)
        if left < 1:
            self._left[token] = (left, now)
            raise LimitExceeded(
                token, f"makes more than {self._per_second:,.10g} calls a second: try again in a moment"
            )
        self._left[token] = (left - 1, now)

    @property
    def _most(self) -> float:
        return max(self._per_second, 1.0)


def read_secret(shown: Sequence[str], where: str) -> str:
    if not shown:
        raise Unauthenticated(
            f"no token: set PULSE_TOKEN, or send the {where} `authorization: Bearer <secret>` (`pulse tokens create`)"
        )
    scheme, _, secret = shown[0].partition(" ")
    if len(shown) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated(f"the {where} `authorization` is not one `Bearer <secret>`")
    return secret.strip()


def check_usable(token: Token) -> None:
    """Only the holder of its secret gets here, so nothing is given away."""
    if token.revoked_at is not None:
        raise Unauthenticated(f"token {token.name!r} was revoked")
    if token.is_expired:
        raise Unauthenticated(f"token {token.name!r} has expired")
