"""Which alarms are there, how were they delivered, and what can an operator do with them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.doors.dashboard.alarms import forms as alarm_forms
from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.pages import Action, PageRequest, Toast, View
from pulse.doors.dashboard.payloads import shown_json
from pulse.doors.dashboard.schedules.describe import describe_timetable
from pulse.doors.owners import find_to_manage, find_to_see, owner_to_list
from pulse.model.alarms import AlarmStatus, timetable
from pulse.model.errors import AlarmNotFound, InvalidOption
from pulse.model.list_filters import AlarmSearch, AlarmState
from pulse.model.tokens import Right
from pulse.timing.cron import InvalidCron

if TYPE_CHECKING:
    from pulse.model.alarms import Alarm

VIEWING = Right.VIEW
MANAGING = Right.MANAGE_ALARM
SETTING = Right.SET_ALARM

PAGE = 50


async def alarms(request: PageRequest) -> dict[str, Any]:
    owner = owner_to_list(request.caller, request.param("owner"))
    wanted = AlarmSearch(owner=owner, state=read_state(request), text=request.param("text"))
    page = await request.services.engine.alarms.search(wanted, after=request.param("after"), limit=PAGE)
    return {
        "title": "Alarms",
        "alarms": page.alarms,
        "next": page.next,
        "wanted": wanted,
        "is_all": wanted == AlarmSearch() and not request.param("after"),
        "states": list(AlarmState),
        "state_of": state_of,
        "describe_alarm": describe_alarm,
        "may_set": request.may(SETTING),
    }


def read_state(request: PageRequest) -> AlarmState | None:
    given = request.param("status")
    try:
        return AlarmState(given) if given else None
    except ValueError:
        raise InvalidOption("status", given, f"be one of {', '.join(AlarmState)}") from None


def state_of(alarm: Alarm) -> AlarmState:
    if alarm.status is not AlarmStatus.ACTIVE:
        return AlarmState(alarm.status)
    if alarm.paused_at is not None:
        return AlarmState.PAUSED
    return AlarmState.FAILING if alarm.failure_count else AlarmState.ACTIVE


def describe_alarm(alarm: Alarm) -> str:
    """Return the timetable of an alarm in plain English; empty if it fires once."""
    if alarm.cron is None:
        return ""
    try:
        return describe_timetable(timetable(alarm.cron, alarm.tz, alarm.occurrence))
    except InvalidCron:
        return alarm.cron


async def alarm(request: PageRequest) -> dict[str, Any]:
    found = await find_to_see(request.services.engine.alarms, request.caller, _read_id(request))
    page = await request.services.engine.alarms.deliveries(found.id, after=request.param("after"), limit=PAGE)
    return {
        "title": name_of(found),
        "alarm": found,
        "name": name_of(found),
        "state": state_of(found),
        "description": describe_alarm(found),
        "payload": await shown_json(request, found.payload),
        "headers": sorted(found.headers),
        "deliveries": page.deliveries,
        "next": page.next,
        "path": url("/alarms", found.id),
        "may_manage": request.may(MANAGING, found.owner),
        "may_set": request.may(SETTING, found.owner),
    }


def name_of(found: Alarm) -> str:
    return found.name or found.label or str(found.id)


async def find_alarm(request: PageRequest) -> Alarm:
    """Return the alarm of the path if the visitor may manage it."""
    return await find_to_manage(request.services.engine.alarms, request.caller, _read_id(request))


def _read_id(request: PageRequest) -> UUID:
    """Return the id in the path. Names are not accepted, since several owners may have alarms of one name."""
    try:
        return UUID(request.path["id"])
    except ValueError:
        raise AlarmNotFound(request.path["id"]) from None


# --- actions


async def pause(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(request)
    await request.services.engine.alarms.pause(found.id)
    return Toast(f"{name_of(found)} is paused")


async def resume(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(request)
    await request.services.engine.alarms.resume(found.id)
    return Toast(f"{name_of(found)} was not paused" if found.paused_at is None else f"{name_of(found)} is resumed")


async def fire(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(request)
    await request.services.engine.alarms.fire(found.id)
    return Toast(f"{name_of(found)} is delivered now")


async def cancel(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(request)
    await request.services.engine.alarms.cancel(found.id)
    return Toast(f"{name_of(found)} is cancelled")


VIEWS = (
    View("/alarms", "alarms/list.html", alarms, VIEWING),
    *alarm_forms.VIEWS,
    View("/alarms/{id}", "alarms/alarm.html", alarm, VIEWING),
)
ACTIONS = (
    *alarm_forms.ACTIONS,
    Action("/alarms/{id}/pause", pause, MANAGING),
    Action("/alarms/{id}/resume", resume, MANAGING),
    Action("/alarms/{id}/fire", fire, MANAGING),
    Action("/alarms/{id}/cancel", cancel, MANAGING),
)
