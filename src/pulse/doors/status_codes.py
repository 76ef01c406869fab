"""Which status does a client see for which error?

A status is for libraries, which decide by it whether to try again; the code beside it, in the `pulse-error` trailer or
in the body, is for programs that want to know exactly. docs/reference/grpc.md and http.md list them, and a test
compares them with this.
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
    # A taken key too: ALREADY_EXISTS is about something to be made, and only a replay meets a taken key.
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
    """The nearest ancestor wins, so a new error needs no new line here."""
    return next((known[kind] for kind in type(error).mro() if kind in known), otherwise)


def trailers_of(error: PulseError) -> tuple[tuple[str, str], ...]:
    return ((ERROR_TRAILER, error.code),)
