"""Stand-in until the real one is merged."""

from __future__ import annotations

import functools
from typing import Any

import grpc

from pulse.model.errors import Conflict, InvalidInput, NotFound, PulseError, Unavailable

CODES = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}


async def refuse(context: Any, error: PulseError) -> None:  # noqa: ANN401
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    await context.abort(code, str(error), trailing_metadata=(("pulse-error", error.code),))


def answering(method: Any) -> Any:  # noqa: ANN401
    @functools.wraps(method)
    async def call(self: Any, request: Any, context: Any) -> Any:  # noqa: ANN401
        try:
            return await method(self, request, context)
        except PulseError as error:
            await refuse(context, error)

    return call


def streaming(method: Any) -> Any:  # noqa: ANN401
    @functools.wraps(method)
    async def call(self: Any, request: Any, context: Any) -> Any:  # noqa: ANN401
        try:
            async for message in method(self, request, context):
                yield message
        except PulseError as error:
            await refuse(context, error)

    return call
