"""Which routes are there for alarms over HTTP?

A route first finds the alarm and checks that the caller may see or manage it. Then it acts on the alarm by its id,
since another alarm may have taken the name meanwhile. A caller who may not see an alarm gets 404.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from pulse.doors.access import caller
from pulse.doors.http.access import GuardedRoute
from pulse.doors.http.alarms import bodies as bodies
from pulse.doors.http.errors import json_response
from pulse.doors.http.field_types import After, Limit, Segment, fields_of
from pulse.doors.http.idempotency import IdempotencyKey
from pulse.doors.http.openapi import error_responses
from pulse.doors.http.paging import encode_page
from pulse.doors.http.services import InjectedServices, Services
from pulse.doors.owners import filter_to_list, find_to_manage, find_to_see, owner_to_set
from pulse.model.alarms import Alarm, AlarmFilter, AlarmStatus

SAME = "The same alarm exists already, by its Idempotency-Key or its name; nothing was changed."

router = APIRouter(route_class=GuardedRoute, tags=["alarms"])
Owner = Annotated[
    str | None, Query(description="The owner of an alarm that is given by name; without it, the caller's own.")
]
ONE: dict[str, Any] = {"response_model": bodies.Alarm, "responses": error_responses(404)}
CHANGED: dict[str, Any] = {"response_model": bodies.Alarm, "responses": error_responses(404, 409)}


@router.post(
    "/v1/alarms",
    summary="Set an alarm",
    response_model=bodies.Alarm,
    status_code=201,
    responses=error_responses(409) | {200: {"model": bodies.Alarm, "description": SAME}},
)
async def set_alarm(
    body: bodies.NewAlarm, services: InjectedServices, idempotency_key: IdempotencyKey = None
) -> Response:
    new = body.read(owner_to_set(caller.get(), body.owner), idempotency_key)
    result = await services.engine.alarms.set(new)
    return json_response(bodies.write_alarm(result.alarm), 201 if result.is_new else 200)


@router.get(
    "/v1/alarms", summary="List alarms, newest first", response_model=bodies.AlarmPage, responses=error_responses()
)
async def list_alarms(
    services: InjectedServices,
    owner: Annotated[
        str | None, Query(description="The owner of the alarms; without it, all that the caller may see.")
    ] = None,
    status: AlarmStatus | None = None,
    paused: bool | None = None,
    label: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> Response:
    wanted = filter_to_list(caller.get(), AlarmFilter(owner=owner, status=status, paused=paused, label=label))

    async def find(max_rows: int) -> tuple[list[dict[str, object]], str | None]:
        page = await services.engine.alarms.list_page(wanted, after=after, limit=max_rows)
        return [bodies.write_alarm(alarm) for alarm in page.alarms], page.next

    return await encode_page("alarms", find, limit, services.page_bytes)


@router.get("/v1/alarms/{name}", summary="Read an alarm", **ONE)
async def get_alarm(name: Segment, services: InjectedServices, owner: Owner = None) -> Response:
    """Return the alarm with this id or name. The routes below find it in the same way."""
    return json_response(bodies.write_alarm(await find_to_see(services.engine.alarms, caller.get(), name, owner)))


@router.post("/v1/alarms/{name}/cancel", summary="Cancel an alarm", **CHANGED)
async def cancel_alarm(name: Segment, services: InjectedServices, owner: Owner = None) -> Response:
    """Cancel the alarm for good. Cancelling it again changes nothing."""
    alarm = await _find_to_manage(services, name, owner)
    return json_response(bodies.write_alarm(await services.engine.alarms.cancel(alarm.id)))


@router.post("/v1/alarms/{name}/pause", summary="Pause an alarm", **CHANGED)
async def pause_alarm(name: Segment, services: InjectedServices, owner: Owner = None) -> Response:
    alarm = await _find_to_manage(services, name, owner)
    return json_response(bodies.write_alarm(await services.engine.alarms.pause(alarm.id)))


@router.post("/v1/alarms/{name}/resume", summary="Resume an alarm", **CHANGED)
async def resume_alarm(name: Segment, services: InjectedServices, owner: Owner = None) -> Response:
    """Resume the alarm.

    What a timetable missed during the pause is not made up for. An alarm with a single time that has passed fires now.
    """
    alarm = await _find_to_manage(services, name, owner)
    return json_response(bodies.write_alarm(await services.engine.alarms.resume(alarm.id)))


@router.post("/v1/alarms/{name}/fire", summary="Deliver an alarm now", **CHANGED)
async def fire_alarm(name: Segment, services: InjectedServices, owner: Owner = None) -> Response:
    """Deliver the alarm now.

    An alarm with a single time is delivered early, a timetable goes on as before, and an alarm that has fired or failed
    is delivered once more.
    """
    alarm = await _find_to_manage(services, name, owner)
    return json_response(bodies.write_alarm(await services.engine.alarms.fire(alarm.id)))


@router.get(
    "/v1/alarms/{name}/deliveries",
    summary="List the attempts to deliver an alarm",
    response_model=bodies.DeliveryPage,
    responses=error_responses(404),
)
async def list_deliveries(
    name: Segment, services: InjectedServices, owner: Owner = None, after: After = None, limit: Limit = 50
) -> Response:
    alarm = await find_to_see(services.engine.alarms, caller.get(), name, owner)

    async def find(max_rows: int) -> tuple[list[dict[str, object]], str | None]:
        page = await services.engine.alarms.deliveries(alarm.id, after=after, limit=max_rows)
        return [fields_of(bodies.Delivery.model_fields, each) for each in page.deliveries], page.next

    return await encode_page("deliveries", find, limit, services.page_bytes)


@router.get(
    "/v1/wake-secrets",
    summary="Read the secrets that sign the wakes of an owner",
    response_model=bodies.WakeSecrets,
    responses=error_responses(),
)
async def list_wake_secrets(
    services: InjectedServices,
    owner: Annotated[str | None, Query(description="The owner; without it, the caller's own.")] = None,
) -> Response:
    """Return the secrets of an owner, to a caller who may set alarms of that owner."""
    secrets = await services.engine.alarms.secrets(owner_to_set(caller.get(), owner))
    return json_response({"secrets": [fields_of(bodies.WakeSecret.model_fields, each) for each in secrets]})


async def _find_to_manage(services: Services, name: str, owner: str | None) -> Alarm:
    return await find_to_manage(services.engine.alarms, caller.get(), name, owner)
