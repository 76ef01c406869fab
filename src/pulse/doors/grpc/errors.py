"""How does a call end when something went wrong? In one way for all of them, so every service method wears this.

An error of ours becomes its status, its message and its code. Anything else is a mistake in the server: the log has the
whole of it, and the client learns only that there was one.
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

# Messages travel in a header, three bytes for each byte that is not plain ASCII, and clients take 8 KiB of headers.
LONGEST_MESSAGE = 1_500  # bytes

M = TypeVar("M", bound="Callable[..., Any]")
Context = Any  # grpc.aio.ServicerContext, whose stubs are generic in what nobody here needs


def answering(method: M) -> M:
    """Turn what a service method raises into the end of its call; for those that answer once and those that stream."""
    wrapped = _streaming(method) if inspect.isasyncgenfunction(method) else _unary(method)
    return wraps(method)(wrapped)  # type: ignore[return-value]


def _unary(method: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(self: object, request: object, context: Context) -> Any:  # noqa: ANN401
        try:
            return await method(self, _readable(request), context)
        except Exception as error:
            await end(context, error, method.__name__)

    return answer


def _streaming(method: Callable[..., Any]) -> Callable[..., Any]:
    async def answer(self: object, request: object, context: Context) -> Any:  # noqa: ANN401
        try:
            async for message in method(self, _readable(request), context):
                yield message
        except Exception as error:
            await end(context, error, method.__name__)

    return answer


def _readable(request: object) -> object:
    if isinstance(request, Unreadable):
        raise request.error
    return request


async def end(context: Context, error: Exception, method: str) -> NoReturn:
    """End the call as this error says. Also for interceptors, which refuse before there is a method."""
    if isinstance(error, grpc.aio.AbortError):  # ended already
        raise error
    if isinstance(error, PulseError):
        await _abort(context, status_of(error), _cut(str(error)), trailers_of(error))
    log.error("%s failed", method, exc_info=error)
    told = f"{method} failed; the server's log says why"
    await _abort(context, grpc.StatusCode.INTERNAL, told, ((ERROR_TRAILER, INTERNAL_CODE),))


async def _abort(
    context: Context, status: grpc.StatusCode, message: str, trailers: tuple[tuple[str, str], ...]
) -> NoReturn:
    """Abort the call, and free its memory as soon as it is over.

    The context keeps the exception that aborts it, and the exception's traceback keeps the context, with the request of
    up to 16 MiB. That cycle would wait for Python's collector, which counts objects and not their size.
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
    """Run this when the call that the current task answers is over, however it ends.

    A `finally` would not do: a generator whose call was cut while it sent something is closed whenever Python pleases.
    Nor would `context.add_done_callback`, which ties the context and its call into a cycle: the 17 KB of native memory
    of an ended call then wait for Python's collector, which counts objects and knows nothing of them.
    """
    task = asyncio.current_task()
    assert task is not None, "gRPC answers every call in a task"
    task.add_done_callback(lambda _: run())


def _cut(message: str) -> str:
    raw = message.encode(errors="replace")
    return message if len(raw) <= LONGEST_MESSAGE else raw[:LONGEST_MESSAGE].decode(errors="ignore") + "…"
