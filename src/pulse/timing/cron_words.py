"""What does a cron expression mean in words, and how does a clock change affect an occurrence of it?

The sentences describe the sets of values and not the text: `*/90` in the minutes means "every hour on the hour", and
that is what the sentence says.
"""

from __future__ import annotations

import calendar as names
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulse.timing.cron_fields import DAY, HOUR, MINUTE, MONTH, WEEKDAY, Kind
from pulse.timing.zones import Turn, to_datetime

if TYPE_CHECKING:
    from pulse.timing.cron_calendar import Calendar

_MAX_LISTED = 6  # times in a list; more would be hard to read
_WEEKDAY_NAMES = ("Sunday", *names.day_name[:6])


def describe(timetable: Calendar) -> str:
    minutes, hours = _values(timetable.minute.values), _values(timetable.hour.values)
    parts = [_times(minutes, hours), _days(timetable), _months(timetable)]
    if parts[0].startswith("at ") and not parts[1]:
        parts[1] = "every day"
    return " ".join(part for part in parts if part)


def _times(minutes: list[int], hours: list[int]) -> str:
    rhythm = _rhythm(minutes, MINUTE, "minute")
    if len(hours) == 24:
        return _of_every_hour(minutes, rhythm)
    if len(minutes) == 1:
        return _once_an_hour(minutes[0], hours)
    if rhythm and _is_run(hours) and len(minutes) * len(hours) > 3:
        return f"{rhythm} from {_clock(hours[0], minutes[0])} to {_clock(hours[-1], minutes[-1])}"
    if len(minutes) * len(hours) <= _MAX_LISTED:
        return "at " + _join([_clock(hour, minute) for hour in hours for minute in minutes])
    return f"{rhythm or 'at minutes ' + _group(minutes)} of the hour{'s' * (len(hours) > 1)} {_group(hours)}"


def _of_every_hour(minutes: list[int], rhythm: str | None) -> str:
    if rhythm:
        return rhythm + (f" from minute {minutes[0]} of the hour" if minutes[0] else "")
    if minutes == [0]:
        return "every hour on the hour"
    return f"every hour at minute{'s' * (len(minutes) > 1)} {_group(minutes)}"


def _once_an_hour(minute: int, hours: list[int]) -> str:
    rhythm = _rhythm(hours, HOUR, "hour")
    if rhythm and len(hours) >= 4:
        return f"{rhythm} from {_clock(hours[0], minute)}"
    if len(hours) >= 3 and _is_run(hours):
        return f"every hour from {_clock(hours[0], minute)} to {_clock(hours[-1], minute)}"
    if len(hours) <= _MAX_LISTED:
        return "at " + _join([_clock(hour, minute) for hour in hours])
    return f"at minute {minute} of the hours {_group(hours)}"


def _days(timetable: Calendar) -> str:
    day, weekday = timetable.day, timetable.weekday
    days, weekdays = _values(day.values), _values(weekday.values)
    on_days = f"on day{'s' * (len(days) > 1)} {_group(days)} of the month"
    on_weekdays = "on " + _group(weekdays, lambda value: _WEEKDAY_NAMES[value])
    any_day, any_weekday = len(days) == DAY.maximum, len(weekdays) == len(WEEKDAY.names)
    if day.star or weekday.star:
        return " and ".join(text for text, is_any in ((on_days, any_day), (on_weekdays, any_weekday)) if not is_any)
    return "" if any_day or any_weekday else f"{on_days} and also {on_weekdays}"


def _months(timetable: Calendar) -> str:
    months = _values(timetable.month.values)
    return "" if len(months) == MONTH.maximum else "in " + _group(months, lambda value: names.month_name[value])


def note(timetable: Calendar, turn: Turn, since: int, instant: int) -> str | None:
    """Return how a clock change affects the occurrence at an instant, which is the first one after `since`."""
    ended, began = turn.at + turn.before, turn.at + turn.after
    day = max(ended, began)
    way = "forward" if began > ended else "back"
    clocks = f"clocks go {way} on {_date(day)} from {_local(ended, day)} to {_local(began, day)}"
    if began > ended:
        if not since < turn.at <= instant or not (missing := _missing(timetable, ended, began)):
            return None
        verb = "does" if len(missing) == 1 else "do"
        return f"{'skipped' if timetable.is_wild else 'moved'}: {_join(missing)} {verb} not exist, {clocks}"
    repeated = ended - began
    if not turn.at - repeated <= instant < turn.at + repeated:
        return None
    is_first = instant < turn.at
    which = ("first of two" if is_first else "second of two") if timetable.is_wild else "not repeated"
    return f"{which}: {_local(instant + (turn.before if is_first else turn.after), day)} comes twice, {clocks}"


def _missing(timetable: Calendar, start: int, end: int) -> list[str]:
    missing: list[str] = []
    while (match := timetable.first_between(start, end)) is not None:
        if len(missing) == _MAX_LISTED:
            return [*missing[:-1], "others"]
        missing.append(_local(match, end))
        start = match + 1
    return missing


def _local(seconds: int, day: int) -> str:
    """Return a time, with its date if that is not the day whose date the sentence mentions anyway."""
    time = f"{to_datetime(seconds):%H:%M}"
    return time if _date(seconds) == _date(day) else f"{_date(seconds)} {time}"


def _date(seconds: int) -> str:
    return to_datetime(seconds).date().isoformat()


def _values(bits: int) -> list[int]:
    return [value for value in range(bits.bit_length()) if bits >> value & 1]


def _rhythm(values: list[int], kind: Kind, unit: str) -> str | None:
    """Return `every 15 minutes` if the values are evenly spaced, also from the last one to the first."""
    size = kind.maximum - kind.minimum + 1
    step = size // len(values)
    if len(values) < 2 or values != list(range(values[0], size, step)) or size % step:
        return None
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _is_run(values: list[int]) -> bool:
    return values == list(range(values[0], values[-1] + 1))


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


def _group(values: list[int], show: Callable[[int], str] = str) -> str:
    """Return `1 to 5 and 10`: three or more in a row become a range, and a long sequence of steps is cut short."""
    if (
        len(values) > 4
        and (step := values[1] - values[0]) > 1
        and values == list(range(values[0], 60, step))[: len(values)]
    ):
        return f"{', '.join(show(value) for value in values[:3])} … {show(values[-1])}"
    texts: list[str] = []
    run: list[int] = []
    for value in [*values, None]:
        if run and value != run[-1] + 1:
            texts += [f"{show(run[0])} to {show(run[-1])}"] if len(run) > 2 else [show(each) for each in run]
            run = []
        if value is not None:
            run.append(value)
    return _join(texts)


def _join(texts: Sequence[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
