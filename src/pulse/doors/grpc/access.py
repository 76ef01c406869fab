"""Who is calling, may they, and is it too much?

Every call passes `Access` before it reaches a service. It knows the method and the token, and so whether the call can
be allowed at all. Which topic a call is about is known only to the service, once it has the job in hand: that is what
`caller.get().check(right, topic)` is for. Nothing of this may be forgotten for a new method, so a method without a
rule is refused.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import grpc

from pulse.doors.grpc.answering import end
from pulse.model.errors import Forbidden, LimitExceeded, PulseError, Unauthenticated
from pulse.model.text import check_name
from pulse.model.tokens import ADMIN, Right, hash_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from pulse.engine.tokens import Tokens
    from pulse.model.tokens import Scope, Token

    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Metadata = Iterable[tuple[str, str | bytes]] | None
    Behaviour = Callable[[object, Context], Any]  # of a service: a coroutine, or a generator of messages

CALLS_PER_SECOND = 5_000.0
STREAMS = 1_000
SHOWN_SCOPES = 10

# What each method needs; None: open to everyone who can connect. docs/reference/access.md is tested against it.
RULES: dict[str, Right | None] = {
    "/pulse.v1.Jobs/SubmitJobs": Right.SUBMIT,
    "/pulse.v1.Jobs/GetJob": Right.FOLLOW,
    "/pulse.v1.Jobs/WaitJob": Right.FOLLOW,
    "/pulse.v1.Jobs/CancelJob": Right.FOLLOW,
    "/pulse.v1.Work/StreamJobs": Right.WORK,
    "/pulse.v1.Work/UpdateCredit": Right.WORK,
    "/pulse.v1.Work/Heartbeat": Right.WORK,
    "/pulse.v1.Work/ReportResults": Right.WORK,
    "/pulse.v1.Work/ReportProgress": Right.WORK,
    "/pulse.v1.Work/ReleaseJobs": Right.WORK,
    "/pulse.v1.Operate/ListJobs": Right.OPERATE,
    "/pulse.v1.Operate/ListAttempts": Right.OPERATE,
    "/pulse.v1.Operate/CancelJobs": Right.OPERATE,
    "/pulse.v1.Operate/ReplayJobs": Right.OPERATE,
    "/pulse.v1.Operate/PauseTopic": Right.OPERATE,
    "/pulse.v1.Operate/ResumeTopic": Right.OPERATE,
    "/pulse.v1.Operate/ListTopics": Right.OPERATE,
    "/pulse.v1.Operate/ListWorkers": Right.OPERATE,
    "/pulse.v1.Schedules/CreateSchedule": Right.SUBMIT,
    "/pulse.v1.Schedules/GetSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/ListSchedules": Right.OPERATE,
    "/pulse.v1.Schedules/EditSchedule": Right.SUBMIT,
    "/pulse.v1.Schedules/PauseSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/ResumeSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/DeleteSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/TriggerSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/BackfillSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/PreviewSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/ListFires": Right.FOLLOW,
    "/pulse.v1.Schedules/SyncSchedules": Right.SUBMIT,
    "/pulse.v1.Alarms/SetAlarm": Right.SET_ALARM,
    "/pulse.v1.Alarms/GetAlarm": Right.TEND_ALARM,
    "/pulse.v1.Alarms/ListAlarms": Right.TEND_ALARM,
    "/pulse.v1.Alarms/CancelAlarm": Right.TEND_ALARM,
    "/pulse.v1.Alarms/PauseAlarm": Right.TEND_ALARM,
    "/pulse.v1.Alarms/ResumeAlarm": Right.TEND_ALARM,
    "/pulse.v1.Alarms/FireAlarm": Right.TEND_ALARM,
    "/pulse.v1.Alarms/ListDeliveries": Right.TEND_ALARM,
    "/pulse.v1.Alarms/GetWakeSecrets": Right.ADMIN,
    "/pulse.v1.Alarms/RotateWakeSecret": Right.ADMIN,
    "/pulse.v1.Admin/CreateToken": Right.ADMIN,
    "/pulse.v1.Admin/ListTokens": Right.ADMIN,
    "/pulse.v1.Admin/RevokeToken": Right.ADMIN,
    "/pulse.v1.Info/GetServerInfo": None,
    "/grpc.health.v1.Health/Check": None,
    "/grpc.health.v1.Health/Watch": None,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": None,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": None,
}

DEEDS = {
    Right.SUBMIT: ("submit jobs", "submit to topic {}"),
    Right.FOLLOW: ("follow jobs", "follow jobs of topic {}"),
    Right.WORK: ("work", "work on topic {}"),
    Right.OPERATE: ("operate", "operate topic {}"),
    Right.ADMIN: ("administer", "administer topic {}"),
    Right.SET_ALARM: ("set alarms", "set alarms of owner {}"),
    Right.TEND_ALARM: ("tend alarms", "tend alarms of owner {}"),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever makes this call, by their token and not by what they say of themselves."""

    name: str
    scopes: tuple[Scope, ...]
    is_trusted: bool = False  # authentication is off: there is no token behind it
    digest: bytes = field(default=b"", repr=False)

    def may(self, right: Right, topic: str | None = None) -> bool:
        """Without a topic: whether there is any for which it may."""
        return any(scope.grants(right, topic) for scope in self.scopes)

    def check(self, right: Right, topic: str | None = None) -> None:
        if not self.may(right, topic):
            raise Forbidden(self.name, _deed(right, topic), _listed(self.scopes))

    def worker_named(self, own: str) -> str:
        """A worker's name as rows have it: nobody can speak for a worker of another token."""
        return check_name("worker", f"{self.name}/{check_name('worker', own)}")


