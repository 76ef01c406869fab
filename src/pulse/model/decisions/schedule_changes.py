"""How is a schedule made from its definition, and what does a changed definition change?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.model.errors import InvalidOption, InvalidSchedule
from pulse.model.jobs import NewJob
from pulse.model.schedules import (
    JOB_FIELDS,
    POLICY_FIELDS,
    TIMETABLE_FIELDS,
    WHEN,
    NewSchedule,
    Schedule,
    ScheduleStatus,
    Timed,
)
from pulse.timing.timetable import MOMENT

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

EDITABLE = (*TIMETABLE_FIELDS, *POLICY_FIELDS, *JOB_FIELDS)
_SPAN = ("starts_at", "ends_at")


def make_schedule(new: NewSchedule, schedule_id: UUID, now: datetime, *, app: str | None = None) -> Schedule:
    """Return a schedule that begins now. Refuse one whose timetable has no occurrence in the future."""
    timed = new.timed(now)
    return _build_schedule(new, schedule_id, now, timed, timed.first_after(now), app=app)


def make_declared(new: NewSchedule, schedule_id: UUID, now: datetime, *, app: str) -> Schedule:
    """Return a schedule that code declares. Code may still declare one whose end has passed: it begins completed."""
    if new.run_at is not None or new.ends_at is not None:
        timed = new.timed(min(now, (new.run_at or now) - MOMENT))
        if timed.is_past(now):
            return _build_schedule(new, schedule_id, now, timed, None, app=app)
    return make_schedule(new, schedule_id, now, app=app)


def _build_schedule(
    new: NewSchedule, schedule_id: UUID, now: datetime, timed: Timed, first: datetime | None, *, app: str | None
) -> Schedule:
    return Schedule(
        id=schedule_id,
        name=new.name,
        status=ScheduleStatus.COMPLETED if first is None else ScheduleStatus.ACTIVE,
        timed=timed,
        job=new.job,
        next_run_at=first,
        buffered_for=None,
        last_run_at=None,
        fired=0,
        paused_at=None,
        pause_reason="",
        error=None,
        app=app,
        created_at=now,
        updated_at=now,
        **{name: getattr(new, name) for name in POLICY_FIELDS},
    )


def redefine(schedule: Schedule, new: NewSchedule, now: datetime, *, retime: bool) -> Schedule:
    """Return the schedule under a new definition. Its history stays, and so does its cursor unless `retime` is set."""
    values = {name: getattr(new, name) for name in POLICY_FIELDS}
    values |= {"name": new.name, "job": new.job, "updated_at": now}
    if retime or schedule.status in (ScheduleStatus.BROKEN, ScheduleStatus.DISABLED):
        timed = new.timed(now)
        values |= {"timed": timed, "next_run_at": timed.first_after(now)}
        values |= {"status": ScheduleStatus.ACTIVE, "error": None}
    changed: Schedule = msgspec.structs.replace(schedule, **values)
    return changed


def is_retimed(schedule: Schedule, new: NewSchedule, now: datetime) -> bool:
    """Tell whether a definition gives a schedule another timetable, or lets a completed one go on."""
    is_over = schedule.status is ScheduleStatus.COMPLETED
    may_go_on = is_over and schedule.max_occurrences != new.max_occurrences and not schedule.timed.is_past(now)
    return may_go_on or _timing_differs(schedule, new, now)


def differences(schedule: Schedule, new: NewSchedule, now: datetime, *, is_same_payload: bool) -> list[str]:
    """Return the fields in which a definition differs from an existing schedule.

    The database has compared the payloads, since it keeps neither the spaces in JSON nor the order of keys.
    """
    same = {name: getattr(schedule.job, name) == getattr(new.job, name) for name in JOB_FIELDS}
    same["topic"] = schedule.job.routed_topic == new.job.routed_topic
    same["payload"] = is_same_payload
    differing = [name for name in POLICY_FIELDS if getattr(schedule, name) != getattr(new, name)]
    differing += [name for name in JOB_FIELDS if not same[name]]
    return ["timetable", *differing] if _timing_differs(schedule, new, now) else differing


def _timing_differs(schedule: Schedule, new: NewSchedule, now: datetime) -> bool:
    known = schedule.timed
    if new.run_at is not None or new.delay is not None:  # said again a little later, a delay means the same instant
        is_same = known.kind == "once" and (new.delay is not None or known.run_at == new.run_at)
        return not is_same or any(getattr(known, name) != getattr(new, name) for name in ("tz", *_SPAN))
    timed = new.timed(now)
    return any(getattr(known, name) != getattr(timed, name) for name in ("kind", "cron", "every", "tz", *_SPAN))


def apply_changes(definition: Mapping[str, Any], changes: Mapping[str, Any]) -> NewSchedule:
    """Return the definition with some fields changed. A new timetable replaces the old one."""
    if not changes:
        raise InvalidSchedule(f"there is nothing to change: give at least one of {', '.join(EDITABLE)}")
    if unknown := changes.keys() - set(EDITABLE):
        raise InvalidOption("field", min(unknown), f"be one of {', '.join(EDITABLE)}")
    own = {name: value for name, value in changes.items() if name not in JOB_FIELDS}
    of_job = {name: value for name, value in changes.items() if name in JOB_FIELDS}
    if any(own.get(name) is not None for name in WHEN):
        own = dict.fromkeys(WHEN) | own
    job = NewJob(**{name: getattr(definition["job"], name) for name in NewJob.__struct_fields__} | of_job)
    changed = NewSchedule(**{**definition, "job": job} | own)
    cron = changed.parsed_cron
    if "tz" in own and cron is not None and cron.tz != changed.tz:
        raise InvalidSchedule(f"the expression {changed.cron!r} names its own time zone: change it there")
    return changed


def topic_after(schedule: Schedule, changes: Mapping[str, Any]) -> str:
    """Return the topic of its jobs once these changes are made."""
    topic: str = changes.get("topic", schedule.job.topic) or changes.get("task", schedule.job.task)
    return topic
