"""What will happen and what has happened by itself? The schedules, one of them, and what an operator does with it.

An action names its schedule by its id: the one that was looked at, whatever has its name by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.form_fields import instant
from pulse.doors.dashboard.pages import Action, PageRequest, Redirect, Toast, View
from pulse.doors.dashboard.payloads import shown_json
from pulse.doors.dashboard.schedules import calendar
from pulse.doors.dashboard.schedules import forms as schedule_forms
from pulse.doors.dashboard.schedules.retry_fields import tell_retry
from pulse.doors.dashboard.schedules.words import own_url, reading, zone_of
from pulse.model.errors import InvalidInput, InvalidOption, InvalidSchedule, PulseError
from pulse.model.list_filters import ScheduleSearch, ScheduleState
from pulse.model.schedules import MAX_BACKFILLED, Schedule, ScheduleStatus
from pulse.model.tokens import Right
from pulse.timing.zones import load_zone

VIEWING = Right.VIEW
MANAGING = Right.MANAGE  # to act on one as it is
MAKING = Right.SUBMIT

PAGE = 50
SHOWN_BROKEN = 3  # before all others
PREVIEWED = 10


async def schedules(look: PageRequest) -> dict[str, Any]:
    wanted = ScheduleSearch(
        text=look.given("text"), state=read_state(look), task=look.given("task"), topic=look.given("topic")
    )
    look.caller.check(VIEWING, wanted.topic or "*")
    engine = look.served.engine.schedules
    page = await engine.search(wanted, after=look.query.get("after"), limit=PAGE)
    is_all = wanted == ScheduleSearch() and not look.given("after")
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
        "may_make": look.may(MAKING),
        "reading": reading,
        "own_url": own_url,
    }


def read_state(look: PageRequest) -> ScheduleState | None:
    given = look.given("status")
    try:
        return ScheduleState(given.lower()) if given else None
    except ValueError:
        raise InvalidInput(f"status {given!r} is not one: there are {', '.join(ScheduleState)}") from None


async def schedule(look: PageRequest) -> dict[str, Any]:
    engine = look.served.engine.schedules
    found = await engine.get(look.path["name"])
    topic = found.job.routed_topic
    look.caller.check(VIEWING, topic)
    fires = await engine.fires(found.id, after=look.given("after"), limit=PAGE)
    upcoming, why_none = await _upcoming(look, found)
    return {
        "title": found.name,
        "schedule": found,
        "reading": reading(found.timed),
        "payload": await shown_json(look, found.job.payload),
        "retry": found.job.retry and tell_retry(found.job.retry),
        "upcoming": upcoming,
        "why_none": why_none,
        "fires": fires.fires,
        "next": fires.next,
        "late": (await engine.lateness([found])).get(found.id),
        "path": own_url(found),
        "by_id": url("/schedules", found.id),
        "may_tend": look.may(MANAGING, topic),
        "may_make": look.may(MAKING, topic),
        "is_alone": not any(topic in worker.topics for worker in await look.served.workers()),
        "is_owned": found.app is not None and found.status is not ScheduleStatus.DISABLED,
    }


async def _upcoming(look: PageRequest, found: Schedule) -> tuple[list[Any], str]:
    try:
        return await look.served.engine.schedules.preview(found.id, n=PREVIEWED), ""
    except InvalidSchedule as error:
        return [], str(error)


# --- actions


async def find_to_manage(look: PageRequest) -> Schedule:
    found = await look.served.engine.schedules.get(own_id(look))
    look.caller.check(MANAGING, found.job.routed_topic)
    return found


def own_id(look: PageRequest) -> UUID | str:
    try:
        return UUID(look.path["name"])
    except ValueError:
        return look.path["name"]


async def pause(look: PageRequest, form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(look)
    await look.served.engine.schedules.checked_for(found.job.routed_topic).pause(
        found.id,
        reason=form.get("reason", "").strip(),
    )
    return Toast(f"{found.name} is paused")


async def resume(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(look)
    resumed = await look.served.engine.schedules.checked_for(found.job.routed_topic).resume(found.id)
    if found.paused_at is None:
        return Toast(f"{found.name} was not paused")
    is_due = resumed.next_run_at is not None and resumed.next_run_at <= resumed.updated_at
    return Toast(f"{found.name} was due and runs now" if is_due else f"{found.name} goes on")


async def trigger(look: PageRequest, _form: Mapping[str, str]) -> Toast:
    found = await find_to_manage(look)
    fire = await look.served.engine.schedules.checked_for(found.job.routed_topic).trigger(found.id)
    return Toast(f"{found.name} has made job {fire.job_id}")


async def delete(look: PageRequest, _form: Mapping[str, str]) -> Redirect:
    found = await find_to_manage(look)
    await look.served.engine.schedules.checked_for(found.job.routed_topic).delete(found.id)
    return Redirect("/schedules", f"{found.name} is deleted; the jobs it has made stay")


# --- making up for the past


async def preview_backfill(look: PageRequest) -> dict[str, Any]:
    """A dry run. What is wrong with it is a hint: dates are typed one after the other."""
    try:
        found, stretch = await _stretch(look, look.query)
        dry = await look.served.engine.schedules.checked_for(found.job.routed_topic).backfill(
            found.id,
            **stretch,
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
        "given": {name: look.query.get(name, "") for name in ("start", "end")},
    }


def first_and_last(occurrences: Sequence[datetime], tz: tzinfo) -> list[tuple[str, datetime]]:
    """By the clock of a zone; one is both."""
    if len(occurrences) < 2:
        return [("for", at.astimezone(tz)) for at in occurrences]
    return [("first", occurrences[0].astimezone(tz)), ("last", occurrences[-1].astimezone(tz))]


def explain_backfill(error: PulseError) -> str:
    """The form has no limit to raise."""
    if isinstance(error, InvalidOption) and error.option == "limit":
        return f"there are more than {MAX_BACKFILLED:,} occurrences in it: take a shorter stretch"
    return str(error)


async def backfill(look: PageRequest, form: Mapping[str, str]) -> Redirect:
    found, stretch = await _stretch(look, form)
    done = await look.served.engine.schedules.checked_for(found.job.routed_topic).backfill(found.id, **stretch)
    made = len(done.job_ids)
    return Redirect(
        own_url(found), f"{made:,} job{'' if made == 1 else 's'} of the past made" if made else "nothing to do"
    )


async def _stretch(look: PageRequest, form: Mapping[str, str]) -> tuple[Schedule, dict[str, Any]]:
    found = await find_to_manage(look)
    start, end = (instant(form, name, zone_of(found.timed)) for name in ("start", "end"))
    if start is None or end is None:
        raise InvalidInput("from when, and until when? Both are needed")
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
