"""What can be asked about alarms over HTTP?

An alarm is found first, and whether the caller may see or tend it is checked; then it is acted upon by its id: the name
may be another's by then. Whoever may not see an alarm is told that there is none.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.alarms import bodies as bodies
from pulse.doors.http.errors import answer_with
from pulse.doors.http.field_types import After, Limit, Segment, fields_of
from pulse.doors.http.idempotency import IdempotencyKey
from pulse.doors.http.openapi import answers
from pulse.doors.http.paging import encode_page
from pulse.doors.http.services import Served, Services
from pulse.doors.owners import filter_to_list, find_to_manage, find_to_see, owner_to_set
from pulse.model.alarms import Alarm, AlarmFilter, AlarmStatus

SAME = "The same alarm is there already, by its Idempotency-Key or its name; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["alarms"])
Owner = Annotated[str | None, Query(description="Whose alarm, if it is called by its name; else the caller's own.")]
ONE: dict[str, Any] = {"response_model": bodies.Alarm, "responses": answers(404)}
CHANGED: dict[str, Any] = {"response_model": bodies.Alarm, "responses": answers(404, 409)}


@router.post(
    "/v1/alarms",
    summary="Set an alarm",
    response_model=bodies.Alarm,
    status_code=201,
    responses=answers(409) | {200: {"model": bodies.Alarm, "description": SAME}},
)
async def set_alarm(body: bodies.NewAlarm, served: Served, idempotency_key: IdempotencyKey = None) -> Response:
    new = body.read(owner_to_set(caller.get(), body.owner), idempotency_key)
    done = await served.engine.alarms.set(new)
    return answer_with(bodies.write_alarm(done.alarm), 201 if done.is_new else 200)


@router.get("/v1/alarms", summary="List alarms, newest first", response_model=bodies.AlarmPage, responses=answers())
async def list_alarms(
    served: Served,
    owner: Annotated[str | None, Query(description="Without it, all that the caller may see.")] = None,
    status: AlarmStatus | None = None,
    paused: bool | None = None,
    label: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    wanted = filter_to_list(caller.get(), AlarmFilter(owner=owner, status=status, paused=paused, label=label))

    async def find(most: int) -> tuple[list[dict[str, object]], str | None]:
        page = await served.engine.alarms.list_page(wanted, after=after, limit=most)
        return [bodies.write_alarm(alarm) for alarm in page.alarms], page.next

    return await encode_page("alarms", find, limit, served.page_bytes)


@router.get("/v1/alarms/{name}", summary="Read an alarm", **ONE)
async def get_alarm(name: Segment, served: Served, owner: Owner = None) -> Response:
    """By its id or its name, as everywhere below."""
    return answer_with(bodies.write_alarm(await find_to_see(served.engine.alarms, caller.get(), name, owner)))


@router.post("/v1/alarms/{name}/cancel", summary="Cancel an alarm", **CHANGED)
async def cancel_alarm(name: Segment, served: Served, owner: Owner = None) -> Response:
    """Cancelling it again changes nothing."""
    alarm = await _find(served, name, owner)
    return answer_with(bodies.write_alarm(await served.engine.alarms.cancel(alarm.id)))


@router.post("/v1/alarms/{name}/pause", summary="Pause an alarm", **CHANGED)
async def pause_alarm(name: Segment, served: Served, owner: Owner = None) -> Response:
    alarm = await _find(served, name, owner)
    return answer_with(bodies.write_alarm(await served.engine.alarms.pause(alarm.id)))


@router.post("/v1/alarms/{name}/resume", summary="Resume an alarm", **CHANGED)
async def resume_alarm(name: Segment, served: Served, owner: Owner = None) -> Response:
    """What a timetable missed meanwhile is not made up for; a once alarm whose time has passed fires now."""
    alarm = await _find(served, name, owner)
    return answer_with(bodies.write_alarm(await served.engine.alarms.resume(alarm.id)))


@router.post("/v1/alarms/{name}/fire", summary="Deliver an alarm now", **CHANGED)
async def fire_alarm(name: Segment, served: Served, owner: Owner = None) -> Response:
    """A once alarm is brought forward; a timetable goes on as before; one that is over is delivered once more."""
    alarm = await _find(served, name, owner)
    return answer_with(bodies.write_alarm(await served.engine.alarms.fire(alarm.id)))


@router.get(
    "/v1/alarms/{name}/deliveries",
    summary="Read every attempt to deliver it",
    response_model=bodies.DeliveryPage,
    responses=answers(404),
)
async def list_deliveries(
    name: Segment, served: Served, owner: Owner = None, after: After = None, limit: Limit = 50
) -> Response:
    alarm = await find_to_see(served.engine.alarms, caller.get(), name, owner)

    async def find(most: int) -> tuple[list[dict[str, object]], str | None]:
        page = await served.engine.alarms.deliveries(alarm.id, after=after, limit=most)
        return [fields_of(bodies.Delivery.model_fields, each) for each in page.deliveries], page.next

    return await encode_page("deliveries", find, limit, served.page_bytes)


@router.get(
    "/v1/wake-secrets",
    summary="Read what the wakes of an owner are signed with",
    response_model=bodies.WakeSecrets,
    responses=answers(),
)
async def list_wake_secrets(
    served: Served, owner: Annotated[str | None, Query(description="Whose; else the caller's own.")] = None
) -> Response:
    """For those who may set alarms of that owner."""
    secrets = await served.engine.alarms.secrets(owner_to_set(caller.get(), owner))
    return answer_with({"secrets": [fields_of(bodies.WakeSecret.model_fields, each) for each in secrets]})


async def _find(served: Services, name: str, owner: str | None) -> Alarm:
    """Once the caller may tend it."""
    return await find_to_manage(served.engine.alarms, caller.get(), name, owner)
