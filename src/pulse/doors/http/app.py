"""What is the HTTP application made of?

    SecurityMiddleware    refuses foreign hosts and pages, and sets the headers of every response
    GuardedRoute          admits the caller, and reads the body within its limit
    routers               the routes, one file for each noun
    Dashboard             pages for people, beside the API

A new noun needs a module with a `router`, a line in ROUTERS, and a line for each of its routes in `access.RULES`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import pulse
from pulse.doors.dashboard.app import Dashboard
from pulse.doors.dashboard.responses import error_response
from pulse.doors.http import health, info, topics
from pulse.doors.http.alarms import routes as alarms
from pulse.doors.http.errors import HttpRefusal, json_error
from pulse.doors.http.jobs import routes as jobs
from pulse.doors.http.openapi import make_document
from pulse.doors.http.requests.security_headers import SecurityMiddleware
from pulse.doors.http.schedules import routes as schedules
from pulse.settings import read_hosts

if TYPE_CHECKING:
    from pulse.doors.http.services import Services

ROUTERS = (jobs.router, topics.router, schedules.router, alarms.router, info.router, health.router)


def make_app(services: Services) -> FastAPI:
    # No /docs and /redoc: those pages load their scripts from other hosts.
    app = FastAPI(
        title="Pulse",
        version=pulse.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: _handle_unknown_route},
    )
    app.state.services = services
    # include_router would build each route again, which takes longer than the rest of a server's start.
    app.router.routes.extend(routes())
    dashboard = Dashboard(services)
    app.state.live = dashboard.live
    app.router.routes.extend(dashboard.routes())
    app.add_middleware(
        SecurityMiddleware,
        has_tokens=services.gate.has_tokens,
        has_certificates=services.settings.tls_client_ca is not None,
        deadline=services.settings.http_deadline.total_seconds(),
        hosts=read_hosts(services.settings.http_hosts),
    )
    app.openapi = cache(lambda: make_document(app))  # type: ignore[method-assign]
    return app


def routes() -> list[APIRoute]:
    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


async def _handle_unknown_route(request: Request, error: Any) -> Response:  # noqa: ANN401
    """Respond to a request that no route takes: an unknown path, or an unknown method of a known path."""
    if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/v1/"):
        return error_response(request, HttpRefusal(error.status_code, "not_found", "there is no such page"))
    response = json_error(error, f"{request.method} {request.url.path}")
    if error.status_code == 405:  # Starlette names the methods of one route, but a path may have several routes
        matching = (route for route in routes() if route.path_regex.match(request.scope["path"]))
        response.headers["Allow"] = ", ".join(sorted({method for route in matching for method in route.methods or ()}))
    return response
