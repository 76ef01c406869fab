"""What does the OpenAPI document say about errors and tokens?

Each route lists the errors that only it has. The errors that every route may have are added here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pulse.doors.http.access import RULES
from pulse.doors.http.field_types import Error

ABOUT = "Durable jobs, schedules and alarms on Postgres. Every error is `{error: {code, message, details}}`."
DESCRIPTIONS = {
    400: "The request is invalid. Repeating it gives the same error.",
    401: "There is no token, or the token is unknown, expired or revoked.",
    403: "The token lacks the scope for this request, or its host or its page is refused.",
    404: "It does not exist, or the caller may not see it.",
    408: "The body took too long.",
    409: "Its state does not allow this, or another one has its name or key.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "There are too many requests: try again after `Retry-After` seconds.",
    500: "The request failed in the server; the server's log says why.",
    503: "The server or its database is not available: try again after `Retry-After` seconds.",
}
EVERYWHERE = (400, 403, 500, 503)
WITH_RULE = (401, 429)
WITH_BODY = (408, 413, 415)
UNUSED_SCHEMAS = ("HTTPValidationError", "ValidationError")  # FastAPI adds them, but we never send them


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the errors that only this route has."""
    return {status: {"model": Error, "description": DESCRIPTIONS[status]} for status in statuses}


def make_document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=ABOUT, routes=app.routes)
    schemas = document["components"]["schemas"]
    for name in UNUSED_SCHEMAS:
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
    found |= {str(status): _error_response(status) for status in statuses if str(status) not in found}
    operation["responses"] = dict(sorted(found.items()))
    if needs_token:
        operation["security"] = [{"token": []}]


def _error_response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": DESCRIPTIONS[status], "content": {"application/json": {"schema": schema}}}
