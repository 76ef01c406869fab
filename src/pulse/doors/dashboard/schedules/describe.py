"""How is a timetable described to people, and at which address is the page of a schedule?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse.doors.dashboard.drawing import url
from pulse.timing.cron import InvalidCron
from pulse.timing.zones import UnknownZone, check_zone

if TYPE_CHECKING:
    from pulse.model.schedules import Schedule
    from pulse.timing.timetable import Timetable

# Names that cannot be a segment of the path: those of our own pages, and those that browsers resolve.
RESERVED_SEGMENTS = frozenset({"new", "calendar", "preview", ".", ".."})


def describe_timetable(timed: Timetable) -> str:
    """Describe a timetable in plain English; a cron expression that cannot be read is returned as it is."""
    try:
        return timed.explain()
    except InvalidCron:
        return timed.cron or ""


def zone_of(timed: Timetable) -> str:
    """Return the time zone in which the times of a timetable are shown and read; UTC if its own is unknown."""
    try:
        return check_zone(timed.tz)
    except UnknownZone:
        return "UTC"


def schedule_url(schedule: Schedule) -> str:
    return url("/schedules", schedule.id if schedule.name in RESERVED_SEGMENTS else schedule.name)
