"""Do other people's cron engines agree, where they are right?

They were written by others from other ideas, so a mistake in our reading of the calendar would show here. Each is asked
only what it answers as documented in docs/reference/cron.md; what is left out, and why:

    cronsim 2.8     answers in the past during the second pass of a repeated hour, and loses an occurrence after a shift
                    of half an hour: asked away from clock changes only. `*/n` in a day field leaves the choice to the
                    other one (Debian's rule). A date that never comes is invalid to it.
    croniter 6.2.4  repeats fixed times in the repeated hour: asked away from clock changes only. `0-0` and `sun-sun`
                    are every day to it, and a day field that lists all its values is a star.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import croniter
import cronsim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pulse.timing import zones
from pulse.timing.cron import Cron, NoFutureTime
from pulse.timing.cron_calendar import Calendar

ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@st.composite
def a_field(draw: st.DrawFn, least: int, most: int, names: tuple[str, ...] = (), *, star_steps: bool = True) -> str:
    def value(low: int) -> tuple[int, str]:
        number = draw(st.integers(low, most))
        return number, names[number - least] if bool(names) and draw(st.booleans()) else str(number)

    def item() -> str:
        shape = draw(st.sampled_from(["value", "range", "stepped", "star_step" if star_steps else "value"]))
        if shape == "star_step":
            return f"*/{draw(st.integers(2, most))}"
        first, text = value(least)
        if shape != "value" and first < most:
            text += f"-{value(first + 1)[1]}"
            if shape == "stepped":
                text += f"/{draw(st.integers(1, most))}"
        return text

    if draw(st.integers(0, 2)) == 0:
        return "*"
    return ",".join(item() for _ in range(draw(st.integers(1, 3))))


def expressions(*, star_steps_in_days: bool) -> st.SearchStrategy[str]:
    day = a_field(1, 31, star_steps=star_steps_in_days)
    weekday = a_field(0, 6, WEEKDAYS, star_steps=star_steps_in_days)
    return st.tuples(a_field(0, 59), a_field(0, 23), day, a_field(1, 12, MONTHS), weekday).map(" ".join)


INSTANTS = st.datetimes(datetime(2012, 1, 2), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def next_away_from_changes(text: str, tz: str, after: datetime) -> datetime:
    """Our answer, if no clock changes within two days of it or of the question."""
    try:
        found = Cron.parse(text, tz).next_after(after)
    except NoFutureTime:
        assume(False)
    near = [moment.timestamp() for moment in (after, found)]
    years = range(after.year - 1, found.year + 2)
    assume(not any(abs(turn.at - at) < 2 * 86400 for year in years for turn in zones.turns(tz, year) for at in near))
    return found


@settings(max_examples=200, deadline=None)
@given(expressions(star_steps_in_days=False), st.sampled_from(ZONES), INSTANTS)
def test_cronsim_agrees(text: str, tz: str, after: datetime) -> None:
    found = next_away_from_changes(text, tz, after)

    assert next(cronsim.CronSim(text, after.astimezone(ZoneInfo(tz)))).astimezone(UTC) == found


@settings(max_examples=200, deadline=None)
@given(expressions(star_steps_in_days=True), st.sampled_from(ZONES), INSTANTS)
def test_croniter_agrees(text: str, tz: str, after: datetime) -> None:
    calendar = Cron.parse(text).timetable
    assert isinstance(calendar, Calendar)
    assume(calendar.day.star or calendar.day.values.bit_count() < 31)
    assume(calendar.weekday.star or calendar.weekday.values.bit_count() < 7)
    found = next_away_from_changes(text, tz, after)

    theirs = croniter.croniter(text, after.astimezone(ZoneInfo(tz))).get_next(datetime)
    assert theirs.astimezone(UTC) == found


def test_they_are_still_wrong_where_they_are_not_asked() -> None:
    """When one of these fails, an oracle has been mended and may be asked more."""
    new_york = ZoneInfo("America/New_York")
    second_pass = datetime(2025, 11, 2, 6, 13, 49, tzinfo=UTC)
    first_pass = datetime(2025, 11, 2, 5, 30, tzinfo=UTC)

    assert next(cronsim.CronSim("30 1 * * *", second_pass.astimezone(new_york))).astimezone(UTC) < second_pass
    doubled = croniter.croniter("30 1 * * *", first_pass.astimezone(new_york)).get_next(datetime)
    assert doubled.astimezone(UTC) - first_pass == timedelta(hours=1)
