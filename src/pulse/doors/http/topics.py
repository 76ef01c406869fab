"""What can be asked about topics, the workers behind them, and all of it together, over HTTP?"""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import answer_with
from pulse.doors.http.field_types import ResponseBody, Seconds, Segment, fields_of
from pulse.doors.http.jobs.bodies import ReasonGiven
from pulse.doors.http.openapi import answers
from pulse.doors.http.services import Served
from pulse.model.jobs import JobStatus
from pulse.model.tokens import Right

router = APIRouter(route_class=GuardedRoute, tags=["topics"])


class Pause(ResponseBody):
    topic: str = Field(description='"*": all of them.')
    reason: str
    paused_at: datetime


class Resumed(ResponseBody):
    was_paused: bool


class Topic(ResponseBody):
    topic: str
    counts: dict[JobStatus, int] = Field(description="Jobs in each state that has any.")
    paused: bool


class Topics(ResponseBody):
    topics: list[Topic]
    pauses: list[Pause]


class Worker(ResponseBody):
    """A connected worker, seen within the last minute."""

    name: str
    server: str = Field(description="Empty: it goes straight to the database.")
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
    counts: dict[JobStatus, int] = Field(description="Jobs in each state that has any.")
    is_paused: bool
    oldest_at: datetime | None = Field(description="Since when the oldest pending job waits.")
    rate_in: float = Field(description="Jobs a second, over the last minute or two.")
    rate_out: float
    failing: float | None = Field(description="The share of attempts that failed lately; null: none ended.")


class Concern(ResponseBody):
    kind: str = Field(description="For programs; more may come.")
    text: str = Field(description="For people.")
    is_urgent: bool
    topic: str | None


class Overview(ResponseBody):
    """How things stand, at one moment."""

    at: datetime = Field(description="By the database's clock.")
    topics: list[TopicFacts]
    workers: list[Worker]
    concerns: list[Concern] = Field(description="What needs attention; what cannot wait comes first.")
    rate_in: float
    rate_out: float
    failing: float | None
    broken_schedules: int
    failing_alarms: int
    schedules_overdue: Seconds
    alarms_overdue: Seconds


@router.get("/v1/topics", summary="List topics with their counts", response_model=Topics, responses=answers())
async def list_topics(served: Served) -> Response:
    caller.get().check(Right.VIEW, "*")
    jobs = served.engine.jobs
    return answer_with({"topics": await jobs.counts(), "pauses": await jobs.pauses()})


@router.post("/v1/topics/{topic}/pause", summary="Pause a topic", response_model=Pause, responses=answers())
async def pause_topic(topic: Segment, served: Served, body: ReasonGiven | None = None) -> Response:
    """No job of it is handed out until it is resumed. The topic `*` stands for all of them."""
    caller.get().check(Right.OPERATE, topic)
    return answer_with(await served.engine.jobs.pause(topic, reason=body.reason if body else ""))


@router.post("/v1/topics/{topic}/resume", summary="Resume a topic", response_model=Resumed, responses=answers())
async def resume_topic(topic: Segment, served: Served) -> Response:
    caller.get().check(Right.OPERATE, topic)
    return answer_with({"was_paused": await served.engine.jobs.resume(topic)})


@router.get("/v1/workers", summary="List connected workers", response_model=Workers, responses=answers())
async def list_workers(served: Served) -> Response:
    caller.get().check(Right.VIEW, "*")
    return answer_with({"workers": list(await served.workers())})


@router.get("/v1/overview", summary="Tell how things stand", response_model=Overview, responses=answers())
async def get_overview(served: Served) -> Response:
    """Depths, rates, workers and what needs attention: as cheap with ten million jobs as with ten."""
    caller.get().check(Right.VIEW, "*")
    return answer_with(fields_of(Overview.model_fields, await served.engine.statistics.overview()))
