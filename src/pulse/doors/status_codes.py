"""Which status does a client see for which error?

A status is for libraries, which decide by it whether to try again; the `pulse-error` trailer beside it is for programs
that want to know exactly. docs/reference/grpc.md lists both, and a test compares it with this.
"""

from __future__ import annotations

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


def status_of(error: PulseError) -> grpc.StatusCode:
    """The nearest ancestor wins, so a new error needs no new line here."""
    known = (STATUS_OF[kind] for kind in type(error).mro() if kind in STATUS_OF)
    return next(known, grpc.StatusCode.INTERNAL)


def trailers_of(error: PulseError) -> tuple[tuple[str, str], ...]:
    return ((ERROR_TRAILER, error.code),)
