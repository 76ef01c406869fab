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

MOST_FIELDS = 60_000  # of one message: more than the largest batch has items, and a worker can hold claims
SMALL = 16 << 10  # bytes: what is no larger is not counted


class Unreadable:
    """In the place of a request."""

    def __init__(self, error: PulseError) -> None:
        self.error = error


UNREADABLE = Unreadable(InvalidInput("the bytes of the request are not the message this method takes"))
TOO_MANY = Unreadable(InvalidInput(f"the request has more than {MOST_FIELDS:,} values: send them in parts"))


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
    inner = _parts_of(read.__self__.DESCRIPTOR)  # type: ignore[attr-defined]  # the message's class

    def try_to_read(raw: bytes) -> object:
        if len(raw) > SMALL and not _has_few_fields(raw, 0, len(raw), inner):
            return TOO_MANY
        try:
            return read(raw)
        except DecodeError:
            return UNREADABLE

    return try_to_read


Parts = dict[int, Any]  # the messages within a message, by the number of their field: themselves Parts


def _parts_of(descriptor: Any) -> Parts:  # noqa: ANN401  none of ours contains itself
    return {field.number: _parts_of(field.message_type) for field in descriptor.fields if field.message_type}


def _has_few_fields(raw: bytes, at: int, end: int, inner: Parts) -> bool:
    """Whether no message in these bytes has too many values. What is malformed is left to whoever reads it."""
    for _ in range(MOST_FIELDS):
        if at >= end:
            return True
        tag, at = _varint(raw, at, end)
        match tag & 7:
            case 0:
                _, at = _varint(raw, at, end)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                size, at = _varint(raw, at, end)
                within = inner.get(tag >> 3)
                if within and size > SMALL and not _has_few_fields(raw, at, min(at + size, end), within):
                    return False
                at += size
    return at >= end


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where the next thing begins."""
    found = shift = 0
    while at < end:
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            break
        shift += 7
    return found, at
