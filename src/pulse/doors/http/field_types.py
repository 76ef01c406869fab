"""How are instants, lengths of time, JSON within JSON and names in a path written over HTTP?

Bodies are read strictly, exactly as the OpenAPI document describes them: a number in quotes is not a number.
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
# Fractions are read as decimals, so that every digit of the caller's payload is kept.
DECODER = msgspec.json.Decoder(float_hook=Decimal)


class Body(BaseModel):
    """The body of a request. It refuses unknown fields, since one may be a misspelt field."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ResponseBody(BaseModel):
    """The body of a response. It only describes the JSON, which msgspec writes from values of the model; tests compare
    the two."""


class ErrorFacts(ResponseBody):
    code: str = Field(description="For programs; a code never changes.", examples=["job_not_found"])
    message: str = Field(description="For people.")
    details: dict[str, Any] = Field(description="The facts of the message; each code has its own.")


class Error(ResponseBody):
    error: ErrorFacts


# --- instants and lengths


def read_instant(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        # A ValueError, as pydantic wants it.
        raise ValueError("must be an instant in RFC 3339, such as 2026-05-01T09:00:00Z")  # noqa: TRY004
    try:
        found = datetime.fromisoformat(value.upper())
    except ValueError:
        hint = " (in a URL, write + as %2B)" if " " in value else ""
        raise ValueError(f"must be an instant such as 2026-05-01T09:00:00Z, not {value[:60]!r}{hint}") from None
    if found.tzinfo is None:
        raise ValueError(f"must have a time zone such as Z or +02:00, not {value[:60]!r}")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"must be within the years 1 to 9999, not {value[:60]!r}") from None


def read_length(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError('must be a length of time: seconds, or text such as "5m"')  # noqa: TRY004
    try:
        return parse_duration(value) if isinstance(value, str) else timedelta(seconds=float(value))
    except InvalidDuration as error:
        raise ValueError(str(error)) from None
    except OverflowError:
        raise ValueError("must be at most ten years") from None


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
    """Return a payload as JSON text, which jobs and alarms check themselves. In a large body it is still text."""
    try:
        return (bytes(value) if isinstance(value, msgspec.Raw) else ENCODER.encode(value)).decode()
    except RecursionError:
        raise InvalidPayload("payload is nested too deeply") from None
    except UnicodeDecodeError:
        raise InvalidPayload("payload must be UTF-8") from None


def embed(text: str | None) -> msgspec.Raw | None:
    """Return JSON text as a value that is written into other JSON without a change."""
    return None if text is None else msgspec.Raw(text.encode())


def fields_of(names: Iterable[str], value: object, **known: object) -> dict[str, Any]:
    """Return these fields of a value of the model, with lengths in seconds. `known` fields are not read from it."""
    return {name: known[name] if name in known else _plain(getattr(value, name)) for name in names}


def _plain(value: object) -> object:
    return value.total_seconds() if isinstance(value, timedelta) else value


# --- in the URL


def read_segment(value: str) -> str:
    """Decode a name that is one segment of a path.

    Paths are matched before they are decoded, so a name may hold a slash, written %2F.
    """
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("must be percent-encoded UTF-8") from None


Segment = Annotated[str, BeforeValidator(read_segment), Path(description="Percent-encoded: write a slash as %2F.")]
After = Annotated[str | None, Query(description="The `next` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT, description="How many rows at most.")]
