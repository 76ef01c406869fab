"""What can be asked about schedules over HTTP?

To make a schedule is to submit its jobs, so whoever makes or edits one must be allowed to submit to its topic. To look
at one is to follow it, and to act on it as it is, to tend it. A schedule is found by its name first, its topic checked,
and then it is acted upon by its id: the name may be another's by then.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from pulse.doors.access import caller, check_logged
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.errors import answer_with
from pulse.doors.http.field_types import After, Limit, Segment, fields_of
from pulse.doors.http.idempotency import IdempotencyKey, id_of_trigger
from pulse.doors.http.jobs.bodies import ReasonGiven
from pulse.doors.http.openapi import answers
from pulse.doors.http.paging import encode_page
from pulse.doors.http.schedules import bodies as bodies
from pulse.doors.http.services import Served, Services
from pulse.model.decisions.schedule_changes import topic_after
from pulse.model.schedules import MAX_PREVIEWED, Schedule, ScheduleFilter, ScheduleStatus
from pulse.model.tokens import Right

SAME = "The same schedule is there already; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["schedules"])
Occurrences = Annotated[int, Query(ge=1, le=MAX_PREVIEWED, description="How many occurrences.")]


@router.post(
    "/v1/schedules",
    summary="Make a schedule",
    response_model=bodies.Schedule,
    status_code=201,
    responses=answers(409) | {200: {"model": bodies.Schedule, "description": SAME}},
)
async def create_schedule(body: bodies.NewSchedule, served: Served) -> Response:
    new = body.read()
    caller.get().check(Right.SUBMIT, new.job.routed_topic)
    schedule, is_new = await served.engine.schedules.disclosing_to(
        lambda topic: caller.get().may(Right.FOLLOW, topic)
    ).create(new)
    return answer_with(bodies.write_schedule(schedule), 201 if is_new else 200)


@router.get("/v1/schedules", summary="List schedules by name", response_model=bodies.SchedulePage, responses=answers())
async def list_schedules(
    served: Served,
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

    async def find(most: int) -> tuple[list[dict[str, object]], str | None]:
        page = await served.engine.schedules.list_page(wanted, after=after, limit=most)
        return [bodies.write_schedule(schedule) for schedule in page.schedules], page.next

    return await encode_page("schedules", find, limit, served.page_bytes)


@router.post(
    "/v1/schedules/preview",
    summary="Preview a schedule that is not made",
    response_model=bodies.Preview,
    responses=answers(),
)
async def preview_new(body: bodies.NewSchedule, served: Served, n: Occurrences = 10) -> Response:
    new = body.read()
    caller.get().check(Right.FOLLOW, new.job.routed_topic)
    return answer_with(bodies.write_preview(await served.engine.schedules.preview_new(new, n=n)))


@router.get("/v1/schedules/{name}", summary="Read a schedule", response_model=bodies.Schedule, responses=answers(404))
async def get_schedule(name: Segment, served: Served) -> Response:
    """By its name or its id, as everywhere below."""
    return answer_with(bodies.write_schedule(await _find(served, name)))


@router.patch(
    "/v1/schedules/{name}", summary="Edit a schedule", response_model=bodies.Schedule, responses=answers(404, 409)
)
async def edit_schedule(name: Segment, body: bodies.ScheduleChanges, served: Served) -> Response:
    changes = body.read()
    schedule = await _find(served, name, Right.SUBMIT)
    caller.get().check(Right.SUBMIT, topic_after(schedule, changes))
    return answer_with(
        bodies.write_schedule(
            await served.engine.schedules.checked_for(schedule.job.routed_topic).edit(schedule.id, changes)
        )
    )


@router.delete(
    "/v1/schedules/{name}", summary="Delete a schedule", response_model=bodies.Schedule, responses=answers(404, 409)
)
async def delete_schedule(name: Segment, served: Served) -> Response:
    """Answers with the schedule as it was. The jobs it has made stay."""
    schedule = await _find(served, name, Right.MANAGE)
    return answer_with(
        bodies.write_schedule(await served.engine.schedules.checked_for(schedule.job.routed_topic).delete(schedule.id))
    )


@router.post(
    "/v1/schedules/{name}/pause", summary="Pause a schedule", response_model=bodies.Schedule, responses=answers(404)
)
async def pause_schedule(name: Segment, served: Served, body: ReasonGiven | None = None) -> Response:
    schedule = await _find(served, name, Right.MANAGE)
    reason = body.reason if body else ""
    return answer_with(
        bodies.write_schedule(
            await served.engine.schedules.checked_for(schedule.job.routed_topic).pause(schedule.id, reason=reason)
        )
    )


@router.post(
    "/v1/schedules/{name}/resume", summary="Resume a schedule", response_model=bodies.Schedule, responses=answers(404)
)
async def resume_schedule(name: Segment, served: Served) -> Response:
    """It goes on with the first occurrence after now."""
    schedule = await _find(served, name, Right.MANAGE)
    return answer_with(
        bodies.write_schedule(await served.engine.schedules.checked_for(schedule.job.routed_topic).resume(schedule.id))
    )


@router.post(
    "/v1/schedules/{name}/trigger", summary="Make a job now", response_model=bodies.Fire, responses=answers(404)
)
async def trigger_schedule(name: Segment, served: Served, idempotency_key: IdempotencyKey = None) -> Response:
    """Beside the timetable, whatever pause and overlap say."""
    schedule = await _find(served, name, Right.MANAGE)
    key = idempotency_key
    job_id = None if key is None else await id_of_trigger(served.engine.jobs, key, schedule)
    fire = await served.engine.schedules.checked_for(schedule.job.routed_topic).trigger(schedule.id, job_id=job_id)
    return answer_with(fields_of(bodies.Fire.model_fields, fire))


@router.post(
    "/v1/schedules/{name}/backfill",
    summary="Make the jobs of the past that were not made",
    response_model=bodies.Backfill,
    responses=answers(404),
)
async def backfill_schedule(name: Segment, body: bodies.Stretch, served: Served) -> Response:
    schedule = await _find(served, name, Right.MANAGE)
    backfill = await served.engine.schedules.checked_for(schedule.job.routed_topic).backfill(
        schedule.id,
        start=body.start,
        end=body.end,
        limit=body.limit,
        dry_run=body.dry_run,
    )
    return answer_with(backfill)


@router.get(
    "/v1/schedules/{name}/fires",
    summary="Read what became of its occurrences",
    response_model=bodies.FirePage,
    responses=answers(404),
)
async def list_fires(name: Segment, served: Served, after: After = None, limit: Limit = 50) -> Response:
    """Of a schedule that was deleted, by its id, as long as the log is kept."""
    own_id, topic = await served.engine.schedules.find_logged(name)
    check_logged(caller.get().check, name, topic)
    page = await served.engine.schedules.fires(own_id, after=after, limit=limit)
    return answer_with({"fires": [fields_of(bodies.Fire.model_fields, fire) for fire in page.fires], "next": page.next})


@router.get(
    "/v1/schedules/{name}/preview",
    summary="Preview its occurrences",
    response_model=bodies.Preview,
    responses=answers(404),
)
async def preview_schedule(name: Segment, served: Served, n: Occurrences = 10) -> Response:
    schedule = await _find(served, name)
    return answer_with(bodies.write_preview(await served.engine.schedules.preview(schedule.id, n=n)))


async def _find(served: Services, name: str, right: Right = Right.FOLLOW) -> Schedule:
    """The schedule, once the caller may do with it what the right says."""
    schedule = await served.engine.schedules.get(name)
    caller.get().check(right, schedule.job.routed_topic)
    return schedule
