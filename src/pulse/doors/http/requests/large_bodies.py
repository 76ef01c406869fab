"""How is a large body read without building everything in it?

One byte of JSON may become forty in memory, and six hundred if each wrong item gets an error of its own. So of a large
body only the outline is read: the fields of its objects, each still as text. Payloads remain text. None of the other
fields may be large, all of them together must not have too many values, and there may be as many items as a batch has.
Within these limits the body is then built as a small one.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from pydantic import BaseModel

from pulse.doors.http.field_types import DECODER, Body
from pulse.model.errors import BatchTooLarge, InvalidInput, InvalidPayload
from pulse.model.jobs import BATCH_LIMIT
from pulse.model.text import PAYLOAD_LIMIT

SMALL = 16 << 10  # bytes of a body that is built at once
FIELD_LIMIT = 64 << 10  # bytes of a field that is not a payload
VALUES_LIMIT = 300_000  # in lists and objects of all these fields together: thirty for each job of the largest batch

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.(.*)`)?", re.DOTALL)
_items: ContextVar[int] = ContextVar("items")
_values: ContextVar[int] = ContextVar("values")


def read_outline(model: type[BaseModel], body: bytes) -> dict[str, Any]:
    """Return the body as `DECODER` would read it, but with payloads as `Raw`."""
    _items.set(0)
    _values.set(0)
    try:
        outline = msgspec.json.decode(body, type=_outline_of(model))
    except msgspec.ValidationError as error:
        msgspec.json.decode(body, type=Raw)  # raises another error if the body is not JSON at all
        raise InvalidInput(_message_of(str(error))) from None
    return _build(model, outline)


def model_of(annotation: Any) -> type[BaseModel]:  # noqa: ANN401
    """Return the model of the body that a route takes; the body may be optional."""
    return next(kind for kind in get_args(annotation) or (annotation,) if kind is not NoneType)  # type: ignore[no-any-return]


def _item_of(annotation: Any) -> type[BaseModel] | None:  # noqa: ANN401
    """Return the model of the items if this annotation is a list of objects."""
    [item] = get_args(annotation) if get_origin(annotation) is list else [None]
    return item if isinstance(item, type) and issubclass(item, Body) else None


@cache
def _outline_of(model: type[BaseModel]) -> type[Struct]:
    fields: list[tuple[str, Any, Any]] = []
    for name, field in model.model_fields.items():
        item = _item_of(field.annotation)
        kind: Any = Raw if item is None else list[_outline_of(item)]  # type: ignore[misc]
        fields.append((name, kind | UnsetType, UNSET))
    return msgspec.defstruct(
        model.__name__, fields, namespace={"__post_init__": _count}, forbid_unknown_fields=True, gc=False
    )


def _count(_: Struct) -> None:
    """Count each object while it is read, so that reading stops at the first one too many."""
    _items.set(found := _items.get() + 1)
    if found > BATCH_LIMIT + 1:  # the items, and the object that holds them
        raise BatchTooLarge("items or more", BATCH_LIMIT + 1, BATCH_LIMIT)


def _build(model: type[BaseModel], outline: Struct) -> dict[str, Any]:
    given = {name: value for name in outline.__struct_fields__ if (value := getattr(outline, name)) is not UNSET}
    return {name: _read(name, model.model_fields[name].annotation, value) for name, value in given.items()}


def _read(name: str, annotation: Any, value: Raw | list[Struct]) -> Any:  # noqa: ANN401
    if isinstance(value, list):
        item = _item_of(annotation)
        assert item is not None  # the outline has lists only for lists of objects
        return [_build(item, each) for each in value]
    size = len(text := memoryview(value))
    if annotation is Any:
        if size > PAYLOAD_LIMIT:
            raise InvalidPayload(f"{name} is larger than 1 MiB: store it elsewhere, and submit a reference to it")
        return value
    if size > FIELD_LIMIT:
        raise InvalidInput(f"{name} must have at most {FIELD_LIMIT:,} bytes, not {size:,}")
    if text[0] in b"[{":
        _count_values(bytes(text))
    return DECODER.decode(value)


def _count_values(text: bytes) -> None:
    """Refuse a list or object that has one value too many, before it is built. A comma in a text counts as well."""
    found = 1 + sum(text.count(sign) for sign in (b",", b"[", b"{"))
    _values.set(total := _values.get() + found)
    if total > VALUES_LIMIT:
        raise InvalidInput(f"the lists of the body have more than {VALUES_LIMIT:,} values: send it in parts")


def _message_of(problem: str) -> str:
    """Return the message that the same problem gives in a small body."""
    if found := _UNKNOWN.fullmatch(problem):
        place = f"{found[2]}." if found[2] else ""
        return f"{place}{found[1][:200]}: there is no such field here".replace("[", ".").replace("]", "")
    return problem
