"""How do people create and edit a schedule, and see when it would fire while they type?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulse.doors.dashboard import form_fields as fields
from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.known_names import KnownNames, known_names
from pulse.doors.dashboard.pages import Action, PageRequest, Redirect, View
from pulse.doors.dashboard.payloads import editable_json
from pulse.doors.dashboard.schedules.describe import describe_timetable, schedule_url, zone_of
from pulse.doors.dashboard.schedules.retry_fields import draw_retry, read_retry
from pulse.model.decisions.schedule_changes import topic_after
from pulse.model.errors import Conflict, InvalidInput, InvalidOption, InvalidSchedule, PulseError
from pulse.model.jobs import NewJob
from pulse.model.schedules import JOB_FIELDS, CatchUp, NewSchedule, Overlap, Schedule, ScheduleStatus
from pulse.model.tokens import Right
from pulse.timing.cron import Cron, InvalidCron

VIEWING = Right.VIEW
MAKING = Right.SUBMIT

PREVIEWED = 5
KINDS = {"cron": "cron", "interval": "every", "once": "run_at"}  # each kind, with the field of its time
BLANK = {
    "name": "",
    "kind": "cron",
    "cron": "",
    "every": "",
    "run_at": "",
    "tz": "UTC",
    "starts_at": "",
    "ends_at": "",
    "max_occurrences": "",
    "jitter": "",
    "catch_up": CatchUp.FIRE_ONCE.value,
    "replay_limit": "100",
    "overlap": Overlap.ALLOW.value,
    "task": "",
    "topic": "",
    "payload": "{}",
    "priority": "0",
    "max_attempts": "3",
    "timeout": "",
    "result_ttl": "",
    "tags": "",
    **draw_retry(None),
}
WHEN = ("cron", "every", "run_at")
LENGTHS = ("every", "jitter", "timeout", "result_ttl")
INSTANTS = ("run_at", "starts_at", "ends_at")
NUMBERS = {"max_occurrences": None, "replay_limit": 100, "priority": 0, "max_attempts": 3}  # each with its default
OTHERS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "tz": fields.tz,
    "tags": lambda form: fields.values_of(form, "tags"),
    "payload": lambda form: fields.payload(form, "{}"),
    "catch_up": lambda form: fields.text_of(form, "catch_up") or CatchUp.FIRE_ONCE,
    "overlap": lambda form: fields.text_of(form, "overlap") or Overlap.ALLOW,
    "retry": read_retry,
}
RETRY = tuple(draw_retry(None))  # the fields of the form that make up one field of the model
READ = ("retry", *(name for name in BLANK if name not in ("name", "kind", *RETRY)))


def read_value(form: Mapping[str, str], name: str) -> Any:  # noqa: ANN401
    """Read one field of the form as the model has it."""
    if name in NUMBERS:
        given = fields.whole_number(form, name)
        return NUMBERS[name] if given is None else given
    if name in LENGTHS:
        return fields.length(form, name)
    if name in INSTANTS:
        return fields.instant(form, name, fields.tz(form))
    if name in OTHERS:
        return OTHERS[name](form)
    return fields.text_of(form, name)


def read_kind(form: Mapping[str, str]) -> str:
    """Return the field that holds the time of this kind of schedule."""
    kind = fields.text_of(form, "kind") or "cron"
    if kind not in KINDS:
        raise InvalidOption("kind", kind[:40], f"be one of {', '.join(KINDS)}")
    when = KINDS[kind]
    if not fields.text_of(form, when):
        raise InvalidSchedule(f"{when} must not be empty")
    return when


def read_new(form: Mapping[str, str]) -> NewSchedule:
    when = read_kind(form)
    given = {name: read_value(form, name) for name in READ if name not in WHEN or name == when}
    job = NewJob(**{name: given.pop(name) for name in JOB_FIELDS if name in given})
    return NewSchedule(name=fields.text_of(form, "name"), job=job, **given)


def read_changes(form: Mapping[str, str], original: Mapping[str, str]) -> dict[str, Any]:
    """Read only the fields that were changed on the form."""
    changed = fields.changed(form, original)
    when = read_kind(form)
    if "tz" in changed:  # the same local time is another instant in another time zone
        changed |= {name for name in INSTANTS if fields.text_of(form, name)}
    if "kind" in changed:
        changed.add(when)
    if changed.intersection(RETRY):
        changed.add("retry")
    wanted = (name for name in READ if name in changed and (name not in WHEN or name == when))
    return {name: read_value(form, name) for name in wanted}


def draw_fields(schedule: Schedule) -> dict[str, str]:
    """Return the fields of a schedule as a form has them."""
    timed, job, clock = schedule.timed, schedule.job, zone_of(schedule.timed)
    own = {name: fields.clock_text(getattr(timed, name), clock) for name in INSTANTS}
    own |= {
        "name": schedule.name,
        "kind": timed.kind,
        "cron": timed.cron or "",
        "every": fields.length_text(timed.every),
        "tz": timed.tz,
        "max_occurrences": fields.number_text(schedule.max_occurrences),
        "jitter": fields.length_text(schedule.jitter),
        "catch_up": schedule.catch_up.value,
        "replay_limit": str(schedule.replay_limit),
        "overlap": schedule.overlap.value,
        "task": job.task,
        "topic": job.topic,
        "payload": editable_json(job.payload),
        "priority": str(job.priority),
        "max_attempts": str(job.max_attempts),
        "timeout": fields.length_text(job.timeout),
        "result_ttl": fields.length_text(job.result_ttl),
        "tags": ", ".join(job.tags),
    }
    return own | draw_retry(job.retry)


# --- pages


async def new_form(request: PageRequest) -> dict[str, Any]:
    known = await known_names(request)
    return form_facts("New schedule", BLANK, known, path="/schedules/new", back="/schedules")


async def edit_form(request: PageRequest) -> dict[str, Any]:
    schedule = await request.services.engine.schedules.get(request.path["name"])
    request.caller.check(MAKING, schedule.job.routed_topic)
    path = url("/schedules", schedule.id) + "/edit"
    values, known = draw_fields(schedule), await known_names(request)
    return form_facts(f"Edit {schedule.name}", values, known, path=path, back=schedule_url(schedule), schedule=schedule)


def form_facts(
    title: str,
    values: Mapping[str, str],
    known: KnownNames,
    *,
    path: str,
    back: str,
    schedule: Schedule | None = None,
) -> dict[str, Any]:
    is_owned = schedule is not None and schedule.app is not None
    return {
        "title": title,
        "values": values,
        "known": known,
        "path": path,
        "back": back,
        "schedule": schedule,
        "is_owned": is_owned,
        "is_disabled": schedule is not None and schedule.status is ScheduleStatus.DISABLED,
    }


async def preview(request: PageRequest) -> dict[str, Any]:
    """Preview what has been typed so far. An error becomes a hint, since the form is still being filled in."""
    try:
        return {"hint": "", **await _read_preview(request)}
    except PulseError as error:
        return {"hint": str(error), "description": "", "upcoming": []}


async def _read_preview(request: PageRequest) -> dict[str, Any]:
    form = request.query
    when = read_kind(form)
    names = (when, "tz", "starts_at", "ends_at", "max_occurrences")
    given = {name: read_value(form, name) for name in names}
    if when == "cron":
        try:
            Cron.parse(given["cron"], given["tz"])
        except InvalidCron as error:
            raise InvalidInput(error.reason) from None
    new = NewSchedule(name="preview", job=NewJob(task="preview"), **given)
    upcoming = await request.services.engine.schedules.preview_new(new, n=PREVIEWED)
    timed = new.timed(upcoming[0].at) if when != "run_at" else None
    return {"description": describe_timetable(timed) if timed else "once", "upcoming": upcoming}


# --- actions


async def create(request: PageRequest, form: Mapping[str, str]) -> Redirect:
    new = read_new(form)
    request.caller.check(MAKING, new.job.routed_topic)
    schedule, is_new = await request.services.engine.schedules.disclosing_to(
        lambda topic: request.caller.may(Right.FOLLOW, topic)
    ).create(new)
    message = f"{schedule.name} is created" if is_new else f"{schedule.name} existed already"
    return Redirect(schedule_url(schedule), message)


async def edit(request: PageRequest, form: Mapping[str, str]) -> Redirect:
    engine = request.services.engine.schedules
    schedule = await engine.get(request.path["name"])
    request.caller.check(MAKING, schedule.job.routed_topic)
    if form.get("seen") != schedule.updated_at.isoformat():
        raise Conflict(f"{schedule.name} was changed by somebody else meanwhile: load the page again")
    changes = read_changes(form, draw_fields(schedule))
    if not changes:
        return Redirect(schedule_url(schedule), "nothing was changed")
    request.caller.check(MAKING, topic_after(schedule, changes))
    await engine.checked_for(schedule.job.routed_topic).edit(schedule.id, changes)
    return Redirect(schedule_url(schedule), f"{schedule.name} is changed: {', '.join(sorted(changes))}")


VIEWS = (
    View("/schedules/new", "schedules/form.html", new_form, MAKING, is_live=False),
    View("/schedules/preview", "when_preview.html", preview, VIEWING, is_live=False, is_part=True),
    View("/schedules/{name}/edit", "schedules/form.html", edit_form, MAKING, is_live=False),
)
ACTIONS = (
    Action("/schedules/new", create, MAKING),
    Action("/schedules/{name}/edit", edit, MAKING),
)
