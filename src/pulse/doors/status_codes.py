"""Which gRPC and HTTP status does each error have?

Libraries decide by the status whether to try again. Programs that want to know the exact error read the code beside it,
in the `pulse-error` trailer or in the body. docs/reference/grpc.md and http.md list both, and a test compares them with
this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import grpc

from pulse.model.errors import (
    AccessDenied,
    AlarmExists,
    Conflict,
    InvalidInput,
    JobBusy,
    LimitReached,
    NotFound,
    PulseError,
    ResultTimeout,
    ScheduleExists,
    TokenNameTaken,
    Unauthenticated,
    Unavailable,
    Unfinished,
)

ERROR_TRAILER = "pulse-error"
INTERNAL_CODE = "internal"

STATUS_OF: dict[type[PulseError], grpc.StatusCode] = {
    InvalidInput: grpc.StatusCode.INVALID_ARGUMENT,
    AccessDenied: grpc.StatusCode.PERMISSION_DENIED,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    NotFound: grpc.StatusCode.NOT_FOUND,
    # A taken unique key as well: ALREADY_EXISTS is for something that is being created, and only a replay meets one.
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    TokenNameTaken: grpc.StatusCode.ALREADY_EXISTS,
    AlarmExists: grpc.StatusCode.ALREADY_EXISTS,
    ScheduleExists: grpc.StatusCode.ALREADY_EXISTS,
    JobBusy: grpc.StatusCode.ABORTED,  # the one conflict that goes away by itself: try again
    LimitReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unfinished: grpc.StatusCode.FAILED_PRECONDITION,
    ResultTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
    Unavailable: grpc.StatusCode.UNAVAILABLE,
}

HTTP_STATUS_OF: dict[type[PulseError], int] = {
    InvalidInput: 400,
    Unauthenticated: 401,
    AccessDenied: 403,
    NotFound: 404,
    Conflict: 409,
    Unfinished: 409,
    ResultTimeout: 504,
    LimitReached: 429,
    Unavailable: 503,
}

S = TypeVar("S")


def status_of(error: PulseError) -> grpc.StatusCode:
    return _nearest(STATUS_OF, error, grpc.StatusCode.INTERNAL)


def http_status_of(error: PulseError) -> int:
    return _nearest(HTTP_STATUS_OF, error, 500)


def _nearest(known: Mapping[type[PulseError], S], error: PulseError, otherwise: S) -> S:
    """Return the value of the error's nearest known ancestor, so that a new error needs no line of its own here."""
    return next((known[kind] for kind in type(error).mro() if kind in known), otherwise)


def trailers_of(error: PulseError) -> tuple[tuple[str, str], ...]:
    return ((ERROR_TRAILER, error.code),)
