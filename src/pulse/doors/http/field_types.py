"""How are the parts of a body written: instants, lengths of time, JSON within JSON, names in a path?

Bodies are read strictly: a number in quotes is not a number, so that what the OpenAPI document says is what is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from pulse.model.errors import InvalidPayload
from pulse.model.jobs import PAGE_LIMIT
from pulse.timing.duration import InvalidDuration, parse_duration

ENCODER = msgspec.json.Encoder(decimal_format="number")
# Fractions stay as they were written until they are written again: a payload is the caller's, to the last digit.
DECODER = msgspec.json.Decoder(float_hook=Decimal)


class Body(BaseModel):
    """What is sent to us. An unknown field is refused: it may be a misspelt one."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ResponseBody(BaseModel):
    """What we send. It is written from the model's values by msgspec; this is its description, which tests compare."""


class ErrorFacts(ResponseBody):
    code: str = Field(description="For programs: it never changes.", examples=["job_not_found"])
    message: str = Field(description="For people.")
    details: dict[str, Any] = Field(description="The facts of the message, which differ from code to code.")


class Error(ResponseBody):
    error: ErrorFacts


# --- instants and lengths


def read_instant(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise ValueError("it is an instant in RFC 3339, such as 2026-05-01T09:00:00Z")  # noqa: TRY004  pydantic's way
    try:
        found = datetime.fromisoformat(value.upper())
    except ValueError:
        hint = ": in a URL, write + as %2B" if " " in value else ""
        raise ValueError(f"{value[:60]!r} is not an instant such as 2026-05-01T09:00:00Z{hint}") from None
    if found.tzinfo is None:
        raise ValueError(f"{value[:60]!r} has no time zone: add one, for example Z or +02:00")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{value[:60]!r} is beyond the years 1 to 9999") from None


def read_length(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError('it is a length of time: seconds, or text such as "5m"')  # noqa: TRY004
    try:
        return parse_duration(value) if isinstance(value, str) else timedelta(seconds=float(value))
    except InvalidDuration as error:
        raise ValueError(str(error)) from None
    except OverflowError:
        raise ValueError("it is too long: ten years at most") from None


LENGTH_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^(\d+(\.\d+)?(us|ms|s|m|h|d))+$|^\d+(\.\d+)?$"},
    ],
    "description": 'Seconds, or text such as "250ms", "5m", "1h30m" or "2d".',
    "examples": ["5m", 30],
}
Instant = Annotated[
    datetime,
    BeforeValidator(read_instant),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-05-01T09:00:00Z"]}),
]
Length = Annotated[timedelta, BeforeValidator(read_length), WithJsonSchema(LENGTH_SCHEMA)]
Number = Annotated[
    float,
    BeforeValidator(lambda value: float(value) if isinstance(value, Decimal) else value),
    WithJsonSchema({"type": "number"}),
]
Seconds = Annotated[float, Field(description="Seconds.")]
AnyJson = Annotated[Any, Field(description="Any JSON.")]


# --- JSON within JSON


def encode_payload(value: object) -> str:
    """Return its JSON, which jobs and alarms check themselves. Of a large body the payload is text already."""
    try:
        return (bytes(value) if isinstance(value, msgspec.Raw) else ENCODER.encode(value)).decode()
    except RecursionError:
        raise InvalidPayload("payload is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidPayload("payload is not UTF-8") from None


def embed(text: str | None) -> msgspec.Raw | None:
    """JSON text within JSON, as it is."""
    return None if text is None else msgspec.Raw(text.encode())


def fields_of(names: Iterable[str], value: object, **known: object) -> dict[str, Any]:
    """These fields of a value of the model, lengths in seconds. What is known already is not looked for."""
    return {name: known[name] if name in known else _plain(getattr(value, name)) for name in names}


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


# --- in the URL


def read_segment(value: str) -> str:
    """A name in a path is one segment. Paths are matched as they were sent, so it may hold a slash, written %2F."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("its percent-encoding is not UTF-8") from None


Segment = Annotated[str, BeforeValidator(read_segment), Path(description="Percent-encoded: a slash in it is %2F.")]
After = Annotated[str | None, Query(description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="How many at most.")]
