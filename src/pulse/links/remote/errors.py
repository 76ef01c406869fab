"""Which error does a server's refusal become? The one that an engine in this process would have raised."""

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
INTERNAL = "internal"  # a bug of the server, which did answer; without this code the connection failed
TOO_LARGE = "larger than max"  # part of gRPC's own message, on either side


def read_error(error: grpc.aio.AioRpcError) -> PulseError:
    """Return the error for the code that came with it, or for its gRPC status if the code is not known here."""
    code = dict(error.trailing_metadata() or ()).get("pulse-error")
    if code is None and TOO_LARGE in (error.details() or ""):
        text = f"{error.details()}: send it in parts, or raise PULSE_MESSAGE_LIMIT on both sides"
        return make_error(errors.BatchTooLarge, text)
    kind = PulseError if code == INTERNAL else KINDS.get(str(code)) or BY_STATUS.get(error.code(), ServerUnreachable)
    return make_error(kind, error.details() or error.code().name)


def make_error(kind: type[PulseError], message: str) -> PulseError:
    """Make an error with the server's message. Its own constructor would need values that are not known here."""
    made = kind.__new__(kind)
    Exception.__init__(made, message)
    return made
