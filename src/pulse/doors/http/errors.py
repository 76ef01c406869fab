"""How does a request end when something went wrong? In one way for all of them, so every answer is written here.

An error of ours becomes its status, its code and its message. Anything else is a mistake in the server: the log has the
whole of it, and the client learns only that there was one.
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
WORDS = {404: ("not_found", "there is nothing at this path: /v1/openapi.json lists what there is")}
WORDS |= {405: ("method_not_allowed", "this path does not take this method: the header Allow lists those it takes")}


class Refused(Exception):
    """What only HTTP can refuse, and so is no error of the model's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def answer_with(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(content), status, headers, media_type="application/json")


def answer_to(error: Exception, request: str) -> Response:
    """The answer to a request (`POST /v1/jobs`, for the log) that ended so."""
    match error:
        case PulseError():
            return refusal(http_status_of(error), error.code, str(error), _facts(error))
        case Refused():
            return refusal(error.status, error.code, str(error))
        case RequestValidationError():
            return _invalid(error.errors())
        case HTTPException():
            code, message = WORDS.get(error.status_code, ("invalid_input", str(error.detail)))
            return refusal(error.status_code, code, message, headers=error.headers)
    log.error("%s failed", request, exc_info=error)
    return refusal(500, INTERNAL_CODE, "this failed in the server, whose log says why")


def refusal(
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
    body = {"code": code, "message": _storable(message)[:LONGEST_MESSAGE], "details": details or {}}
    return answer_with({"error": body}, status, own)


def _facts(error: PulseError) -> dict[str, Any]:
    """What an error keeps beside its message."""
    kinds = (str, int, float, UUID)
    facts = {name: value for name, value in vars(error).items() if isinstance(value, kinds)}
    return {name: _storable(value) if isinstance(value, str) else value for name, value in facts.items()}


def _invalid(problems: Sequence[Any]) -> Response:
    found = [_problem(problem) for problem in problems[:SHOWN_PROBLEMS]]
    message = "; ".join(f"{each['field']}: {each['problem']}" if each["field"] else each["problem"] for each in found)
    return refusal(400, "invalid_input", message, {"fields": found})


def _problem(problem: Mapping[str, Any]) -> dict[str, str]:
    place = [str(part) for part in problem["loc"]][1:]  # the first part only says where: body, query, path
    field = _storable(".".join(place))[:200]
    if problem["type"] == "extra_forbidden":
        return {"field": field, "problem": "there is no such field here"}
    if problem["type"] == "missing":
        return {"field": field, "problem": "it must be given" if place else "a JSON body must be given"}
    return {"field": field, "problem": _storable(str(problem["msg"]).removeprefix("Value error, "))}


def _storable(text: str) -> str:
    """Without the lone surrogates that JSON could not say in UTF-8."""
    return text.encode(errors="replace").decode()
