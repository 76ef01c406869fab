"""What happens to bytes that are not the message a method takes?

gRPC would answer UNKNOWN and write a traceback into our log for every one of them. So our methods get their request
through `tolerant`, and what could not be read reaches `answering`, which refuses it like any other bad input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message import DecodeError


class Unreadable:
    """In the place of a request."""


UNREADABLE = Unreadable()


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
    def try_to_read(raw: bytes) -> object:
        try:
            return read(raw)
        except DecodeError:
            return UNREADABLE

    return try_to_read
