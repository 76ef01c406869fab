"""What does a job look like as JSON, in requests and in responses?"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from pydantic import FailFast, Field

from pulse.doors.http.field_types import (
    AnyJson,
    Body,
    Instant,
    Length,
    Number,
    ResponseBody,
    Seconds,
    embed,
    encode_payload,
    fields_of,
)
from pulse.model import jobs as model
from pulse.model.jobs import BATCH_LIMIT, JobStatus, RetryPolicy

DEFAULT_RETRY = msgspec.structs.asdict(RetryPolicy())

Name = Annotated[str, Field(min_length=1, max_length=200)]
Reason = Annotated[str, Field(max_length=2_000, description="Stored, and shown to people.")]


class Retry(Body):
    """The wait after the nth failed attempt."""

    kind: Literal["quadratic", "exponential", "fixed", "list"] = Field(
        "quadratic", description="In this order: base × n², base × factor^(n-1), base, or the nth of `delays`."
    )
    base: Length = Field(default="1s", validate_default=True)
    factor: Number = Field(default=2.0, ge=1, le=100)
    delays: Annotated[list[Length], FailFast()] = Field(
        default=[], max_length=model.MAX_ATTEMPTS, description="For kind list. After its end, the last delay is used."
    )
    max_delay: Length = Field(default="1d", validate_default=True)
    jitter: Number = Field(default=0.1, ge=0, le=1, description="A fraction: 0.1 varies the wait by ±10 %.")

    def read(self) -> RetryPolicy | None:
        """Return the policy; None if it is the default, as for a job without one."""
        policy = RetryPolicy(
            kind=self.kind,
            base=self.base.total_seconds(),
            factor=float(self.factor),
            delays=tuple(delay.total_seconds() for delay in self.delays),
            max_delay=self.max_delay.total_seconds(),
            jitter=float(self.jitter),
        )
        return None if policy == RetryPolicy() else policy


class JobTemplate(Body):
    """The fields that a new job and the job of a schedule have in common."""

    task: Name = Field(examples=["send_receipt"])
    payload: AnyJson = Field(default={}, examples=[{"to": "ada@example.com"}])
    topic: str = Field("", max_length=200, description="Empty: the name of the task.")
    priority: int = Field(0, ge=-100, le=100, description="Jobs of higher priority run first.")
    max_attempts: int = Field(3, ge=1, le=model.MAX_ATTEMPTS)
    retry: Retry | None = None
    timeout: Length | None = Field(None, description="How long one attempt may take.")
    result_ttl: Length | None = Field(None, description="How long the result is kept.")
    tags: Annotated[list[Name], FailFast()] = Field(default=[], max_length=model.MAX_TAGS)


class NewJob(JobTemplate):
    """A job to submit."""

    delay: Length | None = Field(None, description="Give this or `run_at`, not both; neither: now.")
    run_at: Instant | None = None
    deadline: Instant | None = Field(None, description="A job that has not started by then becomes a dead letter.")
    unique_key: str | None = Field(
        None,
        min_length=1,
        max_length=model.KEY_LIMIT,
        description="Only one unfinished job of the topic may have this key, or one per `unique_window`.",
    )
    unique_window: Length | None = Field(None, description="null: the key is held until the job is finished.")
    trace: dict[str, str] | None = Field(
        None, max_length=model.MAX_TRACE_FIELDS, description="Passed to the worker, such as a `traceparent`."
    )

    def read(self, job_id: UUID | None = None) -> model.NewJob:
        own = ("delay", "run_at", "deadline", "unique_key", "unique_window", "trace")
        return model.NewJob(id=job_id, **read_template(self), **{name: getattr(self, name) for name in own})


def read_template(body: JobTemplate) -> dict[str, Any]:
    return {name: read_field(name, getattr(body, name)) for name in JobTemplate.model_fields}


def read_field(name: str, value: Any) -> Any:  # noqa: ANN401
    """Return the value of this field of a template as the model has it."""
    if name == "payload":
        return encode_payload(value)
    if name == "retry":
        return value.read() if value is not None else None
    return tuple(value) if name == "tags" else value


class NewJobs(Body):
    jobs: Annotated[list[NewJob], FailFast()] = Field(min_length=1, max_length=BATCH_LIMIT)


class ReasonBody(Body):
    reason: Reason = ""


# --- responses


class StoredRetry(ResponseBody):
    """A retry policy, with all lengths in seconds."""

    kind: str
    base: Seconds
    factor: float
    delays: list[Seconds]
    max_delay: Seconds
    jitter: float


class Job(ResponseBody):
    """A job as it is stored."""

    id: UUID
    status: JobStatus
    topic: str
    task: str
    payload: AnyJson
    priority: int
    attempt: int = Field(description="How often the job was claimed.")
    max_attempts: int
    refunded: int = Field(description="Claims that do not count towards `max_attempts`.")
    submitted_at: datetime
    ready_at: datetime | None
    run_at: datetime
    claimed_at: datetime | None
    lease_until: datetime | None
    finished_at: datetime | None
    locked_by: str | None = Field(description="The worker that claimed the job last.")
    last_error: str | None
    result: AnyJson
    progress: AnyJson
    retry: StoredRetry | None
    tags: list[str]
    trace: dict[str, str] | None
    timeout: Seconds | None
    deadline: datetime | None
    result_ttl: Seconds | None
    unique_key: str | None
    key_held_until: datetime | None
    schedule_id: UUID | None = Field(description="The schedule that made the job.")
    scheduled_for: datetime | None = Field(description="The occurrence of that schedule that the job is for.")


class Submitted(ResponseBody):
    id: UUID
    created: bool = Field(description="false: `id` is an earlier job with the same key, and nothing was changed.")


class SubmittedJobs(ResponseBody):
    jobs: list[Submitted]


class JobPage(ResponseBody):
    jobs: list[Job]
    next: str | None = Field(description="Send it as `after` to get the next page; null: this is the last page.")


class Attempt(ResponseBody):
    """A failed attempt."""

    attempt: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str
    traceback: str | None


class Attempts(ResponseBody):
    attempts: list[Attempt] = Field(description="Oldest first.")


class Explanation(ResponseBody):
    """Why a job is not running."""

    job_id: UUID
    status: JobStatus
    topic: str
    reason: str = Field(description="For programs, such as PAUSED; later releases may add others.")
    text: str = Field(description="For people.")
    worker: str | None = Field(description="The worker that holds the job or held it last.")
    ahead: int | None = Field(
        description="Jobs ahead of this one; null: it does not wait in line, or there are too many."
    )
    expected_at: datetime | None = Field(description="When the job should start; null: that cannot be computed.")


def write_job(job: model.Job) -> dict[str, Any]:
    embedded = {name: embed(getattr(job, name)) for name in ("payload", "result", "progress", "trace")}
    retry = None if job.retry is None else DEFAULT_RETRY | msgspec.json.decode(job.retry)
    return fields_of(Job.model_fields, job, **embedded, retry=retry, tags=embed(job.tags) or [])


def write_retry(policy: RetryPolicy | None) -> dict[str, Any] | None:
    """Write a retry policy with every field, including those that have their default."""
    return None if policy is None else msgspec.structs.asdict(policy)
