"""Which routes are there for jobs over HTTP?

Each route first finds out which topics a request is about, then checks that the caller may use them, and only then
responds or changes anything.
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
from pulse.doors.http.errors import json_response
from pulse.doors.http.field_types import After, Instant, Limit, fields_of
from pulse.doors.http.idempotency import IdempotencyKey, check_same, with_id_of_key
from pulse.doors.http.jobs import bodies as bodies
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.paging import encode_page
from pulse.doors.http.services import InjectedServices, Services
from pulse.engine.jobs.bulk import as_shown
from pulse.model.errors import InvalidInput
from pulse.model.jobs import FINISHED, Job, JobFilter, JobStatus, NewJob, Submitted, check_size
from pulse.model.tokens import Right

LONGEST_WAIT = 20.0  # seconds
SAME = "The job exists already, by its Idempotency-Key or unique_key; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["jobs"])
JobId = Annotated[UUID, Path(alias="id")]


@router.post(
    "/v1/jobs",
    summary="Submit a job",
    response_model=bodies.Job,
    status_code=201,
    responses=error_responses(409) | {200: {"model": bodies.Job, "description": SAME}},
)
async def submit_job(
    body: bodies.NewJob, services: InjectedServices, idempotency_key: IdempotencyKey = None
) -> Response:
    new = body.read()
    caller.get().check(Right.SUBMIT, new.routed_topic)
    if idempotency_key is not None:
        new = await with_id_of_key(services.engine.jobs, idempotency_key, new)
    [submitted] = await _submit(services, [new])
    if submitted.id == new.id and not submitted.created:
        await check_same(services.engine.jobs, await services.engine.jobs.get_unmasked(submitted.id), new)
    job = await services.engine.jobs.get(submitted.id)
    return json_response(bodies.write_job(job), 201 if submitted.created else 200)


@router.post(
    "/v1/jobs/batch",
    summary="Submit many jobs: all of them, or none if there is an error",
    response_model=bodies.SubmittedJobs,
    responses=error_responses(409),
)
async def submit_jobs(
    body: bodies.NewJobs,
    services: InjectedServices,
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    if idempotency_key is not None:
        raise InvalidInput("Idempotency-Key is for single jobs: give each job of a batch a unique_key")
    check_size("jobs", body.jobs)
    new = [job.read() for job in body.jobs]
    for topic in {job.routed_topic for job in new}:
        caller.get().check(Right.SUBMIT, topic)
    return json_response({"jobs": await _submit(services, new)})


async def _submit(services: Services, new: list[NewJob]) -> list[Submitted]:
    submitted = await services.submit(new)
    await asyncio.sleep(0)  # a worker may be waiting: send the jobs, or their claim, before this response is written
    return submitted


@router.get("/v1/jobs", summary="List jobs", response_model=bodies.JobPage, responses=error_responses())
async def list_jobs(
    services: InjectedServices,
    topic: str | None = None,
    task: str | None = None,
    status: JobStatus | None = None,
    tag: str | None = None,
    error: Annotated[str | None, Query(description="A part of the job's last error.")] = None,
    submitted_after: Instant | None = None,
    submitted_before: Instant | None = None,
    schedule_id: Annotated[
        UUID | None, Query(description="The schedule that made the jobs; it may have been deleted.")
    ] = None,
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

    async def find(max_rows: int) -> tuple[list[dict[str, object]], str | None]:
        list_page = as_shown(services.engine.jobs.list_page, services.settings.redaction)
        page = await list_page(wanted, after=after, limit=max_rows)
        return [bodies.write_job(job) for job in page.jobs], page.next

    return await encode_page("jobs", find, limit, services.page_bytes)


@router.get("/v1/jobs/{id}", summary="Read a job", response_model=bodies.Job, responses=error_responses(404))
async def get_job(job_id: JobId, services: InjectedServices) -> Response:
    return json_response(bodies.write_job(await _find(services, job_id, Right.FOLLOW)))


@router.get(
    "/v1/jobs/{id}/wait", summary="Wait for the end of a job", response_model=bodies.Job, responses=error_responses(404)
)
async def wait_job(
    job_id: JobId,
    services: InjectedServices,
    seconds: Annotated[float, Query(ge=0, le=LONGEST_WAIT, allow_inf_nan=False)] = LONGEST_WAIT,
) -> Response:
    """Return the job once it is finished.

    When the time has passed, or the server stops, the unfinished job is returned: ask again.
    """
    with services.waiters.enter(job_id) as waiter:
        job = await _find(services, job_id, Right.FOLLOW)
        if job.status not in FINISHED and seconds:
            job = await waiter.wait(timedelta(seconds=seconds)) or await services.engine.jobs.get(job_id)
    return json_response(bodies.write_job(job))


@router.post(
    "/v1/jobs/{id}/cancel", summary="Cancel a job", response_model=bodies.Job, responses=error_responses(404, 409)
)
async def cancel_job(job_id: JobId, services: InjectedServices, body: bodies.ReasonBody | None = None) -> Response:
    """Cancel a job that waits or runs. A running handler learns of it at its worker's next heartbeat."""
    await _find(services, job_id, Right.MANAGE)
    job = await services.engine.jobs.cancel(job_id, reason=body.reason if body else "")
    return json_response(bodies.write_job(job))


@router.post(
    "/v1/jobs/{id}/replay",
    summary="Replay a dead letter",
    response_model=bodies.Job,
    responses=error_responses(404, 409),
)
async def replay_job(job_id: JobId, services: InjectedServices) -> Response:
    """Send a dead letter back to work, with a fresh budget of attempts."""
    await _find(services, job_id, Right.OPERATE)
    return json_response(bodies.write_job(await services.engine.jobs.replay(job_id)))


@router.post(
    "/v1/jobs/{id}/run-now",
    summary="Run a job before its time",
    response_model=bodies.Job,
    responses=error_responses(404, 409),
)
async def run_job_now(job_id: JobId, services: InjectedServices) -> Response:
    """Make a job pending that is scheduled or waits for its next attempt."""
    await _find(services, job_id, Right.OPERATE)
    return json_response(bodies.write_job(await services.engine.jobs.run_now(job_id)))


@router.get(
    "/v1/jobs/{id}/attempts",
    summary="List the failed attempts of a job",
    response_model=bodies.Attempts,
    responses=error_responses(404),
)
async def list_attempts(job_id: JobId, services: InjectedServices) -> Response:
    job = await _find(services, job_id, Right.VIEW)
    attempts = await services.engine.jobs.attempts(job.id)
    return json_response({"attempts": [fields_of(bodies.Attempt.model_fields, attempt) for attempt in attempts]})


@router.get(
    "/v1/jobs/{id}/explain",
    summary="Explain why a job is not running",
    response_model=bodies.Explanation,
    responses=error_responses(404),
)
async def explain_job(job_id: JobId, services: InjectedServices) -> Response:
    """Return the reason, which `text` states for people, and when the job should start, if that can be computed."""
    found = await services.engine.explain(job_id)
    caller.get().check(Right.VIEW, found.topic)
    return json_response(found)


async def _find(services: Services, job_id: UUID, right: Right) -> Job:
    """Return the job with this id, after checking that the caller has this right for its topic."""
    job = await services.engine.jobs.get(job_id)
    caller.get().check(right, job.topic)
    return job
