"""What happens to a request whose bytes are not its message, or that holds far too many values?

gRPC would answer UNKNOWN and log a traceback for every such request. So our methods get their requests through
`read_tolerantly`, which passes an `Unreadable` in the place of a request it cannot read. `handle_errors` then refuses
the call as any other invalid input.

The values of a request are counted before it is read. An empty job is two bytes on the wire and 300 in memory, so a
limit that is checked after reading would come too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pulse.model.errors import InvalidInput, PulseError

MAX_VALUES_OF_MESSAGE = 60_000  # more than the largest batch has items, and than a worker can hold claims
MAX_VALUES = 500_000  # of one request: fifty for each job of the largest batch, and some 30 MiB once they are read
NESTED_COST = 3  # a nested message counts as this many more values, since even an empty one takes hundreds of bytes
SMALL = 2 * MAX_VALUES_OF_MESSAGE  # bytes: these cannot hold too many values, since each takes two bytes at least


class Unreadable:
    """Stands in the place of a request that could not be read, with the error that says why."""

    def __init__(self, error: PulseError) -> None:
        self.error = error


UNREADABLE = Unreadable(InvalidInput("the bytes of the request are not the message that this method takes"))
TOO_MANY = Unreadable(
    InvalidInput(
        f"a message must have at most {MAX_VALUES_OF_MESSAGE:,} values, and a request {MAX_VALUES:,} in all: send it "
        "in parts"
    )
)


class TolerantServer:
    """A server that generated code adds its servicers to. It reads their requests through `read_tolerantly`."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore these handlers: generated code passes the same methods to `add_registered_method_handlers`."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        wrapped = {name: read_tolerantly(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, wrapped)])


def read_tolerantly(handler: Any) -> Any:  # noqa: ANN401
    """Return this handler with a reader that returns an `Unreadable` where the generated reader would raise."""
    make: Any = (
        grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    )
    behaviour = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return make(behaviour, _tolerant_reader(handler.request_deserializer), handler.response_serializer)


def _tolerant_reader(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    nested = _nested_fields(read.__self__.DESCRIPTOR)  # type: ignore[attr-defined]  # the message's class

    def try_to_read(raw: bytes) -> object:
        if len(raw) > SMALL and _count(raw, 0, len(raw), nested, MAX_VALUES) < 0:
            return TOO_MANY
        try:
            return read(raw)
        except DecodeError:
            return UNREADABLE

    return try_to_read


SIZES = {1: 8, 5: 4}  # bytes of a value, by its wire type
# The fields of a message that hold several values, by number: nested messages, or packed numbers (None).
NestedFields = dict[int, Any]


def _nested_fields(descriptor: Any) -> NestedFields:  # noqa: ANN401
    """Return the nested fields of a message and of the messages within it. None of our messages contains itself."""
    return {
        field.number: _nested_fields(field.message_type) if field.message_type else None
        for field in descriptor.fields
        if field.message_type or field.is_packed
    }


def _count(raw: bytes, at: int, end: int, nested: NestedFields, left: int) -> int:
    """Return how many more values there may be after those in these bytes; negative: there are too many already.

    Malformed bytes are not refused here: the generated reader does that. Most numbers have one byte, and to call a
    function for each of them would take twice as long.
    """
    for _ in range(MAX_VALUES_OF_MESSAGE):
        if at >= end or left < 0:
            return left
        left -= 1
        tag, at = (raw[at], at + 1) if raw[at] < 0x80 else _varint(raw, at, end)
        wire_type = tag & 7
        if wire_type == 2:
            size, at = (raw[at], at + 1) if at < end and raw[at] < 0x80 else _varint(raw, at, end)
            if tag >> 3 in nested:
                left = _count_within(raw, at, min(at + size, end), nested[tag >> 3], left)
            at += size
        elif wire_type == 0:
            _, at = _varint(raw, at, end)
        else:
            at += SIZES.get(wire_type, 0)
    return left if at >= end else -1


def _count_within(raw: bytes, at: int, end: int, nested: NestedFields | None, left: int) -> int:
    return left - (end - at) if nested is None else _count(raw, at, end, nested, left - NESTED_COST)


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number that begins here, and the position after it."""
    found = shift = 0
    while at < end:
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            break
        shift += 7
    return found, at
