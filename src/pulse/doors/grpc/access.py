"""Who is calling over gRPC, and may they?

Every call passes `Access` before it reaches a service. `Access` knows the method and the token, so it refuses a call
that no topic could make legal; the service then checks the topic. A new method must not go unchecked because somebody
forgot it here, so a method without a rule is refused.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import grpc

from pulse.doors.access import CALLS_PER_SECOND, Caller, Gate, caller
from pulse.doors.grpc.errors import end, when_call_ends
from pulse.model.errors import LimitExceeded, LimitReached, PulseError
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from pulse.engine.tokens import Tokens

    Context = grpc.aio.ServicerContext[Any, Any]
    Handler = grpc.RpcMethodHandler[Any, Any]
    Metadata = Iterable[tuple[str, str | bytes]] | None
    Behaviour = Callable[[object, Context], Any]  # a method of a service: a coroutine, or a generator of messages

STREAMS = 1_000  # open at once, for each token
ANONYMOUS_STREAMS = 1_000  # open at once, of all methods that need no token, such as Health/Watch

# The right that each method needs; None: everyone who can connect may call it. docs/reference/access.md is tested
# against this table.
RULES: dict[str, Right | None] = {
    "/pulse.v1.Jobs/SubmitJobs": Right.SUBMIT,
    "/pulse.v1.Jobs/GetJob": Right.FOLLOW,
    "/pulse.v1.Jobs/WaitJob": Right.FOLLOW,
    "/pulse.v1.Jobs/CancelJob": Right.MANAGE,
    "/pulse.v1.Work/StreamJobs": Right.WORK,
    "/pulse.v1.Work/UpdateCredit": Right.WORK,
    "/pulse.v1.Work/Heartbeat": Right.WORK,
    "/pulse.v1.Work/ReportResults": Right.WORK,
    "/pulse.v1.Work/ReportProgress": Right.WORK,
    "/pulse.v1.Work/ReleaseJobs": Right.WORK,
    "/pulse.v1.Work/GetDeadLetter": Right.WORK,
    "/pulse.v1.Operate/ListJobs": Right.VIEW,
    "/pulse.v1.Operate/ListAttempts": Right.VIEW,
    "/pulse.v1.Operate/ExplainJob": Right.VIEW,
    "/pulse.v1.Operate/CancelJobs": Right.OPERATE,
    "/pulse.v1.Operate/ReplayJobs": Right.OPERATE,
    "/pulse.v1.Operate/RunJobNow": Right.OPERATE,
    "/pulse.v1.Operate/PauseTopic": Right.OPERATE,
    "/pulse.v1.Operate/ResumeTopic": Right.OPERATE,
    "/pulse.v1.Operate/ListTopics": Right.VIEW,
    "/pulse.v1.Operate/ListWorkers": Right.VIEW,
    "/pulse.v1.Operate/GetOverview": Right.VIEW,
    "/pulse.v1.Schedules/CreateSchedule": Right.SUBMIT,
    "/pulse.v1.Schedules/GetSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/ListSchedules": Right.VIEW,
    "/pulse.v1.Schedules/EditSchedule": Right.SUBMIT,
    "/pulse.v1.Schedules/PauseSchedule": Right.MANAGE,
    "/pulse.v1.Schedules/ResumeSchedule": Right.MANAGE,
    "/pulse.v1.Schedules/DeleteSchedule": Right.MANAGE,
    "/pulse.v1.Schedules/TriggerSchedule": Right.MANAGE,
    "/pulse.v1.Schedules/BackfillSchedule": Right.MANAGE,
    "/pulse.v1.Schedules/PreviewSchedule": Right.FOLLOW,
    "/pulse.v1.Schedules/ListFires": Right.FOLLOW,
    "/pulse.v1.Schedules/SyncSchedules": Right.SUBMIT,
    "/pulse.v1.Alarms/SetAlarm": Right.SET_ALARM,
    "/pulse.v1.Alarms/GetAlarm": Right.VIEW_ALARM,
    "/pulse.v1.Alarms/ListAlarms": Right.VIEW_ALARM,
    "/pulse.v1.Alarms/CancelAlarm": Right.MANAGE_ALARM,
    "/pulse.v1.Alarms/PauseAlarm": Right.MANAGE_ALARM,
    "/pulse.v1.Alarms/ResumeAlarm": Right.MANAGE_ALARM,
    "/pulse.v1.Alarms/FireAlarm": Right.MANAGE_ALARM,
    "/pulse.v1.Alarms/ListDeliveries": Right.VIEW_ALARM,
    "/pulse.v1.Alarms/GetWakeSecrets": Right.SET_ALARM,
    "/pulse.v1.Alarms/RotateWakeSecret": Right.SET_ALARM,
    "/pulse.v1.Admin/CreateToken": Right.ADMIN,
    "/pulse.v1.Admin/ListTokens": Right.ADMIN,
    "/pulse.v1.Admin/RevokeToken": Right.ADMIN,
    "/pulse.v1.Info/GetServerInfo": None,
    "/grpc.health.v1.Health/Check": None,
    "/grpc.health.v1.Health/Watch": None,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": None,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": None,
}


class Access(Gate, grpc.aio.ServerInterceptor):
    """A `Gate` as an interceptor, which ends the calls it does not admit. It must be the server's first interceptor."""

    def __init__(
        self,
        tokens: Tokens | None,
        *,
        calls_per_second: float = CALLS_PER_SECOND,
        streams: int = STREAMS,
        anonymous_streams: int = ANONYMOUS_STREAMS,
        clock: Callable[[], float] = time.monotonic,
        admitted: bytes | None = None,
    ) -> None:
        super().__init__(tokens, calls_per_second=calls_per_second, clock=clock, admitted=admitted)
        self._max_streams = streams
        self._open: Counter[str] = Counter()  # streams by token
        self._max_anonymous = anonymous_streams
        self._anonymous = 0  # streams of methods that need no token

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return None
        if method in RULES and RULES[method] is None:
            return _wrap(handler, self._guard_open(handler, method)) if handler.response_streaming else handler
        try:
            credentials = _credentials_in(handler_call_details.invocation_metadata)
            found = await self.admit(credentials, RULES.get(method), where="metadata")
        except PulseError as error:
            return _error_handler(error, method)
        return _wrap(handler, self._guard(handler, found, method))

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
                self._open_stream(found)
                async with aclosing(behaviour(request, context)) as messages:
                    async for message in messages:
                        yield message
            except PulseError as error:
                await end(context, error, method)

        return answer_in_a_stream if handler.response_streaming else answer_once

    def _guard_open(self, handler: Handler, method: str) -> Behaviour:
        """Limit the streams that need no token. Nobody knows whose they are, so they share one limit."""
        behaviour = _behaviour(handler)

        async def answer_with_messages(request: object, context: Context) -> AsyncGenerator[Any, None]:
            await self._open_anonymous_stream(context, method)
            async with aclosing(behaviour(request, context)) as messages:
                async for message in messages:
                    yield message

        async def answer_by_writing(request: object, context: Context) -> None:
            await self._open_anonymous_stream(context, method)
            await behaviour(request, context)

        return answer_with_messages if inspect.isasyncgenfunction(behaviour) else answer_by_writing

    async def _open_anonymous_stream(self, context: Context, method: str) -> None:
        if self._anonymous >= self._max_anonymous:
            message = (
                f"{self._max_anonymous:,} streams without a token are open, and no more are allowed: try again later"
            )
            await end(context, LimitReached(message), method)
        self._anonymous += 1
        when_call_ends(self._close_anonymous_stream)

    def _close_anonymous_stream(self) -> None:
        self._anonymous -= 1

    def _open_stream(self, found: Caller) -> None:
        if not found.is_trusted and self._open[found.name] >= self._max_streams:
            raise LimitExceeded(
                found.name, f"has {self._max_streams:,} streams open, and no more are allowed: end one first"
            )
        self._open[found.name] += 1
        when_call_ends(lambda: self._close_stream(found.name))

    def _close_stream(self, name: str) -> None:
        self._open[name] -= 1
        if not self._open[name]:
            del self._open[name]


def _credentials_in(metadata: Metadata) -> list[str]:
    return [str(value) for key, value in metadata or () if key == "authorization"]


def _error_handler(error: PulseError, method: str) -> Handler:
    """Return a handler that ends any kind of call with this error.

    It handles every call as a stream, so that it neither waits for the request nor reads a byte of it.
    """

    async def refuse(_: object, context: Context) -> AsyncGenerator[bytes, None]:
        await end(context, error, method)
        yield b""

    return grpc.stream_stream_rpc_method_handler(cast("Any", refuse))


# --- the four kinds of method

_HANDLER_FACTORIES = {  # by whether the request and the response are streams
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
    make: Any = _HANDLER_FACTORIES[handler.request_streaming, handler.response_streaming]
    return cast("Handler", make(behaviour, handler.request_deserializer, handler.response_serializer))
