"""Which inputs does the gRPC door have? Every text, list and map of every request, as the descriptors tell them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

import grpc
from google.protobuf.descriptor import FieldDescriptor

from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.costs.texts import SIZE, kinds_of, texts

ID = str(UUID(int=5))
# What a request must say to be looked at further, by the names of its fields.
BASE: dict[str, Any] = {
    "task": "t",
    "name": "n",
    "worker": "w",
    "topics": ["t"],
    "slots": 1,
    "cron": "* * * * *",
    "cron_expr": "* * * * *",
    "job_id": ID,
    "id": ID,
    "lease_id": 1,
    "outcome": 1,
    "value": "1",
    "url": "http://127.0.0.1:9/",
    "app": "a",
    "scopes": ["read"],
}
WITHIN = ("jobs", "pools", "reports", "progress", "leases", "schedule", "schedules", "job", "definition")
EXCLUSIVE = {"NewJob": ("id",), "SetAlarmRequest": ("id",), "ReplayJobsRequest": ("ids",)}


class Input(NamedTuple):
    method: str
    is_stream: bool
    path: tuple[FieldDescriptor, ...]

    def __str__(self) -> str:
        return f"{self.method.rpartition('/')[2]} {'.'.join(field.name for field in self.path)}"

    @property
    def name(self) -> str:
        return self.path[-1].name


def inputs() -> Iterator[Input]:
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            for path in _paths(method.input_type, ()):
                yield Input(f"/{service.full_name}/{method.name}", method.server_streaming, path)


def _paths(message: Any, before: tuple[FieldDescriptor, ...]) -> Iterator[tuple[FieldDescriptor, ...]]:
    for field in message.fields:
        path = (*before, field)
        is_text = field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
        if field.is_repeated or is_text:
            yield path
        if field.message_type and not field.message_type.full_name.startswith("google."):
            yield from _paths(field.message_type, path)


def requests(given: Input, *, every: bool) -> Iterator[tuple[str, bytes]]:
    """Each kind of a mebibyte there, and the bytes of the request."""
    field = given.path[-1]
    known = texts()
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        for kind in kinds_of(field.name, every=every):
            yield kind, request_of(given, _delimited(field, known[kind].encode()))
        if every or _is_first(given):  # the parser of messages refuses it, before anybody knows which field it was
            yield "no UTF-8", request_of(given, _delimited(field, b"\xff" * SIZE))
    if field.is_repeated:
        yield "many empty", request_of(given, _many_empty(field))
        yield "many different", request_of(given, _many_different(field))
    if _is_first(given):
        yield "unknown fields", request_of(given, b"\xf8\x07\x00" * (SIZE // 3))


def _is_first(given: Input) -> bool:
    return len(given.path) == 1 and given.path[0].number == 1


def request_of(given: Input, raw: bytes) -> bytes:
    """Around it, what has to be there."""
    for depth in reversed(range(len(given.path))):
        field = given.path[depth]
        raw = _base(field.containing_type, but=field) + raw
        if depth:
            raw = _delimited(given.path[depth - 1], raw)
    return raw


def _base(message: Any, but: FieldDescriptor | None = None) -> bytes:
    whole = message._concrete_class()
    for field in message.fields:
        if field is but or field.name in EXCLUSIVE.get(message.name, ()):
            continue
        if field.containing_oneof and but is not None and field.containing_oneof is but.containing_oneof:
            continue
        if field.message_type is None and field.name in BASE and not message.GetOptions().map_entry:
            value = BASE[field.name]
            if field.is_repeated:
                getattr(whole, field.name).extend(value)
            else:
                setattr(whole, field.name, value)
        elif field.name in WITHIN and field.message_type is not None:
            part = field.message_type._concrete_class.FromString(_base(field.message_type))
            if field.is_repeated:
                getattr(whole, field.name).append(part)
            else:
                getattr(whole, field.name).CopyFrom(part)
    return whole.SerializeToString()  # type: ignore[no-any-return]


def _many_empty(field: FieldDescriptor) -> bytes:
    empty = _delimited(field, b"")
    return empty * (SIZE // len(empty))


@cache
def _many_different(field: FieldDescriptor) -> bytes:
    first = _delimited(field, _item(field, 0))
    if _item(field, 1) == _item(field, 0):
        return first * (SIZE // len(first))
    return b"".join(_delimited(field, _item(field, number)) for number in range(SIZE // 10))


def _item(field: FieldDescriptor, number: int) -> bytes:
    if field.message_type is None:
        return f"{number:x}".encode() if field.type == FieldDescriptor.TYPE_STRING else b"\x01" * 20
    if field.message_type.GetOptions().map_entry:
        return b"\x0a\x05" + f"{number:05x}".encode()
    return _base(field.message_type)


def _delimited(field: FieldDescriptor, raw: bytes) -> bytes:
    return _varint(field.number << 3 | 2) + _varint(len(raw)) + raw


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def sender(channel: grpc.aio.Channel, given: Input, raw: bytes) -> Callable[[], Awaitable[str]]:
    """Its answer is the status it ended with."""

    async def send() -> str:
        try:
            if given.is_stream:
                open_stream: Any = channel.unary_stream(given.method)
                stream = open_stream(raw)
                await stream.read()
                stream.cancel()
            else:
                call: Any = channel.unary_unary(given.method)
                await call(raw)
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name} {error.details()}"
        return "OK"

    return send
