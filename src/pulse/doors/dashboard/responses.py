"""How does the dashboard respond: with a page, with a message on the current page, or with an error?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from starlette.responses import HTMLResponse, RedirectResponse, Response

from pulse.doors.dashboard.cookies import TEXT, read_cookie
from pulse.doors.dashboard.drawing import draw
from pulse.doors.dashboard.formatting import visible
from pulse.doors.dashboard.guard import HEADERS
from pulse.doors.dashboard.pages import Redirect, Toast
from pulse.doors.http.errors import HttpRefusal, log
from pulse.doors.status_codes import http_status_of
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from starlette.requests import Request

MESSAGE_COOKIE = "pulse_said"  # holds the message that the next page shows
LONGEST_MESSAGE = 1_000  # characters


def page(text: str, status: int = 200, *, drop_message: bool = False) -> Response:
    answer = HTMLResponse(text.encode(errors="replace"), status, HEADERS)
    if drop_message:
        answer.delete_cookie(MESSAGE_COOKIE, path="/", httponly=True, samesite="lax")
    return answer


def redirect(path: str) -> Response:
    return RedirectResponse(path, 303, HEADERS)


def sent_by_script(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def script_response(outcome: Toast | Redirect) -> Response:
    """Tell the script that sent a form which message to show, or which page to load."""
    if isinstance(outcome, Redirect):
        answer = Response(status_code=204, headers=HEADERS | {"hx-redirect": outcome.path})
        return keep_message(answer, outcome.text)
    return Response(status_code=204, headers=HEADERS | _message_event("good", outcome.text))


def keep_message(answer: Response, text: str) -> Response:
    value = quote(visible(text[:LONGEST_MESSAGE]), safe="")  # without characters that a cookie would have to quote
    answer.set_cookie(MESSAGE_COOKIE, value, max_age=60, path="/", httponly=True, samesite="lax")
    return answer


def read_message(request: Request) -> str | None:
    given = read_cookie(request, MESSAGE_COOKIE, TEXT)
    return unquote(given, errors="replace")[:LONGEST_MESSAGE] if given else None


def error_response(request: Request, error: Exception) -> Response:
    status, why = explain(error)
    if status >= 500 and not isinstance(error, PulseError):
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    if sent_by_script(request):
        return Response(status_code=status, headers=HEADERS | _message_event("bad", why))
    return page(draw("error.html", status=status, why=why), status)


def explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, PulseError):
        return http_status_of(error), str(error)
    if isinstance(error, HttpRefusal):
        return error.status, str(error)
    return 500, "the request failed in the server; the server's log says why"


def _message_event(kind: str, text: str) -> dict[str, str]:
    """Return a header that makes the page's script show a message. It is ASCII, as headers must be."""
    return {"hx-trigger": json.dumps({"said": {"kind": kind, "text": visible(text[:LONGEST_MESSAGE])}})}
