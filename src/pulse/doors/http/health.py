"""What may an orchestrator and a scraper ask? At the paths where they look for it, outside of /v1."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import Refused, answer_with
from pulse.doors.http.field_types import ResponseBody
from pulse.doors.http.openapi import answers
from pulse.doors.http.services import Served
from pulse.model.prometheus_text import CONTENT_TYPE
from pulse.model.tokens import Right

router = APIRouter(route_class=GuardedRoute, tags=["health"])
TEXT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "For Prometheus."}
}


class Well(ResponseBody):
    status: str


@router.get("/livez", summary="Whether the server lives", response_model=Well, responses=answers())
async def get_liveness() -> Response:
    return answer_with({"status": "ok"})


@router.get("/readyz", summary="Whether it can do its work", response_model=Well, responses=answers())
async def get_readiness(served: Served) -> Response:
    """503 says in its message why not: the database, its schema, or which duty has not been done."""
    if why := await served.health.why_not_ready():
        raise Refused(503, "not_ready", why)
    return answer_with({"status": "ok"})


@router.get("/metrics", summary="Metrics for Prometheus", response_class=Response, responses=TEXT)
async def get_metrics(served: Served) -> Response:
    caller.get().check(Right.VIEW, "*")
    return Response(await served.engine.metrics.scrape(), headers={"content-type": CONTENT_TYPE})
