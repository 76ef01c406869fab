"""What happened to one job, and what can be done with it?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from pulse.doors.dashboard.formatting import cut
from pulse.doors.dashboard.jobs.filters import read_id
from pulse.doors.dashboard.pages import Action, PageRequest, Toast, View
from pulse.doors.dashboard.payloads import shown_json
from pulse.doors.http.errors import HttpRefusal
from pulse.model.errors import PulseError, ScheduleNotFound
from pulse.model.jobs import FINISHED, TRANSITIONS, Attempt, Job, JobEvent, JobStatus
from pulse.model.tokens import Right

VIEWING = Right.VIEW
ACTING = Right.OPERATE
MAX_ATTEMPTS = 50  # the page shows the newest; the API has all
LONGEST_TRACEBACK = 8_000
MAX_STEPS = 10**15  # of a progress bar: a page cannot write a number with more digits than a float has


class Moment(NamedTuple):
    """One entry of a job's history."""

    at: datetime | None
    text: str
    kind: str = ""  # good, bad, or neither
    worker: str | None = None
    took: timedelta | None = None
    error: str | None = None
    traceback: str | None = None


class Progress(NamedTuple):
    done: float
    of: float


async def one_job(request: PageRequest) -> dict[str, Any]:
    job = await find_job(request, VIEWING)
    attempts = await request.services.engine.jobs.attempts(job.id)
    tried, trace = attempts[-MAX_ATTEMPTS:], read_object(job.trace)
    return {
        "title": f"{job.task} {str(job.id)[-8:]}",
        "job": job,
        "why": None if job.status in FINISHED else await explain(request, job),
        "moments": moments(job, tried),
        "older": len(attempts) - len(tried),
        "payload": await shown_json(request, job.payload),
        "result": await shown_json(request, job.result),
        "progress": await shown_json(request, job.progress),
        "bar": read_progress(job.progress),
        "tags": read_json(job.tags) or [],
        "trace": trace,
        "retry": await shown_json(request, job.retry),
        "parent": read_id(str(trace.get("parent", ""))),
        "schedule": await _schedule_name(request, job),
        "may_act": request.may(ACTING, job.topic),
        "can": allowed_events(job),
        "has_open_api": not request.services.gate.has_tokens,
    }


async def find_job(request: PageRequest, right: Right) -> Job:
    """Return the job of the path, after checking that the visitor has this right for its topic."""
    job_id = read_id(request.path["id"])
    if job_id is None:
        example = UUID(int=7 << 76)
        raise HttpRefusal(404, "not_found", f"{request.path['id'][:60]!r} is not the id of a job, such as {example}")
    job = await request.services.engine.jobs.get(job_id)
    request.caller.check(right, job.topic)
    return job


async def explain(request: PageRequest, job: Job) -> str | None:
    """Return a sentence that says why the job is not running; None if the engine cannot tell."""
    try:
        return (await request.services.engine.explain(job.id)).text
    except PulseError:  # the job has just been removed or changed
        return None


async def _schedule_name(request: PageRequest, job: Job) -> str | None:
    if job.schedule_id is None:
        return None
    try:
        return (await request.services.engine.schedules.get(job.schedule_id)).name
    except ScheduleNotFound:
        return None


# --- the history


def moments(job: Job, attempts: list[Attempt]) -> list[Moment]:
    """Return what happened, in order, with those failed attempts that the log has kept."""
    found = [Moment(job.submitted_at, "submitted")]
    found += [_failed(attempt) for attempt in attempts]
    if job.status is JobStatus.RUNNING:
        found.append(Moment(job.claimed_at, f"attempt {job.attempt} began", worker=job.locked_by))
    elif job.status is JobStatus.PENDING:
        found.append(Moment(job.ready_at, "ready, and waiting for a worker"))
    elif job.status in (JobStatus.SCHEDULED, JobStatus.RETRYING):
        found.append(Moment(job.run_at, "will be ready"))
    elif job.status is JobStatus.COMPLETED:
        found.append(_completed(job))
    else:
        if job.status is JobStatus.CANCELLED and _was_running(job, attempts):
            found.append(Moment(job.claimed_at, f"attempt {job.attempt} began", worker=job.locked_by))
        found.append(_ended(job, attempts))
    return found


def _was_running(job: Job, attempts: list[Attempt]) -> bool:
    """Tell whether a cancelled job was running then: its last attempt began, and did not end in another way."""
    return job.claimed_at is not None and not any(attempt.attempt == job.attempt for attempt in attempts)


def _failed(attempt: Attempt) -> Moment:
    return Moment(
        attempt.ended_at,
        f"attempt {attempt.attempt} failed",
        "bad",
        attempt.worker,
        attempt.ended_at - attempt.started_at if attempt.started_at else None,
        cut(attempt.error),
        cut(attempt.traceback, LONGEST_TRACEBACK) or None,
    )


def _completed(job: Job) -> Moment:
    took = job.finished_at - job.claimed_at if job.finished_at and job.claimed_at else None
    return Moment(job.finished_at, f"completed by attempt {job.attempt}", "good", job.locked_by, took)


def _ended(job: Job, attempts: list[Attempt]) -> Moment:
    """Return the end of a job that did not complete. Its error is left out if the last failed attempt shows it."""
    is_shown = bool(attempts) and attempts[-1].error == job.last_error
    text = "cancelled" if job.status is JobStatus.CANCELLED else "became a dead letter"
    return Moment(job.finished_at, text, "bad", error=None if is_shown else cut(job.last_error) or None)


# --- JSON of a job


def read_json(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)


def read_object(text: str | None) -> dict[str, Any]:
    value = read_json(text)
    return value if isinstance(value, dict) else {}


def read_progress(text: str | None) -> Progress | None:
    """Return progress that can be drawn as a bar: {"done": 3, "of": 10}, or with "total" in place of "of"."""
    value = read_object(text)
    match (value.get("done"), value.get("of", value.get("total"))):
        case (int() | float() as done, int() | float() as of) if 0 < of <= MAX_STEPS:
            return Progress(max(0, min(done, of)), of)
    return None


# --- actions


async def cancel(request: PageRequest, form: Mapping[str, str]) -> Toast:
    job = await find_job(request, ACTING)
    await request.services.engine.jobs.cancel(job.id, reason=form.get("reason", "").strip())
    return Toast("cancelled" if job.status is not JobStatus.RUNNING else "cancelled: its handler is told to stop")


async def replay(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    job = await find_job(request, ACTING)
    await request.services.engine.jobs.replay(job.id)
    return Toast(f"sent back to work, with {job.max_attempts} new attempts")


async def run_now(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    job = await find_job(request, ACTING)
    await request.services.engine.jobs.run_now(job.id)
    return Toast("it runs as soon as a worker has a free slot")


def allowed_events(job: Job) -> set[JobEvent]:
    """Return what can be done with a job in its state."""
    return {event for status, event in TRANSITIONS if status is job.status}


VIEWS = (View("/jobs/{id}", "jobs/job.html", one_job, VIEWING, every=1.0),)
ACTIONS = (
    Action("/jobs/{id}/cancel", cancel, ACTING),
    Action("/jobs/{id}/replay", replay, ACTING),
    Action("/jobs/{id}/run-now", run_now, ACTING),
)
