"""What must a client know before anything else?"""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import pulse
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import answer_with
from pulse.doors.http.field_types import ResponseBody, Seconds
from pulse.doors.http.openapi import answers
from pulse.doors.http.services import Served
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


@router.get("/v1/info", summary="Versions and limits", response_model=Info, responses=answers())
async def get_info(served: Served) -> Response:
    settings = served.settings
    return answer_with(
        {
            "version": pulse.__version__,
            "server": served.name,
            "batch_limit": BATCH_LIMIT,
            "page_limit": PAGE_LIMIT,
            "body_limit": settings.message_limit,
            "lease": settings.lease.total_seconds(),
            "heartbeat": settings.heartbeat.total_seconds(),
        }
    )


@router.get("/v1/openapi.json", include_in_schema=False)
async def get_document(request: Request) -> Response:
    # A tenth of a second when it is first asked for, in which heartbeats must not wait.
    return answer_with(await asyncio.to_thread(request.app.openapi))
