"""How is a timetable told, and where is a schedule found?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.doors.dashboard.drawing import url
from pulse.timing.cron import InvalidCron
from pulse.timing.zones import UnknownZone, check_zone

if TYPE_CHECKING:
    from pulse.model.schedules import Schedule
    from pulse.timing.timetable import Timetable

# Pages of ours, and what browsers take for a way up.
NOT_NAMES = frozenset({"new", "calendar", "preview", ".", ".."})


def reading(timed: Timetable) -> str:
    """In plain English; as it is written, if it cannot be read any more."""
    try:
        return timed.explain()
    except InvalidCron:
        return timed.cron or ""


def zone_of(timed: Timetable) -> str:
    """By whose clock its times are told and asked for."""
    try:
        return check_zone(timed.tz)
    except UnknownZone:
        return "UTC"


def own_url(schedule: Schedule) -> str:
    return url("/schedules", schedule.id if schedule.name in NOT_NAMES else schedule.name)
