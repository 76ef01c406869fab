"""What does a server's refusal mean here? The same error that the engine in this process would have raised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from pulse.model import errors
from pulse.model.errors import PulseError, ServerUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


def _kinds(kind: type[PulseError] = PulseError) -> Iterator[type[PulseError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


KINDS = {kind.code: kind for kind in _kinds() if kind.__module__ == errors.__name__}
BY_STATUS: dict[grpc.StatusCode, type[PulseError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidInput,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: errors.Conflict,
}
INTERNAL = "internal"  # a mistake of the server's, which has answered; without the code it is the connection's
TOO_LARGE = "larger than max"  # as gRPC itself says it, on whichever side


def read_error(error: grpc.aio.AioRpcError) -> PulseError:
    """By the code that came with it; by its status if there is none, or none that this release knows."""
    code = dict(error.trailing_metadata() or ()).get("pulse-error")
    if code is None and TOO_LARGE in (error.details() or ""):
        words = f"{error.details()}: send it in parts, or raise PULSE_MESSAGE_LIMIT on both sides"
        return make_error(errors.BatchTooLarge, words)
    kind = PulseError if code == INTERNAL else KINDS.get(str(code)) or BY_STATUS.get(error.code(), ServerUnreachable)
    return make_error(kind, error.details() or error.code().name)


def make_error(kind: type[PulseError], message: str) -> PulseError:
    """With the words it came with: its own constructor would say them anew from what is not here."""
    made = kind.__new__(kind)
    Exception.__init__(made, message)
    return made
