"""Which routes are there for schedules over HTTP?

A schedule submits jobs, so creating or editing one needs the right to submit to its topic. Looking at it needs the
right to follow jobs of that topic, and pausing, triggering or deleting it the right to manage them. A route first finds
the schedule by its name and checks its topic. Then it acts on the schedule by its id, since another schedule may have
taken the name meanwhile.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from pulse.doors.access import caller, check_logged
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import json_response
from pulse.doors.http.field_types import After, Limit, Segment, fields_of
from pulse.doors.http.idempotency import IdempotencyKey, id_of_trigger
from pulse.doors.http.jobs.bodies import ReasonBody
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.paging import encode_page
from pulse.doors.http.schedules import bodies as bodies
from pulse.doors.http.services import InjectedServices, Services
from pulse.model.decisions.schedule_changes import topic_after
from pulse.model.schedules import MAX_PREVIEWED, Schedule, ScheduleFilter, ScheduleStatus
from pulse.model.tokens import Right

SAME = "The same schedule exists already; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["schedules"])
Occurrences = Annotated[int, Query(ge=1, le=MAX_PREVIEWED, description="How many occurrences.")]


@router.post(
    "/v1/schedules",
    summary="Create a schedule",
    response_model=bodies.Schedule,
    status_code=201,
    responses=error_responses(409) | {200: {"model": bodies.Schedule, "description": SAME}},
)
async def create_schedule(body: bodies.NewSchedule, services: InjectedServices) -> Response:
    new = body.read()
    caller.get().check(Right.SUBMIT, new.job.routed_topic)
    schedule, is_new = await services.engine.schedules.disclosing_to(
        lambda topic: caller.get().may(Right.FOLLOW, topic)
    ).create(new)
    return json_response(bodies.write_schedule(schedule), 201 if is_new else 200)


@router.get(
    "/v1/schedules", summary="List schedules by name", response_model=bodies.SchedulePage, responses=error_responses()
)
async def list_schedules(
    services: InjectedServices,
    status: ScheduleStatus | None = None,
    paused: bool | None = None,
    task: str | None = None,
    topic: str | None = None,
    tag: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    wanted = ScheduleFilter(status=status, paused=paused, task=task, topic=topic, tag=tag)
    caller.get().check(Right.VIEW, topic or "*")

    async def find(max_rows: int) -> tuple[list[dict[str, object]], str | None]:
        page = await services.engine.schedules.list_page(wanted, after=after, limit=max_rows)
        return [bodies.write_schedule(schedule) for schedule in page.schedules], page.next

    return await encode_page("schedules", find, limit, services.page_bytes)


@router.post(
    "/v1/schedules/preview",
    summary="Preview a schedule without creating it",
    response_model=bodies.Preview,
    responses=error_responses(),
)
async def preview_new(body: bodies.NewSchedule, services: InjectedServices, n: Occurrences = 10) -> Response:
    new = body.read()
    caller.get().check(Right.FOLLOW, new.job.routed_topic)
    return json_response(bodies.write_preview(await services.engine.schedules.preview_new(new, n=n)))


@router.get(
    "/v1/schedules/{name}", summary="Read a schedule", response_model=bodies.Schedule, responses=error_responses(404)
)
async def get_schedule(name: Segment, services: InjectedServices) -> Response:
    """Return the schedule with this name or id. The routes below find it in the same way."""
    return json_response(bodies.write_schedule(await _find(services, name)))


@router.patch(
    "/v1/schedules/{name}",
    summary="Edit a schedule",
    response_model=bodies.Schedule,
    responses=error_responses(404, 409),
)
async def edit_schedule(name: Segment, body: bodies.ScheduleChanges, services: InjectedServices) -> Response:
    changes = body.read()
    schedule = await _find(services, name, Right.SUBMIT)
    caller.get().check(Right.SUBMIT, topic_after(schedule, changes))
    return json_response(
        bodies.write_schedule(
            await services.engine.schedules.checked_for(schedule.job.routed_topic).edit(schedule.id, changes)
        )
    )


@router.delete(
    "/v1/schedules/{name}",
    summary="Delete a schedule",
    response_model=bodies.Schedule,
    responses=error_responses(404, 409),
)
async def delete_schedule(name: Segment, services: InjectedServices) -> Response:
    """Delete the schedule, and return it as it was. The jobs that it has made are kept."""
    schedule = await _find(services, name, Right.MANAGE)
    return json_response(
        bodies.write_schedule(
            await services.engine.schedules.checked_for(schedule.job.routed_topic).delete(schedule.id)
        )
    )


@router.post(
    "/v1/schedules/{name}/pause",
    summary="Pause a schedule",
    response_model=bodies.Schedule,
    responses=error_responses(404),
)
async def pause_schedule(name: Segment, services: InjectedServices, body: ReasonBody | None = None) -> Response:
    schedule = await _find(services, name, Right.MANAGE)
    reason = body.reason if body else ""
    return json_response(
        bodies.write_schedule(
            await services.engine.schedules.checked_for(schedule.job.routed_topic).pause(schedule.id, reason=reason)
        )
    )


@router.post(
    "/v1/schedules/{name}/resume",
    summary="Resume a schedule",
    response_model=bodies.Schedule,
    responses=error_responses(404),
)
async def resume_schedule(name: Segment, services: InjectedServices) -> Response:
    """Resume the schedule with its first occurrence after now.

    If it fires only once and its time has passed, it fires now, unless `catch_up` is `skip`.
    """
    schedule = await _find(services, name, Right.MANAGE)
    return json_response(
        bodies.write_schedule(
            await services.engine.schedules.checked_for(schedule.job.routed_topic).resume(schedule.id)
        )
    )


@router.post(
    "/v1/schedules/{name}/trigger",
    summary="Make a job of a schedule now",
    response_model=bodies.Fire,
    responses=error_responses(404),
)
async def trigger_schedule(
    name: Segment, services: InjectedServices, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a job now, beside the timetable, even if the schedule is paused or its last job is unfinished."""
    schedule = await _find(services, name, Right.MANAGE)
    key = idempotency_key
    job_id = None if key is None else await id_of_trigger(services.engine.jobs, key, schedule)
    fire = await services.engine.schedules.checked_for(schedule.job.routed_topic).trigger(schedule.id, job_id=job_id)
    return json_response(fields_of(bodies.Fire.model_fields, fire))