LOCAL = Caller("local", (ADMIN,), is_trusted=True)

caller: ContextVar[Caller] = ContextVar("caller")  # of the call under way


def _deed(right: Right, topic: str | None) -> str:
    general, of_topic = DEEDS[right]
    return general if topic is None else of_topic.format(repr(topic[:200]))


def _listed(scopes: tuple[Scope, ...]) -> str:
    shown = [str(scope) for scope in scopes[:SHOWN_SCOPES]]
    more = ["…"] if len(scopes) > SHOWN_SCOPES else []
    return ", ".join(shown + more) or "no scope that this server knows"


class Access(grpc.aio.ServerInterceptor):
    """Let calls in, or answer them with why not. Give it to the server before other interceptors."""

    def __init__(
        self,
        tokens: Tokens | None,
        *,
        calls_per_second: float = CALLS_PER_SECOND,
        streams: int = STREAMS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `tokens` there is no authentication, and everyone is `LOCAL`: for loopback in development only."""
        self._tokens = tokens
        self._rate = Rate(calls_per_second, clock)
        self._streams = streams
        self._open: Counter[str] = Counter()  # streams by token

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or (method in RULES and RULES[method] is None):
            return handler
        try:
            found = await self._admit(handler_call_details.invocation_metadata, RULES.get(method))
        except PulseError as error:
            return _refusal(error, method)
        return _wrap(handler, self._guard(handler, found, method))

    async def still_allowed(self, caller: Caller) -> bool:
        """Whether a stream that was opened may go on. Costs a statement every few seconds, for all streams together."""
        if self._tokens is None or caller.is_trusted:
            return True
        token = await self._tokens.find_hashed(caller.digest)
        return token is not None and token.is_usable

    def _guard(self, handler: Handler, found: Caller, method: str) -> Behaviour:
        behaviour = _behaviour(handler)

        async def answer_once(request: object, context: Context) -> object:
            caller.set(found)
            try:
                return await behaviour(request, context)
            except PulseError as error:
                await end(context, error, method)

        async def answer_in_a_stream(request: object, context: Context) -> AsyncGenerator[Any, None]:
            caller.set(found)
            try:
                self._open_stream(found, context)
                async with aclosing(behaviour(request, context)) as messages:
                    async for message in messages:
                        yield message
            except PulseError as error:
                await end(context, error, method)

        return answer_in_a_stream if handler.response_streaming else answer_once

    async def _admit(self, metadata: Metadata, right: Right | None) -> Caller:
        found = await self._authenticate(metadata)
        if right is None:
            raise Forbidden(found.name, "call this method", "no rule that would allow it")
        if not found.is_trusted:
            self._rate.take(found.name)
        found.check(right)
        return found

    async def _authenticate(self, metadata: Metadata) -> Caller:
        if self._tokens is None:
            return LOCAL
        secret = read_secret(metadata)
        token = await self._tokens.find(secret)
        if token is None:
            raise Unauthenticated("this token is not known here")
        check_usable(token)
        return Caller(token.name, token.scopes, digest=hash_of(secret))

    def _open_stream(self, found: Caller, context: Context) -> None:
        if not found.is_trusted and self._open[found.name] >= self._streams:
            raise LimitExceeded(
                found.name, f"has {self._streams:,} streams open, and no more are allowed: end one first"
            )
        self._open[found.name] += 1
        # Not `finally`: a generator whose call was cut while it sent something is closed whenever Python pleases.
        close: Any = lambda _: self._close_stream(found.name)  # noqa: E731  the stubs are about clients' callbacks
        context.add_done_callback(close)

    def _close_stream(self, name: str) -> None:
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


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


def read_secret(metadata: Metadata) -> str:
    given = [value for key, value in metadata or () if key == "authorization"]
    if not given:
        raise Unauthenticated("no token: send the metadata `authorization: Bearer <secret>`")
    scheme, _, secret = str(given[0]).partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer":
        raise Unauthenticated("the metadata `authorization` is not one `Bearer <secret>`")
    return secret.strip()


def check_usable(token: Token) -> None:
    """Only the holder of its secret gets here, so nothing is given away."""
    if token.revoked_at is not None:
        raise Unauthenticated(f"token {token.name!r} was revoked")
    if token.is_expired:
        raise Unauthenticated(f"token {token.name!r} has expired")


def _refusal(error: PulseError, method: str) -> Handler:
    """An answer to any kind of call. As if to a stream, so that not a byte of the request is waited for or read."""

    async def answer(_: object, context: Context) -> AsyncGenerator[bytes, None]:
        await end(context, error, method)
        yield b""

    return grpc.stream_stream_rpc_method_handler(cast("Any", answer))


# --- the four kinds of method

_MAKERS = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def _behaviour(handler: Handler) -> Behaviour:
    behaviours = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    found: Any = next(behaviour for behaviour in behaviours if behaviour is not None)
    return cast("Behaviour", found)


def _wrap(handler: Handler, behaviour: Behaviour) -> Handler:
    make: Any = _MAKERS[handler.request_streaming, handler.response_streaming]
    return cast("Handler", make(behaviour, handler.request_deserializer, handler.response_serializer))
