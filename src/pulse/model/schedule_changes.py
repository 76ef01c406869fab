"""How does a schedule come to be, and what does a changed definition change?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.model.errors import InvalidOption, InvalidSchedule
from pulse.model.schedules import (
    JOB_FIELDS,
    POLICY_FIELDS,
    TIMETABLE_FIELDS,
    WHEN,
    NewSchedule,
    Schedule,
    ScheduleStatus,
)

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

EDITABLE = (*TIMETABLE_FIELDS, *POLICY_FIELDS, *JOB_FIELDS)
_TIMED = ("kind", "cron", "every", "zone", "starts_at", "ends_at")


def make_schedule(new: NewSchedule, schedule_id: UUID, now: datetime, *, app: str | None = None) -> Schedule:
    """A schedule that begins now. Raises if nothing of its timetable lies in the future."""
    timed = new.timed(now)
    return Schedule(
        id=schedule_id,
        name=new.name,
        status=ScheduleStatus.ACTIVE,
        timed=timed,
        job=new.job,
        next_run_at=timed.first_after(now),
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


def redefine(schedule: Schedule, new: NewSchedule, now: datetime) -> Schedule:
    """The schedule under a new definition. Its history stays, and its cursor too unless what it counts by changes."""
    values = {name: getattr(new, name) for name in POLICY_FIELDS}
    values |= {"name": new.name, "job": new.job, "updated_at": now}
    is_retimed = schedule.status is not ScheduleStatus.ACTIVE or _timing_differs(schedule, new, now)
    if is_retimed:
        timed = new.timed(now)
        values |= {"timed": timed, "next_run_at": timed.first_after(now)}
        values |= {"status": ScheduleStatus.ACTIVE, "error": None}
    changed: Schedule = msgspec.structs.replace(schedule, **values)
    if changed.max_occurrences is not None and changed.fired >= changed.max_occurrences:
        raise InvalidOption(
            "max_occurrences",
            changed.max_occurrences,
            f"it has fired {changed.fired} times, so nothing would follow: give a larger number",
        )
    return changed


def differences(schedule: Schedule, new: NewSchedule, now: datetime) -> list[str]:
    """In what a definition differs from a schedule that is there."""
    found = [name for name in POLICY_FIELDS if getattr(schedule, name) != getattr(new, name)]
    found += [name for name in JOB_FIELDS if _of_job(schedule, name) != _of_job(new, name)]
    return ["timetable", *found] if _timing_differs(schedule, new, now) else found


def _of_job(value: Schedule | NewSchedule, name: str) -> object:
    if name == "payload":  # as the database writes it: without its spaces, in its own order
        return msgspec.json.decode(value.job.payload)
    return value.job.routed_topic if name == "topic" else getattr(value.job, name)


def _timing_differs(schedule: Schedule, new: NewSchedule, now: datetime) -> bool:
    if new.after is not None and schedule.timed.kind == "once":
        return False  # said again a little later, it names another instant and means the same one
    if new.at is not None:
        return schedule.timed.at != new.at
    timed = new.timed(now)
    return any(getattr(schedule.timed, name) != getattr(timed, name) for name in _TIMED)


def apply_changes(definition: NewSchedule, changes: Mapping[str, Any]) -> NewSchedule:
    """The definition with these fields changed. A new way to say when replaces the old one."""
    if not changes:
        raise InvalidSchedule(f"nothing to change: give at least one of {', '.join(EDITABLE)}")
    if unknown := changes.keys() - set(EDITABLE):
        raise InvalidOption("field", min(unknown), f"what can be changed is {', '.join(EDITABLE)}")
    own = {name: value for name, value in changes.items() if name not in JOB_FIELDS}
    of_job = {name: value for name, value in changes.items() if name in JOB_FIELDS}
    if any(own.get(name) is not None for name in WHEN):
        own = dict.fromkeys(WHEN) | own
    changed: NewSchedule = _changed(definition, own | {"job": _changed(definition.job, of_job)})
    return changed


def _changed(value: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """As msgspec.structs.replace, but made anew, so that it is checked."""
    return type(value)(**{name: getattr(value, name) for name in value.__struct_fields__} | dict(fields))
