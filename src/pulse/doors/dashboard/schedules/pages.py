"""Which schedules are there, when do they fire, and what can an operator do with them?

An action names its schedule by its id. So it acts on the schedule that the operator saw, even if another one has taken
its name meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.form_fields import instant
from pulse.doors.dashboard.formatting import length_of
from pulse.doors.dashboard.pages import Action, PageRequest, Redirect, Toast, View
from pulse.doors.dashboard.payloads import shown_json
from pulse.doors.dashboard.schedules import calendar
from pulse.doors.dashboard.schedules import forms as schedule_forms
from pulse.doors.dashboard.schedules.describe import describe_timetable, schedule_url, zone_of
from pulse.doors.dashboard.schedules.retry_fields import describe_retry
from pulse.model.errors import InvalidInput, InvalidOption, InvalidSchedule, PulseError
from pulse.model.list_filters import ScheduleSearch, ScheduleState
from pulse.model.schedules import MAX_BACKFILLED, Schedule, ScheduleStatus
from pulse.model.tokens import Right
from pulse.timing.zones import load_zone

VIEWING = Right.VIEW
MANAGING = Right.MANAGE  # to pause, trigger or delete a schedule
MAKING = Right.SUBMIT

PAGE = 50
SHOWN_BROKEN = 3  # above the list
PREVIEWED = 10


async def schedules(request: PageRequest) -> dict[str, Any]:
    wanted = ScheduleSearch(
        text=request.param("text"), state=read_state(request), task=request.param("task"), topic=request.param("topic")
    )
    request.caller.check(VIEWING, wanted.topic or "*")
    engine = request.services.engine.schedules
    page = await engine.search(wanted, after=request.query.get("after"), limit=PAGE)
    is_all = wanted == ScheduleSearch() and not request.param("after")
    broken = await engine.search(ScheduleSearch(state=ScheduleState.BROKEN), limit=SHOWN_BROKEN) if is_all else None
    return {
        "title": "Schedules",
        "schedules": page.schedules,
        "next": page.next,
        "broken": broken,
        "is_all": is_all,
        "lateness": await engine.lateness(page.schedules),
        "wanted": wanted,
        "states": list(ScheduleState),
        "may_make": request.may(MAKING),
        "describe_timetable": describe_timetable,
        "schedule_url": schedule_url,
    }


def read_state(request: PageRequest) -> ScheduleState | None:
    given = request.param("status")
    try:
        return ScheduleState(given) if given else None
    except ValueError:
        raise InvalidOption("status", given, f"be one of {', '.join(ScheduleState)}") from None


async def schedule(request: PageRequest) -> dict[str, Any]:
    engine = request.services.engine.schedules
    found = await engine.get(request.path["name"])
    topic = found.job.routed_topic
    request.caller.check(VIEWING, topic)
    fires = await engine.fires(found.id, after=request.param("after"), limit=PAGE)
    upcoming, why_none = await _upcoming(request, found)
    return {
        "title": found.name,
        "schedule": found,
        "description": describe_timetable(found.timed),
        "payload": await shown_json(request, found.job.payload),
        "retry": found.job.retry and describe_retry(found.job.retry),
        "upcoming": upcoming,
        "why_none": why_none,
        "fires": fires.fires,
        "next": fires.next,
        "late": (await engine.lateness([found])).get(found.id),
        "path": schedule_url(found),
        "by_id": url("/schedules", found.id),
        "may_manage": request.may(MANAGING, topic),
        "may_make": request.may(MAKING, topic),
        "is_alone": not any(topic in worker.topics for worker in await request.services.workers()),
        "is_owned": found.app is not None and found.status is not ScheduleStatus.DISABLED,
    }


async def _upcoming(request: PageRequest, found: Schedule) -> tuple[list[Any], str]:
    try:
        return await request.services.engine.schedules.preview(found.id, n=PREVIEWED), ""
    except InvalidSchedule as error:
        return [], str(error)


# --- actions


async def find_to_manage(request: PageRequest) -> Schedule:
    found = await request.services.engine.schedules.get(own_id(request))
    request.caller.check(MANAGING, found.job.routed_topic)
    return found


def own_id(request: PageRequest) -> UUID | str:
    try:
        return UUID(request.path["name"])
    except ValueError:
        return request.path["name"]


async def pause(request: PageRequest, form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(request)
    await request.services.engine.schedules.checked_for(found.job.routed_topic).pause(
        found.id,
        reason=form.get("reason", "").strip(),
    )
    return Toast(f"{found.name} is paused")


async def resume(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(request)
    resumed = await request.services.engine.schedules.checked_for(found.job.routed_topic).resume(found.id)
    if found.paused_at is None:
        return Toast(f"{found.name} was not paused")
    is_due = resumed.next_run_at is not None and resumed.next_run_at <= resumed.updated_at
    return Toast(f"{found.name} was due and runs now" if is_due else f"{found.name} is resumed")


async def trigger(request: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(request)
    fire = await request.services.engine.schedules.checked_for(found.job.routed_topic).trigger(found.id)
    return Toast(f"{found.name} has made job {fire.job_id}")


async def delete(request: PageRequest, _form: Mapping[str, str]) -> Redirect:
    found = await find_to_manage(request)
    await request.services.engine.schedules.checked_for(found.job.routed_topic).delete(found.id)
    return Redirect("/schedules", f"{found.name} is deleted; the jobs it has made are kept")


# --- backfill


async def preview_backfill(request: PageRequest) -> dict[str, Any]:
    """Preview a backfill by a dry run. An error becomes a hint, since the form is still being filled in."""
    try:
        found, given = await _read_range(request, request.query)
        dry = await request.services.engine.schedules.checked_for(found.job.routed_topic).backfill(
            found.id,
            **given,
            dry_run=True,
        )
    except PulseError as error:
        return {"hint": explain_backfill(error), "backfill": None}
    tz = zone_of(found.timed)
    return {
        "hint": "",
        "backfill": dry,
        "path": url("/schedules", found.id),
        "tz": tz,
        "ends": first_and_last(dry.occurrences, load_zone(tz)),
        "given": {name: request.query.get(name, "") for name in ("start", "end")},
    }


def first_and_last(occurrences: Sequence[datetime], tz: tzinfo) -> list[tuple[str, datetime]]:
    """Return the first and the last occurrence in local time, or the only one."""
    if len(occurrences) < 2:
        return [("for", at.astimezone(tz)) for at in occurrences]
    return [("first", occurrences[0].astimezone(tz)), ("last", occurrences[-1].astimezone(tz))]


def explain_backfill(error: PulseError) -> str:
    """Return a hint for this error. The form has no field for a limit, so it must not ask for a higher one."""
    if isinstance(error, InvalidOption) and error.option == "limit":
        return f"there are more than {MAX_BACKFILLED:,} occurrences in this range: choose a shorter one"
    return str(error)


async def backfill(request: PageRequest, form: Mapping[str, str]) -> Redirect:
    found, given = await _read_range(request, form)
    result = await request.services.engine.schedules.checked_for(found.job.routed_topic).backfill(found.id, **given)
    message = f"{length_of(result.job_ids, 'job')} made for the past" if result.job_ids else "there was nothing to make"
    return Redirect(schedule_url(found), message)


async def _read_range(request: PageRequest, form: Mapping[str, str]) -> tuple[Schedule, dict[str, Any]]:
    found = await find_to_manage(request)
    start, end = (instant(form, name, zone_of(found.timed)) for name in ("start", "end"))
    if start is None or end is None:
        raise InvalidInput("From and Until must both be given")
    return found, {"start": start, "end": end, "limit": MAX_BACKFILLED}


VIEWS = (
    View("/schedules", "schedules/list.html", schedules, VIEWING),
    *calendar.VIEWS,
    *schedule_forms.VIEWS,
    View(
        "/schedules/{name}/backfill", "schedules/backfill.html", preview_backfill, MANAGING, is_live=False, is_part=True
    ),
    View("/schedules/{name}", "schedules/schedule.html", schedule, VIEWING),
)
ACTIONS = (
    *schedule_forms.ACTIONS,
    Action("/schedules/{name}/pause", pause, MANAGING),
    Action("/schedules/{name}/resume", resume, MANAGING),
    Action("/schedules/{name}/trigger", trigger, MANAGING),
    Action("/schedules/{name}/delete", delete, MANAGING),
    Action("/schedules/{name}/backfill", backfill, MANAGING),
)
