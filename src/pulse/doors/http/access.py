"""Who is calling over HTTP, and may they?

Every request passes `GuardedRoute` before a byte of its body is read. `GuardedRoute` knows the route and the token, so
it refuses a request that no topic could make legal; the route's function then checks the topic. A new route must not go
unchecked because somebody forgot it here, so a route without a rule is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.errors import json_error
from pulse.doors.http.requests.reading import check_query, read_body
from pulse.model.errors import Unavailable
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.http.services import Services

# The right that each route needs; None: everyone who can connect may call it. docs/reference/http.md is tested against
# this table.
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
    """A route that admits the caller, reads the body, and calls its function, and responds to every error."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        rule = rule_of(self)

        async def handle_or_refuse(request: Request) -> Response:
            try:
                await admit(request, rule)
                check_query(self, request)
                return await handle(await read_body(self, request))
            except asyncio.CancelledError:  # only a server that stops does this, once its grace period is over
                stopping = Unavailable("this server is stopping: ask another server, or this one again soon")
                return json_error(stopping, rule)
            except Exception as error:
                response = json_error(error, rule)
                # The frames of FastAPI refer to the error they raise. With them, the request would stay in memory until
                # Python's garbage collector runs, which is seldom in a server.
                error.__traceback__ = None
                return response

        return handle_or_refuse


def rule_of(route: APIRoute) -> str:
    [method] = set(route.methods or ())  # each route has exactly one, so that each has a rule of its own
    return f"{method} {route.path}"


async def admit(request: Request, rule: str) -> None:
    """Set the caller of this request, or raise why it is not admitted."""
    if rule in RULES and RULES[rule] is None:
        return
    services: Services = request.app.state.services
    credentials = request.headers.getlist("authorization")
    caller.set(await services.gate.admit(credentials, RULES.get(rule), where="header"))
