"""What does an HTTP client have to know about the server before its first request? Versions, limits and the routes."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import pulse
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import json_response
from pulse.doors.http.field_types import ResponseBody, Seconds
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.services import InjectedServices
from pulse.model.jobs import BATCH_LIMIT, PAGE_LIMIT

router = APIRouter(route_class=GuardedRoute, tags=["info"])


class Info(ResponseBody):
    version: str
    server: str
    batch_limit: int
    page_limit: int
    body_limit: int
    lease: Seconds
    heartbeat: Seconds


@router.get("/v1/info", summary="Read versions and limits", response_model=Info, responses=error_responses())
async def get_info(services: InjectedServices) -> Response:
    settings = services.settings
    return json_response(
        {
            "version": pulse.__version__,
            "server": services.name,
            "batch_limit": BATCH_LIMIT,
            "page_limit": PAGE_LIMIT,
            "body_limit": settings.message_limit,
            "lease": settings.lease.total_seconds(),
            "heartbeat": settings.heartbeat.total_seconds(),
        }
    )


@router.get("/v1/openapi.json", include_in_schema=False)
async def get_document(request: Request) -> Response:
    # In a thread, because the first document takes a tenth of a second and heartbeats must not wait for it.
    return json_response(await asyncio.to_thread(request.app.openapi))
