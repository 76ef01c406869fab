"""What happens to bytes that are not the message a method takes, or are more of it than anybody means?

gRPC would answer UNKNOWN and write a traceback into our log for every one of them. So our methods get their request
through `tolerant`, and what could not be read reaches `answering`, which refuses it like any other bad input.

A message is counted before it is read. An empty job is two bytes on the wire and 300 in memory, so that all limits
that are checked on what was read would come too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from pulse.model.errors import InvalidInput, PulseError

MAX_OF_ONE = 60_000  # values of one message: more than the largest batch has items, and a worker can hold claims
MAX_VALUES = 500_000  # of one request: fifty for each job of the largest batch, and some 30 MiB once they are read
OF_A_MESSAGE = 3  # a message within is as many values more, since even an empty one takes hundreds of bytes
SMALL = 2 * MAX_OF_ONE  # bytes: in no more there cannot be too many, as each value has two at least


class Unreadable:
    """In the place of a request."""

    def __init__(self, error: PulseError) -> None:
        self.error = error


UNREADABLE = Unreadable(InvalidInput("the bytes of the request are not the message this method takes"))
TOO_MANY = Unreadable(
    InvalidInput(f"more than {MAX_OF_ONE:,} values of one message, or {MAX_VALUES:,} in all: send them in parts")
)


class TolerantServer:
    """What generated code adds a servicer to: the server behind it, with every request read tolerantly."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The same methods come once more, by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        readable = {name: tolerant(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, readable)])


def tolerant(handler: Any) -> Any:  # noqa: ANN401
    make: Any = (
        grpc.unary_stream_rpc_method_handler if handler.response_streaming else grpc.unary_unary_rpc_method_handler
    )
    behavior = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return make(behavior, _forgiving(handler.request_deserializer), handler.response_serializer)


def _forgiving(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    parts = _parts_of(read.__self__.DESCRIPTOR)  # type: ignore[attr-defined]  # the message's class

    def try_to_read(raw: bytes) -> object:
        if len(raw) > SMALL and _count(raw, 0, len(raw), parts, MAX_VALUES) < 0:
            return TOO_MANY
        try:
            return read(raw)
        except DecodeError:
            return UNREADABLE

    return try_to_read


SIZES = {1: 8, 5: 4}  # bytes of a value, by its kind
# What is within a message, by the number of its field: other messages, or numbers without anything between them (None).
Parts = dict[int, Any]


def _parts_of(descriptor: Any) -> Parts:  # noqa: ANN401  none of ours contains itself
    return {
        field.number: _parts_of(field.message_type) if field.message_type else None
        for field in descriptor.fields
        if field.message_type or field.is_packed
    }


def _count(raw: bytes, at: int, end: int, parts: Parts, left: int) -> int:
    """Return how many more values there may be after those in these bytes; negative: there are too many already.

    What is malformed is left to whoever reads it. Most numbers have one byte, and to call a function for each would
    take twice as long.
    """
    for _ in range(MAX_OF_ONE):
        if at >= end or left < 0:
            return left
        left -= 1
        tag, at = (raw[at], at + 1) if raw[at] < 0x80 else _varint(raw, at, end)
        kind = tag & 7
        if kind == 2:
            size, at = (raw[at], at + 1) if at < end and raw[at] < 0x80 else _varint(raw, at, end)
            if tag >> 3 in parts:
                left = _count_within(raw, at, min(at + size, end), parts[tag >> 3], left)
            at += size
        elif kind == 0:
            _, at = _varint(raw, at, end)
        else:
            at += SIZES.get(kind, 0)
    return left if at >= end else -1


def _count_within(raw: bytes, at: int, end: int, parts: Parts | None, left: int) -> int:
    return left - (end - at) if parts is None else _count(raw, at, end, parts, left - OF_A_MESSAGE)


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number, and where the next thing begins."""
    found = shift = 0
    while at < end:
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            break
        shift += 7
    return found, at
