"""How do people set an alarm, or set it again under its name, and see when it would fire while they type?

The values of headers are shown to nobody. A header whose value was not typed again keeps its value, where the engine
allows that. A redacted field of a payload is not known here, so it has to be typed again.
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
KINDS = {"delay": "delay", "instant": "fire_at", "cron": "cron"}  # each kind, with the field of its time
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
        raise InvalidOption("kind", kind[:40], f"be one of {', '.join(KINDS)}")
    name = KINDS[kind]
    if not fields.text_of(form, name):
        raise InvalidAlarm(f"{name} must not be empty")
    tz = fields.tz(form)
    match kind:
        case "delay":
            return {"delay": fields.length(form, name), "tz": tz}
        case "instant":
            return {"fire_at": fields.instant(form, name, tz), "tz": tz}
    return {"cron": fields.text_of(form, name), "tz": tz}


def read_headers(form: Mapping[str, str]) -> dict[str, str]:
    """Read the headers, one on each line. The engine may let a header with a hidden value keep its value."""
    found = {}
    for line in filter(None, map(str.strip, fields.text_of(form, "headers").split("\n"))):
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            raise InvalidInput("headers must be written one on each line, as Name: value")
        found[name] = value
    return found


def read_new(
    form: Mapping[str, str],
    owner: str,
    name: str | None,
    known: Alarm | None = None,
    original: Mapping[str, str] = BLANK,
) -> NewAlarm:
    """Read an alarm from a form. Fields that were not changed on the form keep the values of the known alarm."""
    changed = fields.changed(form, original) if known else set(BLANK)
    return NewAlarm(
        owner=owner,
        name=name,
        label=known.label if known and "label" not in changed else fields.text_of(form, "label"),
        url=known.url if known and "url" not in changed else fields.text_of(form, "url") or None,
        payload=known.payload if known and "payload" not in changed else fields.payload(form, "null"),
        headers=read_headers(form),
        max_failures=fields.whole_number(form, "max_failures"),
        **read_when(form),
    )


def draw_fields(alarm: Alarm) -> dict[str, str]:
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
        "payload": editable_json(alarm.payload),
        "max_failures": str(alarm.max_failures),
    }


# --- pages


async def new_form(request: PageRequest) -> dict[str, Any]:
    """Return the facts of an empty form, or of one that is filled from the alarm `like`."""
    own = own_owner(request.caller)
    if like := request.param("like"):
        found = await find_to_set(request, like)
        values = draw_fields(found) | {"name": "", "kind": "cron" if found.cron else "delay", "fire_at": ""}
    else:
        values = BLANK | {"owner": own}
    default = request.services.settings.alarm_target
    return _facts("New alarm", values, "/alarms/new", "/alarms", default, like=like)


async def edit_form(request: PageRequest) -> dict[str, Any]:
    found = await find_to_set(request, request.path["id"])
    path = url("/alarms", found.id)
    return _facts(
        f"Edit {found.name}", draw_fields(found), path + "/edit", path, request.services.settings.alarm_target, found
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


async def find_to_set(request: PageRequest, own_id: str) -> Alarm:
    try:
        found = await find_to_manage(request.services.engine.alarms, request.caller, UUID(own_id))
    except ValueError:
        raise AlarmNotFound(own_id) from None
    request.caller.check(SETTING, found.owner)
    return found


async def preview(request: PageRequest) -> dict[str, Any]:
    """Preview what has been typed so far. An error becomes a hint, since the form is still being filled in."""
    try:
        return {"hint": "", **await _read_preview(request)}
    except PulseError as error:
        return {"hint": str(error), "description": "", "upcoming": []}


async def _read_preview(request: PageRequest) -> dict[str, Any]:
    when = read_when(request.query)
    text = "once"
    if "cron" in when:
        try:
            text = Cron.parse(when["cron"], when["tz"]).explain()
        except InvalidCron as error:
            raise InvalidInput(error.reason) from None
    renamed = {"fire_at": "run_at"}  # the names of a schedule, whose occurrences are the same
    given = {renamed.get(name, name): value for name, value in when.items()}
    new = NewSchedule(name="preview", job=NewJob(task="preview"), **given)
    return {"description": text, "upcoming": await request.services.engine.schedules.preview_new(new, n=PREVIEWED)}


# --- actions


async def create(request: PageRequest, form: Mapping[str, str]) -> Redirect:
    owner = owner_to_set(request.caller, fields.text_of(form, "owner") or None)
    known = await find_to_set(request, form["like"]) if form.get("like") else None
    original = draw_fields(known) if known else BLANK
    new = read_new(form, owner, fields.text_of(form, "name") or None, known, original)
    result = await request.services.engine.alarms.set(new)
    message = "the alarm is set" if result.is_new else "the same alarm was set already"
    return Redirect(url("/alarms", result.alarm.id), message)


async def edit(request: PageRequest, form: Mapping[str, str]) -> Redirect:
    found = await find_to_set(request, request.path["id"])
    if found.name is None:
        raise AlarmConflict(found.id, "has no name, so it cannot be set again: cancel it, and set another")
    if form.get("seen") != str(found.revision):
        raise AlarmConflict(found.id, "was set again by somebody else meanwhile: load the page again")
    new = read_new(form, found.owner, found.name, found, draw_fields(found))
    result = await request.services.engine.alarms.set(new)
    message = "the alarm is set again" if result.is_new else "nothing was changed"
    return Redirect(url("/alarms", result.alarm.id), message)


VIEWS = (
    View("/alarms/new", "alarms/form.html", new_form, SETTING, is_live=False),
    View("/alarms/preview", "when_preview.html", preview, VIEWING, is_live=False, is_part=True),
    View("/alarms/{id}/edit", "alarms/form.html", edit_form, SETTING, is_live=False),
)
ACTIONS = (
    Action("/alarms/new", create, SETTING),
    Action("/alarms/{id}/edit", edit, SETTING),
)
