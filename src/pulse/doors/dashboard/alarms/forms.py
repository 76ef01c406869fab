"""How is an alarm set by hand, or set again under its name, and when would it fire while that is typed?

Nobody is shown what a header says, so those that were not typed anew are kept as they are, where the engine tells them;
what is secret it tells nobody, so that has to be typed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pulse.doors.dashboard import form_fields as fields
from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.pages import Action, PageRequest, Redirect, View
from pulse.doors.dashboard.payloads import editable_json
from pulse.doors.owners import find_to_manage, own_owner, owner_to_set
from pulse.model.alarms import HIDDEN, Alarm, AlarmStatus, NewAlarm
from pulse.model.errors import AlarmConflict, AlarmNotFound, InvalidAlarm, InvalidInput, InvalidOption, PulseError
from pulse.model.jobs import NewJob
from pulse.model.schedules import NewSchedule
from pulse.model.tokens import Right
from pulse.timing.cron import Cron, InvalidCron
from pulse.timing.zones import UnknownZone, check_zone

VIEWING = Right.VIEW
SETTING = Right.SET_ALARM

PREVIEWED = 5
KINDS = {"delay": "delay", "instant": "fire_at", "cron": "cron"}  # and the field that says when
BLANK = {
    "owner": "",
    "name": "",
    "label": "",
    "kind": "delay",
    "delay": "",
    "fire_at": "",
    "cron": "",
    "tz": "UTC",
    "url": "",
    "headers": "",
    "payload": "null",
    "max_failures": "",
}


def read_when(form: Mapping[str, str]) -> dict[str, Any]:
    kind = fields.text_of(form, "kind") or "delay"
    if kind not in KINDS:
        raise InvalidInput(f"kind {kind[:40]!r} is not one: there are {', '.join(KINDS)}")
    name = KINDS[kind]
    if not fields.text_of(form, name):
        raise InvalidAlarm(f"when? {name} is empty")
    tz = fields.tz(form)
    match kind:
        case "delay":
            return {"delay": fields.length(form, name), "tz": tz}
        case "instant":
            return {"fire_at": fields.instant(form, name, tz), "tz": tz}
    return {"cron": fields.text_of(form, name), "tz": tz}


def read_headers(form: Mapping[str, str]) -> dict[str, str]:
    """Read a line for each. One that still says nothing is kept as it was, where the engine allows it."""
    found = {}
    for line in filter(None, map(str.strip, fields.text_of(form, "headers").split("\n"))):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            raise InvalidOption("headers", "(not shown)", "be written one a line, as Name: value")
        found[name] = value
    return found


def read_new(
    form: Mapping[str, str], owner: str, name: str | None, known: Alarm | None = None, drawn: Mapping[str, str] = BLANK
) -> NewAlarm:
    """What a form says. What was left as it was drawn is as it is on the known one."""
    touched = fields.changed(form, drawn) if known else set(BLANK)
    return NewAlarm(
        owner=owner,
        name=name,
        label=known.label if known and "label" not in touched else fields.text_of(form, "label"),
        url=known.url if known and "url" not in touched else fields.text_of(form, "url") or None,
        payload=known.payload if known and "payload" not in touched else fields.payload(form, "null"),
        headers=read_headers(form),
        max_failures=fields.whole(form, "max_failures"),
        **read_when(form),
    )


def draw_fields(look: PageRequest, alarm: Alarm) -> dict[str, str]:
    try:
        tz = check_zone(alarm.tz)
    except UnknownZone:
        tz = "UTC"
    return {
        "owner": alarm.owner,
        "name": alarm.name or "",
        "label": alarm.label,
        "kind": "cron" if alarm.cron else "instant",
        "delay": "",
        "fire_at": "" if alarm.cron else fields.clock_text(alarm.next_fire_at or alarm.occurrence, tz),
        "cron": alarm.cron or "",
        "tz": alarm.tz,
        "url": alarm.url or "",
        "headers": "\n".join(f"{name}: {HIDDEN}" for name in alarm.headers),
        "payload": editable_json(look, alarm.payload),
        "max_failures": str(alarm.max_failures),
    }


# --- pages


async def new_form(look: PageRequest) -> dict[str, Any]:
    """Empty, or `like` another."""
    own = own_owner(look.caller)
    if like := look.given("like"):
        found = await find_to_set(look, like)
        values = draw_fields(look, found) | {"name": "", "kind": "cron" if found.cron else "delay", "fire_at": ""}
    else:
        values = BLANK | {"owner": own}
    default = look.served.settings.alarm_target
    return _facts("New alarm", values, "/alarms/new", "/alarms", default, like=like)


async def edit_form(look: PageRequest) -> dict[str, Any]:
    found = await find_to_set(look, look.path["id"])
    path = url("/alarms", found.id)
    return _facts(
        f"Edit {found.name}", draw_fields(look, found), path + "/edit", path, look.served.settings.alarm_target, found
    )


def _facts(
    title: str,
    values: Mapping[str, str],
    path: str,
    back: str,
    default_target: str | None,
    alarm: Alarm | None = None,
    like: str | None = None,
) -> dict[str, Any]:
    return {
        "title": title,
        "values": values,
        "path": path,
        "back": back,
        "alarm": alarm,
        "is_over": alarm is not None and alarm.status is not AlarmStatus.ACTIVE,
        "has_default": default_target is not None,
        "like": like,
    }


async def find_to_set(look: PageRequest, own_id: str) -> Alarm:
    try:
        found = await find_to_manage(look.served.engine.alarms, look.caller, UUID(own_id))
    except ValueError:
        raise AlarmNotFound(own_id) from None
    look.caller.check(SETTING, found.owner)
    return found


async def preview(look: PageRequest) -> dict[str, Any]:
    """What is typed so far. Half an expression is no mistake, so what is missing is a hint."""
    try:
        return {"hint": "", **await _read_so_far(look)}
    except PulseError as error:
        return {"hint": str(error), "reading": "", "upcoming": []}


async def _read_so_far(look: PageRequest) -> dict[str, Any]:
    when = read_when(look.query)
    text = "once"
    if "cron" in when:
        try:
            text = Cron.parse(when["cron"], when["tz"]).explain()
        except InvalidCron as error:
            raise InvalidInput(error.reason) from None
    renamed = {"fire_at": "run_at"}  # as a schedule calls it: the occurrences are the same
    given = {renamed.get(name, name): value for name, value in when.items()}
    new = NewSchedule(name="preview", job=NewJob(task="preview"), **given)
    return {"reading": text, "upcoming": await look.served.engine.schedules.preview_new(new, n=PREVIEWED)}


# --- actions


async def create(look: PageRequest, form: Mapping[str, str]) -> Redirect:
    owner = owner_to_set(look.caller, fields.text_of(form, "owner") or None)
    known = await find_to_set(look, form["like"]) if form.get("like") else None
    drawn = draw_fields(look, known) if known else BLANK
    new = read_new(form, owner, fields.text_of(form, "name") or None, known, drawn)
    done = await look.served.engine.alarms.set(new)
    return Redirect(url("/alarms", done.alarm.id), "the alarm is set" if done.is_new else "it was set already")


async def edit(look: PageRequest, form: Mapping[str, str]) -> Redirect:
    found = await find_to_set(look, look.path["id"])
    if found.name is None:
        raise AlarmConflict(found.id, "has no name, so it cannot be set again: cancel it, and set another")
    if form.get("seen") != str(found.revision):
        raise AlarmConflict(found.id, "was set again by somebody else meanwhile: load the page again")
    new = read_new(form, found.owner, found.name, found, draw_fields(look, found))
    done = await look.served.engine.alarms.set(new)
    return Redirect(url("/alarms", done.alarm.id), "the alarm is set again" if done.is_new else "nothing was changed")


VIEWS = (
    View("/alarms/new", "alarms/form.html", new_form, SETTING, is_live=False),
    View("/alarms/preview", "when_preview.html", preview, VIEWING, is_live=False, is_part=True),
    View("/alarms/{id}/edit", "alarms/form.html", edit_form, SETTING, is_live=False),
)
ACTIONS = (
    Action("/alarms/new", create, SETTING),
    Action("/alarms/{id}/edit", edit, SETTING),
)
