"""What fires in the next seven days, on which day and at which hour?

Bounded: so many schedules, those that fire next, and so many occurrences of each. One that fires more often is told by
its rhythm instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby, islice
from typing import Any, NamedTuple

from pulse.doors.dashboard.form_fields import tz
from pulse.doors.dashboard.pages import PageRequest, View
from pulse.doors.dashboard.schedules.words import own_url, reading
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


class Often(NamedTuple):
    """A schedule that would fill the week."""

    schedule: Schedule
    reading: str
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
    often: list[Often]


async def calendar(look: PageRequest) -> dict[str, Any]:
    look.caller.check(VIEWING, "*")
    chosen = tz(look.query)
    now, found = await look.served.engine.schedules.due_until(WEEK, limit=MAX_SCHEDULES + 1)
    week = await asyncio.to_thread(lay_out, found[:MAX_SCHEDULES], now, chosen)  # a tenth of a second at most
    return {
        "title": "Next week",
        "week": week,
        "today": now.astimezone(load_zone(chosen)).date(),
        "tz": chosen,
        "is_cut": len(found) > MAX_SCHEDULES,
        "most": MAX_SCHEDULES,
        "own_url": own_url,
    }


def lay_out(schedules: Sequence[Schedule], now: datetime, chosen: str) -> Week:
    place = load_zone(chosen)
    entries: list[Entry] = []
    often: list[Often] = []
    for schedule in schedules:
        try:
            found = list(islice(_to_come(schedule, now + WEEK), MAX_EACH + 1))
            if len(found) > MAX_EACH:
                often.append(Often(schedule, reading(schedule.timed), _count(schedule, found[0], now + WEEK)))
            else:
                entries += [Entry(at.astimezone(place), schedule) for at in found]
        except InvalidCron:  # it will be broken when its time comes, and says so then
            continue
    entries.sort(key=lambda entry: (entry.at, entry.schedule.name))
    first = now.astimezone(place).date()
    by_day = {each: list(of_day) for each, of_day in groupby(entries, key=lambda entry: entry.at.date())}
    dates = [first + timedelta(days=number) for number in range(WEEK.days + 1)]
    days = [Day(each, _hours(by_day.get(each, []))) for each in dates]
    return Week(days, sorted(often, key=lambda each: each.schedule.name))


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


def _count(schedule: Schedule, first: datetime, until: datetime) -> int:
    total = schedule.timed.upto(first, until - MOMENT).total
    return total if schedule.max_occurrences is None else min(total, _left(schedule))


def _hours(entries: Sequence[Entry]) -> list[Hour]:
    found = []
    # By offset, too: the hour that clocks go back to comes twice.
    for _, group in groupby(entries, key=lambda entry: (entry.at.hour, entry.at.utcoffset())):
        together = list(group)
        text = together[0].at.strftime("%H:00")
        found.append(Hour(text, together[:MAX_PER_HOUR], max(0, len(together) - MAX_PER_HOUR)))
    return found


async def zones(_look: PageRequest) -> dict[str, Any]:
    return {"zones": sorted(zone_names())}


VIEWS = (
    View("/schedules/calendar", "schedules/calendar.html", calendar, VIEWING, every=30.0),
    View("/zones", "zones.html", zones, VIEWING, is_live=False, is_part=True),
)
