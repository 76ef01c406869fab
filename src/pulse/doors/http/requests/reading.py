"""How much of a request's body and query is read, and which requests are refused before they are read?"""

from __future__ import annotations

from email.message import Message
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from pulse.doors.http.errors import HttpRefusal
from pulse.doors.http.field_types import DECODER
from pulse.doors.http.jobs.bodies import NewJobs
from pulse.doors.http.requests.large_bodies import SMALL, model_of, read_outline
from pulse.model.errors import InvalidInput

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

EMPTY_BODIES = (b"", b"{}")
SINGLE_LIMIT = 4 << 20  # bytes of a body with one job, schedule or alarm: four times its largest payload
NO_BODY_LIMIT = 64 << 10  # bytes of a body for a route that takes none
MAX_PARAMETERS = 100


async def read_body(route: APIRoute, request: Request) -> Request:
    """Return the request with its body, which must be within the limit and of the right type.

    The length of the body is checked before any of it is read.
    """
    limit = limit_of(route, request.app.state.services.settings.message_limit)
    check_length(request, limit)
    body = await _read(request, limit)
    if route.body_field is None:
        if body.strip() not in EMPTY_BODIES:
            raise InvalidInput("this request takes no body")
    elif body:
        check_type(request)
    read = Request(request.scope, request.receive)
    read._cookies = {}  # no route takes cookies, but FastAPI would parse them, slowly: see dashboard/cookies.py
    read._body = body  # Starlette keeps a body here once it is read, and its JSON in `_json`
    if body:
        read._json = decode(route, body)
    return read


def limit_of(route: APIRoute, message_limit: int) -> int:
    """Return the largest body of a route. A batch may be as large as a message; other bodies hold one payload."""
    if route.body_field is None:
        return NO_BODY_LIMIT
    is_batch = model_of(route.body_field.field_info.annotation) is NewJobs
    return message_limit if is_batch else min(message_limit, SINGLE_LIMIT)


def decode(route: APIRoute, body: bytes) -> Any:  # noqa: ANN401
    """Read JSON without NaN, and without cutting numbers to doubles. In a large body, payloads remain text."""
    try:
        if len(body) <= SMALL or route.body_field is None:
            return DECODER.decode(body)
        return read_outline(model_of(route.body_field.field_info.annotation), body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HttpRefusal(400, "invalid_json", f"the body must be JSON: {error}") from None


def check_length(request: Request, limit: int) -> None:
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limit:
        raise _too_large(limit)


async def _read(request: Request, limit: int) -> bytes:
    """Read the body up to the limit, whatever its Content-Length says."""
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
    except ClientDisconnect:  # nobody reads this response
        raise HttpRefusal(400, "cut_short", "the client disconnected before the end of the body") from None
    return b"".join(chunks)


def _too_large(limit: int) -> HttpRefusal:
    return HttpRefusal(413, "body_too_large", f"the body must have at most {limit} bytes: send it in parts")


def check_type(request: Request) -> None:
    """Check that the body is declared as JSON. A page of another site may send forms and plain text, but not JSON."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    if message.get_content_type() != "application/json":
        raise HttpRefusal(415, "unsupported_media_type", "the body must be JSON: send `content-type: application/json`")


def check_query(route: APIRoute, request: Request) -> None:
    """Refuse unknown parameters of a query, since a misspelt filter would list everything."""
    if request.scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise InvalidInput(f"the query must have at most {MAX_PARAMETERS} parameters")
    known = {field.alias for field in route.dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise InvalidInput(f"there is no query parameter {name[:60]!r} here")
