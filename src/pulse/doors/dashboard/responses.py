"""How is a person answered: with a page, with a word on the page they are on, or with why not?"""

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
from pulse.doors.http.errors import Refused, log
from pulse.doors.status_codes import http_status_of
from pulse.model.errors import PulseError

if TYPE_CHECKING:
    from starlette.requests import Request

SAID = "pulse_said"  # what the next page should tell, in a cookie
LONGEST_WORD = 1_000  # characters


def page(text: str, status: int = 200, *, drop_said: bool = False) -> Response:
    answer = HTMLResponse(text.encode(errors="replace"), status, HEADERS)
    if drop_said:
        answer.delete_cookie(SAID, path="/", httponly=True, samesite="lax")
    return answer


def redirect(path: str) -> Response:
    return RedirectResponse(path, 303, HEADERS)


def sent_by_script(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


def told(outcome: Toast | Redirect) -> Response:
    """To the script that sent a form: what to show, or where to go."""
    if isinstance(outcome, Redirect):
        answer = Response(status_code=204, headers=HEADERS | {"hx-redirect": outcome.path})
        return say_once(answer, outcome.text)
    return Response(status_code=204, headers=HEADERS | _word("good", outcome.text))


def say_once(answer: Response, text: str) -> Response:
    value = quote(visible(text[:LONGEST_WORD]), safe="")  # nothing that a cookie would have to be quoted for
    answer.set_cookie(SAID, value, max_age=60, path="/", httponly=True, samesite="lax")
    return answer


def take_said(request: Request) -> str | None:
    given = read_cookie(request, SAID, TEXT)
    return unquote(given, errors="replace")[:LONGEST_WORD] if given else None


def refused(request: Request, error: Exception) -> Response:
    status, why = explain(error)
    if status >= 500 and not isinstance(error, PulseError):
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    if sent_by_script(request):
        return Response(status_code=status, headers=HEADERS | _word("bad", why))
    return page(draw("error.html", status=status, why=why), status)


def explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, PulseError):
        return http_status_of(error), str(error)
    if isinstance(error, Refused):
        return error.status, str(error)
    return 500, "this failed in the server, whose log says why"


def _word(kind: str, text: str) -> dict[str, str]:
    """An event for the page's script. ASCII, as headers must be."""
    return {"hx-trigger": json.dumps({"said": {"kind": kind, "text": visible(text[:LONGEST_WORD])}})}
