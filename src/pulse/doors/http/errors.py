"""How does an HTTP request end when it fails?

Every error response is written here, so all of them look alike. A `PulseError` becomes its status, its code and its
message. Anything else is a mistake in the server: the log gets the traceback, and the client learns only that the
request failed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pulse.doors.status_codes import INTERNAL_CODE, http_status_of
from pulse.model.errors import PulseError

log = logging.getLogger("pulse.server")

SHOWN_PROBLEMS = 20
LONGEST_MESSAGE = 2_000  # characters
RETRY_AFTER = {429: "1", 503: "2"}  # seconds
UNKNOWN_ROUTES = {  # by status: the code and the message
    404: ("not_found", "there is nothing at this path: /v1/openapi.json lists the paths"),
    405: ("method_not_allowed", "this path does not take this method: the header Allow lists those it takes"),
}


class HttpRefusal(Exception):
    """An error that only HTTP has, so it is not an error of the model."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def json_response(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def json_error(error: Exception, request: str) -> Response:
    """Return the response to a request that ended with this error. `request` is for the log, as in `POST /v1/jobs`."""
    match error:
        case PulseError():
            return _write_error(http_status_of(error), error.code, str(error), _facts(error))
        case HttpRefusal():
            return _write_error(error.status, error.code, str(error))
        case RequestValidationError():
            return _write_problems(error.errors())
        case HTTPException():
            code, message = UNKNOWN_ROUTES.get(error.status_code, ("invalid_input", str(error.detail)))
            return _write_error(error.status_code, code, message, headers=error.headers)
    log.error("%s failed", request, exc_info=error)
    return _write_error(500, INTERNAL_CODE, "the request failed in the server; the server's log says why")


def _write_error(
    status: int,
    code: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    own = dict(headers or {})
    if status == 401:
        own["WWW-Authenticate"] = "Bearer"
    if status in RETRY_AFTER:
        own["Retry-After"] = RETRY_AFTER[status]
    body = {"code": code, "message": _encodable(message)[:LONGEST_MESSAGE], "details": details or {}}
    return json_response({"error": body}, status, own)


def _facts(error: PulseError) -> dict[str, Any]:
    """Return the attributes of an error, which programs can read beside its message."""
    kinds = (str, int, float, UUID)
    facts = {name: value for name, value in vars(error).items() if isinstance(value, kinds)}
    return {name: _encodable(value) if isinstance(value, str) else value for name, value in facts.items()}


def _write_problems(problems: Sequence[Any]) -> Response:
    found = [_problem(problem) for problem in problems[:SHOWN_PROBLEMS]]
    message = "; ".join(f"{each['field']}: {each['problem']}" if each["field"] else each["problem"] for each in found)
    return _write_error(400, "invalid_input", message, {"fields": found})


def _problem(problem: Mapping[str, Any]) -> dict[str, str]:
    place = [str(part) for part in problem["loc"]][1:]  # without the first part, which is body, query or path
    field = _encodable(".".join(place))[:200]
    if problem["type"] == "extra_forbidden":
        return {"field": field, "problem": "there is no such field here"}
    if problem["type"] == "missing":
        return {"field": field, "problem": "must be given" if place else "a JSON body must be given"}
    return {"field": field, "problem": _encodable(str(problem["msg"]).removeprefix("Value error, "))}


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()
