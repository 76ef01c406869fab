"""What of a request is read, and what is refused unread?"""

from __future__ import annotations

from email.message import Message
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from pulse.doors.http.errors import Refused
from pulse.doors.http.field_types import DECODER
from pulse.doors.http.jobs.bodies import NewJobs
from pulse.doors.http.requests.large_bodies import SMALL, model_of, read_outline
from pulse.model.errors import InvalidInput

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

NOTHING = (b"", b"{}")
ONE_LIMIT = 4 << 20  # bytes of a body that is about one thing: four times its largest payload
NO_BODY_LIMIT = 64 << 10  # bytes of a body that should not be there
MAX_PARAMETERS = 100


async def read_body(route: APIRoute, request: Request) -> Request:
    """The request with its body, within the limit and of the right type; none of it is read before it is checked."""
    limit = limit_of(route, request.app.state.services.settings.message_limit)
    check_length(request, limit)
    body = await _read(request, limit)
    if route.body_field is None:
        if body.strip() not in NOTHING:
            raise InvalidInput("this request takes no body")
    elif body:
        check_type(request)
    read = Request(request.scope, request.receive)
    read._cookies = {}  # it takes none, and FastAPI would have them read all the same: see dashboard/cookies.py
    read._body = body  # where Starlette keeps a body once it is read, and below what it says
    if body:
        read._json = decode(route, body)
    return read


def limit_of(route: APIRoute, message_limit: int) -> int:
    """Many jobs may be as large as a message; one thing is as large as its payload, however that is written."""
    if route.body_field is None:
        return NO_BODY_LIMIT
    is_batch = model_of(route.body_field.field_info.annotation) is NewJobs
    return message_limit if is_batch else min(message_limit, ONE_LIMIT)


def decode(route: APIRoute, body: bytes) -> Any:  # noqa: ANN401
    """JSON as the model means it: no NaN, no number cut to a double. Of a large body, payloads stay text."""
    try:
        if len(body) <= SMALL or route.body_field is None:
            return DECODER.decode(body)
        return read_outline(model_of(route.body_field.field_info.annotation), body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the body is not JSON: {error}") from None


def check_length(request: Request, limit: int) -> None:
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said[:20]) > limit:
        raise _too_large(limit)


async def _read(request: Request, limit: int) -> bytes:
    """However long it says it is."""
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
    except ClientDisconnect:  # nobody reads the answer
        raise Refused(400, "cut_short", "the body ended before its time") from None
    return b"".join(chunks)


def _too_large(limit: int) -> Refused:
    return Refused(413, "body_too_large", f"the body is larger than {limit} bytes: send it in parts")


def check_type(request: Request) -> None:
    """JSON and nothing else. A page on another site can send forms and plain text without asking; not this."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    if message.get_content_type() != "application/json":
        raise Refused(415, "unsupported_media_type", "the body must be JSON: send `content-type: application/json`")


def check_query(route: APIRoute, request: Request) -> None:
    """An unknown parameter is refused: a misspelt filter would list everything."""
    if request.scope["query_string"].count(b"&") >= MAX_PARAMETERS:
        raise InvalidInput(f"the query has more than {MAX_PARAMETERS} parameters")
    known = {field.alias for field in route.dependant.query_params}
    for name in request.query_params:
        if name not in known:
            raise InvalidInput(f"there is no query parameter {name[:60]!r} here")
