"""What fires in the next seven days, on which day and at which hour?

The calendar has at most MAX_SCHEDULES schedules, those that fire next, and MAX_EACH occurrences of each. A schedule
that fires more often is described instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby, islice
from typing import Any, NamedTuple

from pulse.doors.dashboard.form_fields import tz
from pulse.doors.dashboard.pages import PageRequest, View
from pulse.doors.dashboard.schedules.describe import describe_timetable, schedule_url
from pulse.model.schedules import Schedule
from pulse.model.tokens import Right
from pulse.timing.cron import InvalidCron
from pulse.timing.timetable import MOMENT
from pulse.timing.zones import load_zone, zone_names

VIEWING = Right.VIEW
WEEK = timedelta(days=7)
MAX_SCHEDULES = 200
MAX_EACH = 28  # four a day
MAX_PER_HOUR = 12


class Entry(NamedTuple):
    at: datetime  # by the clock of the chosen zone
    schedule: Schedule


class FrequentSchedule(NamedTuple):
    """A schedule with too many occurrences to show each of them."""

    schedule: Schedule
    description: str
    times: int


class Hour(NamedTuple):
    text: str
    entries: list[Entry]
    more: int


class Day(NamedTuple):
    date: date
    hours: list[Hour]


class Week(NamedTuple):
    days: list[Day]
    frequent: list[FrequentSchedule]


async def calendar(request: PageRequest) -> dict[str, Any]:
    request.caller.check(VIEWING, "*")
    chosen = tz(request.query)
    now, found = await request.services.engine.schedules.due_until(WEEK, limit=MAX_SCHEDULES + 1)
    week = await asyncio.to_thread(lay_out, found[:MAX_SCHEDULES], now, chosen)  # takes up to a tenth of a second
    return {
        "title": "Next week",
        "week": week,
        "today": now.astimezone(load_zone(chosen)).date(),
        "tz": chosen,
        "is_cut": len(found) > MAX_SCHEDULES,
        "most": MAX_SCHEDULES,
        "schedule_url": schedule_url,
    }


def lay_out(schedules: Sequence[Schedule], now: datetime, chosen: str) -> Week:
    place = load_zone(chosen)
    entries: list[Entry] = []
    frequent: list[FrequentSchedule] = []
    for schedule in schedules:
        try:
            found = list(islice(_to_come(schedule, now + WEEK), MAX_EACH + 1))
            if len(found) > MAX_EACH:
                times = _count_to_come(schedule, found[0], now + WEEK)
                frequent.append(FrequentSchedule(schedule, describe_timetable(schedule.timed), times))
            else:
                entries += [Entry(at.astimezone(place), schedule) for at in found]
        except InvalidCron:  # the schedule becomes BROKEN when it is next due
            continue
    entries.sort(key=lambda entry: (entry.at, entry.schedule.name))
    first = now.astimezone(place).date()
    by_day = {each: list(of_day) for each, of_day in groupby(entries, key=lambda entry: entry.at.date())}
    dates = [first + timedelta(days=number) for number in range(WEEK.days + 1)]
    days = [Day(each, _hours(by_day.get(each, []))) for each in dates]
    return Week(days, sorted(frequent, key=lambda each: each.schedule.name))


def _to_come(schedule: Schedule, until: datetime) -> Iterator[datetime]:
    if schedule.next_run_at is None:
        return
    coming = schedule.timed.after(schedule.next_run_at - MOMENT)
    for at in coming if schedule.max_occurrences is None else islice(coming, _left(schedule)):
        if at >= until:
            return
        yield at


def _left(schedule: Schedule) -> int:
    return max(0, (schedule.max_occurrences or 0) - schedule.fired)


def _count_to_come(schedule: Schedule, first: datetime, until: datetime) -> int:
    total = schedule.timed.upto(first, until - MOMENT).total
    return total if schedule.max_occurrences is None else min(total, _left(schedule))


def _hours(entries: Sequence[Entry]) -> list[Hour]:
    found = []
    # Grouped by offset, too: when clocks go back, an hour comes twice.
    for _, group in groupby(entries, key=lambda entry: (entry.at.hour, entry.at.utcoffset())):
        together = list(group)
        text = together[0].at.strftime("%H:00")
        found.append(Hour(text, together[:MAX_PER_HOUR], max(0, len(together) - MAX_PER_HOUR)))
    return found


async def zones(_request: PageRequest) -> dict[str, Any]:
    return {"zones": sorted(zone_names())}


VIEWS = (
    View("/schedules/calendar", "schedules/calendar.html", calendar, VIEWING, every=30.0),
    View("/zones", "zones.html", zones, VIEWING, is_live=False, is_part=True),
)
