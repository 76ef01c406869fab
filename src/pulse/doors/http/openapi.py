"""What does the OpenAPI document say of errors and of who may call?

Each route names the refusals of its own. What every route may answer is added here, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pulse.doors.http.access import RULES
from pulse.doors.http.field_types import Error

ABOUT = "Durable jobs, schedules and alarms on Postgres. Every error is `{error: {code, message, details}}`."
WORDS = {
    400: "The request is wrong, and would be the next time too.",
    401: "No token, or none that is known.",
    403: "The token has no scope for this.",
    404: "There is none.",
    408: "The body came too slowly.",
    409: "It is not in the state this needs.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "Too much at once: try again after `Retry-After` seconds.",
    500: "A mistake in the server, whose log says more.",
    503: "The database cannot be reached: try again after `Retry-After` seconds.",
}
EVERYWHERE = (400, 403, 500, 503)
WITH_RULE = (401, 429)
WITH_BODY = (408, 413, 415)
NOT_OURS = ("HTTPValidationError", "ValidationError")  # FastAPI's, which are never sent


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals of a route's own."""
    return {status: {"model": Error, "description": WORDS[status]} for status in statuses}


def make_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    schemas = document["components"]["schemas"]
    for name in NOT_OURS:
        schemas.pop(name, None)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for rule, operation in _operations(document):
        _complete(operation, needs_token=RULES.get(rule, ...) is not None)
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _complete(operation: dict[str, Any], *, needs_token: bool) -> None:
    statuses = [*EVERYWHERE, *(WITH_RULE if needs_token else ()), *(WITH_BODY if "requestBody" in operation else ())]
    found = {status: answer for status, answer in operation["responses"].items() if status != "422"}
    found |= {str(status): _described(status) for status in statuses if str(status) not in found}
    operation["responses"] = dict(sorted(found.items()))
    if needs_token:
        operation["security"] = [{"token": []}]


def _described(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": WORDS[status], "content": {"application/json": {"schema": schema}}}