@router.post(
    "/v1/schedules/{name}/backfill",
    summary="Make the jobs of missed occurrences",
    response_model=bodies.Backfill,
    responses=error_responses(404),
)
async def backfill_schedule(name: Segment, body: bodies.BackfillRange, services: InjectedServices) -> Response:
    schedule = await _find(services, name, Right.MANAGE)
    backfill = await services.engine.schedules.checked_for(schedule.job.routed_topic).backfill(
        schedule.id,
        start=body.start,
        end=body.end,
        limit=body.limit,
        dry_run=body.dry_run,
    )
    return json_response(backfill)


@router.get(
    "/v1/schedules/{name}/fires",
    summary="List the results of its occurrences",
    response_model=bodies.FirePage,
    responses=error_responses(404),
)
async def list_fires(name: Segment, services: InjectedServices, after: After = None, limit: Limit = 50) -> Response:
    """Return the log of a schedule. The log of a deleted schedule can be read by its id, as long as it is kept."""
    own_id, topic = await services.engine.schedules.find_logged(name)
    check_logged(caller.get().check, name, topic)
    page = await services.engine.schedules.fires(own_id, after=after, limit=limit)
    return json_response(
        {"fires": [fields_of(bodies.Fire.model_fields, fire) for fire in page.fires], "next": page.next}
    )


@router.get(
    "/v1/schedules/{name}/preview",
    summary="Preview its occurrences",
    response_model=bodies.Preview,
    responses=error_responses(404),
)
async def preview_schedule(name: Segment, services: InjectedServices, n: Occurrences = 10) -> Response:
    schedule = await _find(services, name)
    return json_response(bodies.write_preview(await services.engine.schedules.preview(schedule.id, n=n)))


async def _find(services: Services, name: str, right: Right = Right.FOLLOW) -> Schedule:
    """Return the schedule with this name, after checking that the caller has this right for its topic."""
    schedule = await services.engine.schedules.get(name)
    caller.get().check(right, schedule.job.routed_topic)
    return schedule
