"""Which routes are there for orchestrators and metrics scrapers? They have their usual paths, outside of /v1."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import HttpRefusal, json_response
from pulse.doors.http.field_types import ResponseBody
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.services import InjectedServices
from pulse.model.prometheus_text import CONTENT_TYPE
from pulse.model.tokens import Right

router = APIRouter(route_class=GuardedRoute, tags=["health"])
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "For Prometheus."}
}


class HealthStatus(ResponseBody):
    status: str


@router.get(
    "/livez", summary="Tell whether the server is alive", response_model=HealthStatus, responses=error_responses()
)
async def get_liveness() -> Response:
    return json_response({"status": "ok"})


@router.get(
    "/readyz", summary="Tell whether the server is ready", response_model=HealthStatus, responses=error_responses()
)
async def get_readiness(services: InjectedServices) -> Response:
    """Return 200 if the server is ready, else 503 with the reason: the database, its schema, or a duty not done."""
    if why := await services.health.why_not_ready():
        raise HttpRefusal(503, "not_ready", why)
    return json_response({"status": "ok"})


@router.get("/metrics", summary="Read the metrics for Prometheus", response_class=Response, responses=TEXT)
async def get_metrics(services: InjectedServices) -> Response:
    caller.get().check(Right.VIEW, "*")
    return Response(await services.engine.metrics.scrape(), headers={"content-type": CONTENT_TYPE})
