"""Who is calling over HTTP, and may they?

Every request passes `GuardedRoute` before a byte of its body is read. It knows the route and the token, and so whether
the request can be allowed at all; the route's function checks the topic. Nothing of this may be forgotten for a new
route, so a route without a rule is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.errors import answer_to
from pulse.doors.http.requests.reading import check_query, read_body
from pulse.model.errors import Unavailable
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.http.services import Services

# What each route needs; None: open to everyone who can connect. docs/reference/http.md is tested against it.
RULES: dict[str, Right | None] = {
    "POST /v1/jobs": Right.SUBMIT,
    "POST /v1/jobs/batch": Right.SUBMIT,
    "GET /v1/jobs": Right.VIEW,
    "GET /v1/jobs/{id}": Right.FOLLOW,
    "GET /v1/jobs/{id}/wait": Right.FOLLOW,
    "POST /v1/jobs/{id}/cancel": Right.MANAGE,
    "POST /v1/jobs/{id}/replay": Right.OPERATE,
    "POST /v1/jobs/{id}/run-now": Right.OPERATE,
    "GET /v1/jobs/{id}/attempts": Right.VIEW,
    "GET /v1/jobs/{id}/explain": Right.VIEW,
    "GET /v1/topics": Right.VIEW,
    "POST /v1/topics/{topic}/pause": Right.OPERATE,
    "POST /v1/topics/{topic}/resume": Right.OPERATE,
    "POST /v1/schedules": Right.SUBMIT,
    "GET /v1/schedules": Right.VIEW,
    "POST /v1/schedules/preview": Right.FOLLOW,
    "GET /v1/schedules/{name}": Right.FOLLOW,
    "PATCH /v1/schedules/{name}": Right.SUBMIT,
    "DELETE /v1/schedules/{name}": Right.MANAGE,
    "POST /v1/schedules/{name}/pause": Right.MANAGE,
    "POST /v1/schedules/{name}/resume": Right.MANAGE,
    "POST /v1/schedules/{name}/trigger": Right.MANAGE,
    "POST /v1/schedules/{name}/backfill": Right.MANAGE,
    "GET /v1/schedules/{name}/fires": Right.FOLLOW,
    "GET /v1/schedules/{name}/preview": Right.FOLLOW,
    "POST /v1/alarms": Right.SET_ALARM,
    "GET /v1/alarms": Right.VIEW_ALARM,
    "GET /v1/alarms/{name}": Right.VIEW_ALARM,
    "POST /v1/alarms/{name}/cancel": Right.MANAGE_ALARM,
    "POST /v1/alarms/{name}/pause": Right.MANAGE_ALARM,
    "POST /v1/alarms/{name}/resume": Right.MANAGE_ALARM,
    "POST /v1/alarms/{name}/fire": Right.MANAGE_ALARM,
    "GET /v1/alarms/{name}/deliveries": Right.VIEW_ALARM,
    "GET /v1/wake-secrets": Right.SET_ALARM,
    "GET /v1/workers": Right.VIEW,
    "GET /v1/overview": Right.VIEW,
    "GET /v1/info": None,
    "GET /v1/openapi.json": None,
    "GET /livez": None,
    "GET /readyz": None,
    "GET /metrics": Right.VIEW,
}

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """Admit, read, handle, answer: in this order, and every end of it is an answer."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        rule = rule_of(self)

        async def handle_or_refuse(request: Request) -> Response:
            try:
                await admit(request, rule)
                check_query(self, request)
                return await handle(await read_body(self, request))
            except asyncio.CancelledError:  # only the end of the server does that, and its patience is over
                return answer_to(Unavailable("this server is stopping: ask another, or this one again soon"), rule)
            except Exception as error:
                answer = answer_to(error, rule)
                # FastAPI's frames refer to the error they raise: with them the request would stay until Python's
                # collector looks, which is seldom in a server.
                error.__traceback__ = None
                return answer

        return handle_or_refuse


def rule_of(route: APIRoute) -> str:
    [method] = set(route.methods or ())  # one each, so that each has a rule
    return f"{method} {route.path}"


async def admit(request: Request, rule: str) -> None:
    """The caller of this request, known to all that happens in it."""
    if rule in RULES and RULES[rule] is None:
        return
    services: Services = request.app.state.services
    shown = request.headers.getlist("authorization")
    caller.set(await services.gate.admit(shown, RULES.get(rule), where="header"))
