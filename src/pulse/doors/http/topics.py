"""Which routes are there for topics, for workers, and for the overview of both, over HTTP?"""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import json_response
from pulse.doors.http.field_types import ResponseBody, Seconds, Segment, fields_of
from pulse.doors.http.jobs.bodies import ReasonBody
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.services import InjectedServices
from pulse.model.jobs import JobStatus
from pulse.model.tokens import Right

router = APIRouter(route_class=GuardedRoute, tags=["topics"])


class Pause(ResponseBody):
    topic: str = Field(description='"*": all topics.')
    reason: str
    paused_at: datetime


class ResumeResult(ResponseBody):
    was_paused: bool


class Topic(ResponseBody):
    topic: str
    counts: dict[JobStatus, int] = Field(description="The number of jobs in each state that has any.")
    paused: bool


class Topics(ResponseBody):
    topics: list[Topic]
    pauses: list[Pause]


class Worker(ResponseBody):
    """A connected worker, seen within the last minute."""

    name: str
    server: str = Field(description="The server it is connected to; empty: it works directly on the database.")
    version: str
    topics: list[str]
    slots: int
    busy: int
    connected_at: datetime
    seen_at: datetime


class Workers(ResponseBody):
    workers: list[Worker]


class TopicFacts(ResponseBody):
    topic: str
    counts: dict[JobStatus, int] = Field(description="The number of jobs in each state that has any.")
    is_paused: bool
    oldest_at: datetime | None = Field(description="When the oldest pending job began to wait.")
    rate_in: float = Field(description="Jobs per second, over the last one or two minutes.")
    rate_out: float
    failing: float | None = Field(description="The fraction of recent attempts that failed; null: none ended.")


class Concern(ResponseBody):
    kind: str = Field(description="For programs; later releases may add others.")
    text: str = Field(description="For people.")
    is_urgent: bool
    topic: str | None


class Overview(ResponseBody):
    """Topics, workers and problems, all at one moment."""

    at: datetime = Field(description="By the database's clock.")
    topics: list[TopicFacts]
    workers: list[Worker]
    concerns: list[Concern] = Field(description="What needs attention, the urgent first.")
    rate_in: float
    rate_out: float
    failing: float | None
    broken_schedules: int
    failing_alarms: int
    schedules_overdue: Seconds
    alarms_overdue: Seconds


@router.get("/v1/topics", summary="List topics with their counts", response_model=Topics, responses=error_responses())
async def list_topics(services: InjectedServices) -> Response:
    caller.get().check(Right.VIEW, "*")
    jobs = services.engine.jobs
    return json_response({"topics": await jobs.counts(), "pauses": await jobs.pauses()})


@router.post("/v1/topics/{topic}/pause", summary="Pause a topic", response_model=Pause, responses=error_responses())
async def pause_topic(topic: Segment, services: InjectedServices, body: ReasonBody | None = None) -> Response:
    """Claim no more jobs of this topic until it is resumed. The topic `*` means all topics."""
    caller.get().check(Right.OPERATE, topic)
    return json_response(await services.engine.jobs.pause(topic, reason=body.reason if body else ""))


@router.post(
    "/v1/topics/{topic}/resume", summary="Resume a topic", response_model=ResumeResult, responses=error_responses()
)
async def resume_topic(topic: Segment, services: InjectedServices) -> Response:
    caller.get().check(Right.OPERATE, topic)
    return json_response({"was_paused": await services.engine.jobs.resume(topic)})


@router.get("/v1/workers", summary="List connected workers", response_model=Workers, responses=error_responses())
async def list_workers(services: InjectedServices) -> Response:
    caller.get().check(Right.VIEW, "*")
    return json_response({"workers": list(await services.workers())})


@router.get("/v1/overview", summary="Read the overview", response_model=Overview, responses=error_responses())
async def get_overview(services: InjectedServices) -> Response:
    """Return counts, rates, workers and what needs attention. It costs the same with ten million jobs as with ten."""
    caller.get().check(Right.VIEW, "*")
    return json_response(fields_of(Overview.model_fields, await services.engine.statistics.overview()))
