"""How does a gRPC call end when it fails?

Every service method carries the decorator `handle_errors`, so all of them fail alike. A `PulseError` becomes its
status, its message and its code. Anything else is a mistake in the server: the log gets the traceback, and the client
learns only that the call failed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc

from pulse.doors.grpc.reading import Unreadable
from pulse.doors.status_codes import ERROR_TRAILER, INTERNAL_CODE, status_of, trailers_of
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("pulse.server")

# Messages travel in a header, where each byte that is not plain ASCII takes three, and clients accept 8 KiB of headers.
LONGEST_MESSAGE = 1_500  # bytes

M = TypeVar("M", bound="Callable[..., Any]")
Context = Any  # grpc.aio.ServicerContext, whose stubs have type parameters that nothing here uses


def handle_errors(method: M) -> M:
    """End the call as `end` does when this service method raises. It may return one message or stream many."""
    wrapped = _wrap_stream(method) if inspect.isasyncgenfunction(method) else _wrap_unary(method)
    return wraps(method)(wrapped)  # type: ignore[return-value]


def _wrap_unary(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(self: object, request: object, context: Context) -> Any:  # noqa: ANN401
        try:
            return await method(self, _check_readable(request), context)
        except Exception as error:
            await end(context, error, method.__name__)

    return call


def _wrap_stream(method: Callable[..., Any]) -> Callable[..., Any]:
    async def call(self: object, request: object, context: Context) -> Any:  # noqa: ANN401
        try:
            async for message in method(self, _check_readable(request), context):
                yield message
        except Exception as error:
            await end(context, error, method.__name__)

    return call


def _check_readable(request: object) -> object:
    if isinstance(request, Unreadable):
        raise request.error
    return request


async def end(context: Context, error: Exception, method: str) -> NoReturn:
    """End the call with the status and the message of this error. Interceptors use it, too, to refuse a call."""
    if isinstance(error, grpc.aio.AbortError):  # the call has been ended already
        raise error
    if isinstance(error, PulseError):
        await _abort(context, status_of(error), _cut(str(error)), trailers_of(error))
    log.error("%s failed", method, exc_info=error)
    message = f"{method} failed; the server's log says why"
    await _abort(context, grpc.StatusCode.INTERNAL, message, ((ERROR_TRAILER, INTERNAL_CODE),))


async def _abort(
    context: Context, status: grpc.StatusCode, message: str, trailers: tuple[tuple[str, str], ...]
) -> NoReturn:
    """Abort the call, and free its memory as soon as the call is over.

    The context refers to the exception that aborts it, and the exception's traceback refers to the context and so to
    the request of up to 16 MiB. That cycle would wait for Python's garbage collector, which counts objects and not
    their size.
    """
    try:
        await context.abort(status, message, trailers)
    except grpc.aio.AbortError as aborted:
        when_call_ends(partial(_forget_traceback, aborted))
        raise
    raise AssertionError("abort raises")


def _forget_traceback(error: BaseException) -> None:
    error.__traceback__ = error.__context__ = None


def when_call_ends(run: Callable[[], None]) -> None:
    """Run this function when the call of the current task is over, however it ends.

    A `finally` would not do: when the client cuts a call while the server sends, Python closes the generator at some
    later time. Nor would `context.add_done_callback`, which ties the context and its call into a cycle: the 17 KB of
    native memory of an ended call would then wait for Python's garbage collector, which does not count native memory.
    """
    task = asyncio.current_task()
    assert task is not None, "gRPC runs every call in a task"
    task.add_done_callback(lambda _: run())


def _cut(message: str) -> str:
    raw = message.encode(errors="replace")
    return message if len(raw) <= LONGEST_MESSAGE else raw[:LONGEST_MESSAGE].decode(errors="ignore") + "…"
