"""What can be asked about jobs over HTTP?

Each route first finds out which topics a request is about, then has the caller checked for them, and only then answers
or changes anything.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Path, Query
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import answer_with
from pulse.doors.http.field_types import After, Instant, Limit, fields_of
from pulse.doors.http.idempotency import IdempotencyKey, check_same, with_id_of_key
from pulse.doors.http.jobs import bodies as bodies
from pulse.doors.http.openapi import answers
from pulse.doors.http.paging import encode_page
from pulse.doors.http.services import Served, Services
from pulse.engine.jobs.bulk import as_shown
from pulse.model.errors import InvalidInput
from pulse.model.jobs import FINISHED, Job, JobFilter, JobStatus, NewJob, Submitted, check_size
from pulse.model.tokens import Right

LONGEST_WAIT = 20.0  # seconds
SAME = "The job is there already, by its Idempotency-Key or unique_key; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["jobs"])
JobId = Annotated[UUID, Path(alias="id")]


@router.post(
    "/v1/jobs",
    summary="Submit a job",
    response_model=bodies.Job,
    status_code=201,
    responses=answers(409) | {200: {"model": bodies.Job, "description": SAME}},
)
async def submit_job(body: bodies.NewJob, served: Served, idempotency_key: IdempotencyKey = None) -> Response:
    new = body.read()
    caller.get().check(Right.SUBMIT, new.routed_topic)
    if idempotency_key is not None:
        new = await with_id_of_key(served.engine.jobs, idempotency_key, new)
    [submitted] = await _submit(served, [new])
    if submitted.id == new.id and not submitted.created:
        await check_same(served.engine.jobs, await served.engine.jobs.get_unmasked(submitted.id), new)
    job = await served.engine.jobs.get(submitted.id)
    return answer_with(bodies.write_job(job), 201 if submitted.created else 200)


@router.post(
    "/v1/jobs/batch",
    summary="Submit many jobs: all of them, or on an error none",
    response_model=bodies.SubmittedJobs,
    responses=answers(409),
)
async def submit_jobs(
    body: bodies.NewJobs, served: Served, idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None
) -> Response:
    if idempotency_key is not None:
        raise InvalidInput("Idempotency-Key is for single jobs: give each job of a batch a unique_key")
    check_size("jobs", body.jobs)
    new = [job.read() for job in body.jobs]
    for topic in {job.routed_topic for job in new}:
        caller.get().check(Right.SUBMIT, topic)
    return answer_with({"jobs": await _submit(served, new)})


async def _submit(served: Services, new: list[NewJob]) -> list[Submitted]:
    submitted = await served.submit(new)
    await asyncio.sleep(0)  # a worker waits for them: let them or their claim go out before the answer is written
    return submitted


@router.get("/v1/jobs", summary="List jobs", response_model=bodies.JobPage, responses=answers())
async def list_jobs(
    served: Served,
    topic: str | None = None,
    task: str | None = None,
    status: JobStatus | None = None,
    tag: str | None = None,
    error: Annotated[str | None, Query(description="A part of its last error.")] = None,
    submitted_after: Instant | None = None,
    submitted_before: Instant | None = None,
    schedule_id: Annotated[UUID | None, Query(description="Made by this schedule, also if it is deleted.")] = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    wanted = JobFilter(
        topic=topic,
        task=task,
        status=status,
        tag=tag,
        error=error,
        submitted_after=submitted_after,
        submitted_before=submitted_before,
        schedule_id=schedule_id,
    )
    caller.get().check(Right.VIEW, topic or "*")

    async def find(most: int) -> tuple[list[dict[str, object]], str | None]:
        shown = as_shown(served.engine.jobs.list_page, served.settings.redaction)
        page = await shown(wanted, after=after, limit=most)
        return [bodies.write_job(job) for job in page.jobs], page.next

    return await encode_page("jobs", find, limit, served.page_bytes)


@router.get("/v1/jobs/{id}", summary="Read a job", response_model=bodies.Job, responses=answers(404))
async def get_job(job_id: JobId, served: Served) -> Response:
    return answer_with(bodies.write_job(await _find(served, job_id, Right.FOLLOW)))


@router.get(
    "/v1/jobs/{id}/wait", summary="Wait for the end of a job", response_model=bodies.Job, responses=answers(404)
)
async def wait_job(
    job_id: JobId,
    served: Served,
    seconds: Annotated[float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False)] = LONGEST_WAIT,
) -> Response:
    """Answers with the job once it is over, or as it stands when the time has passed or the server stops: ask again."""
    with served.waiters.enter(job_id) as waiter:
        job = await _find(served, job_id, Right.FOLLOW)
        if job.status not in FINISHED and seconds:
            job = await waiter.wait(timedelta(seconds=seconds)) or await served.engine.jobs.get(job_id)
    return answer_with(bodies.write_job(job))


@router.post("/v1/jobs/{id}/cancel", summary="Cancel a job", response_model=bodies.Job, responses=answers(404, 409))
async def cancel_job(job_id: JobId, served: Served, body: bodies.ReasonGiven | None = None) -> Response:
    """Waiting or running. A running handler learns of it at its next heartbeat."""
    await _find(served, job_id, Right.MANAGE)
    job = await served.engine.jobs.cancel(job_id, reason=body.reason if body else "")
    return answer_with(bodies.write_job(job))


@router.post(
    "/v1/jobs/{id}/replay", summary="Replay a dead letter", response_model=bodies.Job, responses=answers(404, 409)
)
async def replay_job(job_id: JobId, served: Served) -> Response:
    """It gets a fresh budget of attempts."""
    await _find(served, job_id, Right.OPERATE)
    return answer_with(bodies.write_job(await served.engine.jobs.replay(job_id)))


@router.post(
    "/v1/jobs/{id}/run-now",
    summary="Run a job before its time",
    response_model=bodies.Job,
    responses=answers(404, 409),
)
async def run_job_now(job_id: JobId, served: Served) -> Response:
    """One that is scheduled or waits for its next attempt becomes pending at once."""
    await _find(served, job_id, Right.OPERATE)
    return answer_with(bodies.write_job(await served.engine.jobs.run_now(job_id)))


@router.get(
    "/v1/jobs/{id}/attempts", summary="Read its failed attempts", response_model=bodies.Attempts, responses=answers(404)
)
async def list_attempts(job_id: JobId, served: Served) -> Response:
    job = await _find(served, job_id, Right.VIEW)
    attempts = await served.engine.jobs.attempts(job.id)
    return answer_with({"attempts": [fields_of(bodies.Attempt.model_fields, attempt) for attempt in attempts]})


@router.get(
    "/v1/jobs/{id}/explain",
    summary="Say why it is not running",
    response_model=bodies.Explanation,
    responses=answers(404),
)
async def explain_job(job_id: JobId, served: Served) -> Response:
    """The exact reason, in `text` for people, and when it should begin, where that can be reckoned."""
    found = await served.engine.explain(job_id)
    caller.get().check(Right.VIEW, found.topic)
    return answer_with(found)


async def _find(served: Services, job_id: UUID, right: Right) -> Job:
    """The job, once the caller may do with it what the right says."""
    job = await served.engine.jobs.get(job_id)
    caller.get().check(right, job.topic)
    return job
