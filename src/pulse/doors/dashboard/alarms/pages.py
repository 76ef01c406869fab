"""Which URLs will be woken, which were, and what did they answer? And what an operator does about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pulse.doors.dashboard.alarms import forms as alarm_forms
from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.pages import Action, PageRequest, Toast, View
from pulse.doors.dashboard.payloads import shown_json
from pulse.doors.dashboard.schedules.words import reading
from pulse.doors.owners import find_to_manage, find_to_see, owner_to_list
from pulse.model.alarms import AlarmStatus, timetable
from pulse.model.errors import AlarmNotFound, InvalidInput
from pulse.model.list_filters import AlarmSearch, AlarmState
from pulse.model.tokens import Right
from pulse.timing.cron import InvalidCron

if TYPE_CHECKING:
    from pulse.model.alarms import Alarm

VIEWING = Right.VIEW
MANAGING = Right.MANAGE_ALARM
SETTING = Right.SET_ALARM

PAGE = 50


async def alarms(look: PageRequest) -> dict[str, Any]:
    owner = owner_to_list(look.caller, look.given("owner"))
    wanted = AlarmSearch(owner=owner, state=read_state(look), text=look.given("text"))
    page = await look.served.engine.alarms.search(wanted, after=look.given("after"), limit=PAGE)
    return {
        "title": "Alarms",
        "alarms": page.alarms,
        "next": page.next,
        "wanted": wanted,
        "is_all": wanted == AlarmSearch() and not look.given("after"),
        "states": list(AlarmState),
        "state_of": state_of,
        "told": told,
        "may_set": look.may(SETTING),
    }


def read_state(look: PageRequest) -> AlarmState | None:
    given = look.given("status")
    try:
        return AlarmState(given.lower()) if given else None
    except ValueError:
        raise InvalidInput(f"status {given!r} is not one: there are {', '.join(AlarmState)}") from None


def state_of(alarm: Alarm) -> AlarmState:
    if alarm.status is not AlarmStatus.ACTIVE:
        return AlarmState(alarm.status)
    if alarm.paused_at is not None:
        return AlarmState.PAUSED
    return AlarmState.FAILING if alarm.failure_count else AlarmState.ACTIVE


def told(alarm: Alarm) -> str:
    """Its timetable in plain English; empty: it fires once."""
    if alarm.cron is None:
        return ""
    try:
        return reading(timetable(alarm.cron, alarm.tz, alarm.occurrence))
    except InvalidCron:
        return alarm.cron


async def alarm(look: PageRequest) -> dict[str, Any]:
    found = await find_to_see(look.served.engine.alarms, look.caller, _read_id(look))
    page = await look.served.engine.alarms.deliveries(found.id, after=look.given("after"), limit=PAGE)
    return {
        "title": name_of(found),
        "alarm": found,
        "name": name_of(found),
        "state": state_of(found),
        "told": told(found),
        "payload": await shown_json(look, found.payload),
        "headers": sorted(found.headers),
        "deliveries": page.deliveries,
        "next": page.next,
        "path": url("/alarms", found.id),
        "may_tend": look.may(MANAGING, found.owner),
        "may_set": look.may(SETTING, found.owner),
    }


def name_of(found: Alarm) -> str:
    return found.name or found.label or str(found.id)


async def find_alarm(look: PageRequest) -> Alarm:
    """To act on it."""
    return await find_to_manage(look.served.engine.alarms, look.caller, _read_id(look))


def _read_id(look: PageRequest) -> UUID:
    """By its id alone: a name is one of many owners'."""
    try:
        return UUID(look.path["id"])
    except ValueError:
        raise AlarmNotFound(look.path["id"]) from None


# --- actions


async def pause(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(look)
    await look.served.engine.alarms.pause(found.id)
    return Toast(f"{name_of(found)} is paused")


async def resume(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(look)
    await look.served.engine.alarms.resume(found.id)
    return Toast(f"{name_of(found)} was not paused" if found.paused_at is None else f"{name_of(found)} goes on")


async def fire(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(look)
    await look.served.engine.alarms.fire(found.id)
    return Toast(f"{name_of(found)} is delivered now")


async def cancel(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_alarm(look)
    await look.served.engine.alarms.cancel(found.id)
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
