"""What does a schedule look like as JSON? It is one flat object, with the timetable, the policy and the job."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field

from pulse.doors.http.field_types import AnyJson, Body, Instant, Length, ResponseBody, Seconds, embed, fields_of
from pulse.doors.http.jobs.bodies import JobTemplate, Name, StoredRetry, read_field, read_template, write_retry
from pulse.model import schedules as model
from pulse.model.jobs import JobStatus, NewJob
from pulse.model.schedules import JOB_FIELDS, FireOutcome, ScheduleStatus
from pulse.timing.cron import Occurrence

CatchUp = Literal["fire_once", "skip", "replay"]
Overlap = Literal["allow", "skip", "buffer_one"]
TIMED = ("kind", "cron", "every", "anchor", "run_at", "tz", "starts_at", "ends_at")


class Timetable(Body):
    """A timetable, which is one of `cron`, `every`, `run_at` and `delay`, and what to do when it is late."""

    cron: str | None = Field(None, examples=["0 9 * * 1-5"])
    every: Length | None = None
    run_at: Instant | None = None
    delay: Length | None = None
    tz: str = Field("UTC", description="Of the cron expression; empty is UTC.", examples=["Europe/Berlin"])
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    max_occurrences: int | None = Field(None, ge=1, le=1 << 30)
    jitter: Length | None = None
    catch_up: CatchUp = "fire_once"
    replay_limit: int = Field(100, ge=1, le=model.MAX_REPLAYED)
    overlap: Overlap = "allow"


class NewSchedule(Timetable, JobTemplate):
    """A schedule to create."""

    name: Name = Field(examples=["daily-report"])

    def read(self) -> model.NewSchedule:
        own = {name: getattr(self, name) for name in Timetable.model_fields}
        return model.NewSchedule(name=self.name, job=NewJob(**read_template(self)), **own)


class ScheduleChanges(Timetable, JobTemplate):
    """The fields to change, and no others. A new `cron`, `every`, `run_at` or `delay` replaces the old timetable."""

    task: Name = ""

    def read(self) -> dict[str, Any]:
        return {name: read_field(name, getattr(self, name)) for name in sorted(self.model_fields_set)}


class BackfillRange(Body):
    """The part of the past whose missed occurrences get a job."""

    start: Instant
    end: Instant = Field(description="Not included.")
    limit: int = Field(100, ge=1, le=model.MAX_BACKFILLED, description="A range with more occurrences is refused.")
    dry_run: bool = False


# --- responses


class Schedule(ResponseBody):
    """A schedule as it is stored."""

    id: UUID
    name: str
    status: ScheduleStatus
    app: str | None = Field(description="The app whose code declares the schedule; null: it was created by a request.")
    kind: Literal["cron", "interval", "once"]
    cron: str | None
    every: Seconds | None
    anchor: datetime | None = Field(description="The instant from which an interval counts.")
    run_at: datetime | None
    tz: str
    starts_at: datetime | None
    ends_at: datetime | None
    max_occurrences: int | None
    jitter: Seconds | None
    catch_up: CatchUp
    replay_limit: int
    overlap: Overlap
    task: str
    payload: AnyJson
    topic: str
    priority: int
    max_attempts: int
    retry: StoredRetry | None
    timeout: Seconds | None
    result_ttl: Seconds | None
    tags: list[str]
    next_run_at: datetime | None
    buffered_for: datetime | None
    last_run_at: datetime | None
    fired: int
    paused_at: datetime | None
    pause_reason: str
    error: str | None
    created_at: datetime
    updated_at: datetime


class SchedulePage(ResponseBody):
    schedules: list[Schedule]
    next: str | None = Field(description="Send it as `after` to get the next page; null: this is the last page.")


class Fire(ResponseBody):
    """The result of an occurrence, or of several that were missed together."""

    occurrence: datetime
    outcome: FireOutcome
    cause: Literal["timetable", "trigger", "backfill"]
    logged_at: datetime
    occurrences: int
    newest: datetime
    reason: str | None
    job_id: UUID | None
    job_status: JobStatus | None
    late: Seconds


class FirePage(ResponseBody):
    fires: list[Fire] = Field(description="Newest first.")
    next: str | None


class Upcoming(ResponseBody):
    at: datetime
    local: datetime = Field(description="The same instant in the schedule's time zone.")
    note: str | None = Field(description="How a clock change moved it.")


class Preview(ResponseBody):
    occurrences: list[Upcoming]


class Backfill(ResponseBody):
    occurrences: list[datetime] = Field(description="The occurrences of the range that had no job.")
    job_ids: list[UUID] = Field(description="The jobs made for them; empty for a dry run.")
    dry_run: bool


def write_schedule(schedule: model.Schedule) -> dict[str, Any]:
    job = schedule.job
    own = {"payload": embed(job.payload), "topic": job.routed_topic, "retry": write_retry(job.retry)}
    known = fields_of(JOB_FIELDS, job, **own)
    return fields_of(Schedule.model_fields, schedule, **known, **fields_of(TIMED, schedule.timed))


def write_preview(occurrences: list[Occurrence]) -> dict[str, Any]:
    return {"occurrences": [fields_of(Upcoming.model_fields, each) for each in occurrences]}
