"""When is it time? Cron expressions on calendars whose clocks change."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulse.timing import zones
from pulse.timing.cron import DESCRIPTORS, LONGEST_EVERY, Cron, InvalidCron, NoFutureTime
from pulse.timing.cron_calendar import Calendar

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "cron.json").read_text())["examples"]
# Facts about robfig's parser that we refuse on purpose: it ignores the end of a range that begins with `*` or `?`.
REFUSED_ON_PURPOSE = {"?-3/20 * * * *"}

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# Spring and autumn, half an hour, midnight, one past midnight, two hours, a day left out, a day had twice, Ramadan.
CHANGES = [
    ("America/New_York", "2025-03-09"),
    ("America/New_York", "2025-11-02"),
    ("Europe/Berlin", "2025-03-30"),
    ("Europe/Berlin", "2025-10-26"),
    ("Australia/Lord_Howe", "2024-04-07"),
    ("Australia/Lord_Howe", "2024-10-06"),
    ("America/Havana", "2024-03-10"),
    ("America/Havana", "2024-11-03"),
    ("America/Sao_Paulo", "2018-02-18"),
    ("America/Sao_Paulo", "2018-11-04"),
    ("America/St_Johns", "2010-03-14"),
    ("America/St_Johns", "2010-11-07"),
    ("Antarctica/Troll", "2024-03-31"),
    ("Antarctica/Troll", "2024-10-27"),
    ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Kwajalein", "1993-08-21"),
    ("America/Juneau", "1867-10-18"),
    ("Asia/Manila", "1844-12-31"),
    ("Africa/Casablanca", "2025-02-23"),
    ("Africa/Casablanca", "2025-04-06"),
    ("Asia/Beirut", "2024-03-31"),
    ("Asia/Kathmandu", "1986-01-01"),
    ("Europe/Amsterdam", "1937-07-01"),
]

TRIPLES = int(os.environ.get("PULSE_TRIPLES", "200000"))  # a million in `make test-long`


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def between(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    """Every occurrence after `start`, up to and including `end`."""
    found = []
    while (start := cron.next_after(start)) <= end:
        found.append(start)
    return found


# What it says, worked out the long way: every minute of some days is looked at.


def matches(cron: Cron, local: datetime) -> bool:
    assert isinstance(cron.timetable, Calendar)
    minute, hour, day, month, weekday = cron.expression.split()
    on_day, on_weekday = local.day in values(day, 1, 31), local.isoweekday() % 7 in values(weekday, 0, 6)
    either = "*" in (day, weekday)
    return (
        local.minute in values(minute, 0, 59)
        and local.hour in values(hour, 0, 23)
        and local.month in values(month, 1, 12)
        and ((on_day and on_weekday) if either else (on_day or on_weekday))
    )


@cache
def values(field: str, least: int, most: int) -> set[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        first = least if low == "*" else int(low)
        last = int(high) if high else most if low == "*" or step else first
        found |= set(range(first, last + 1, int(step or 1)))
    return found


def long_way(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    tz = ZoneInfo(cron.tz)
    minute, hour, *_ = cron.expression.split()
    if "*" in minute + hour:
        base = start.replace(second=0)
        # Local minutes need not begin with those of UTC: before the world agreed, offsets had seconds.
        offsets = [(start + HOUR * n).astimezone(tz).utcoffset() or DAY for n in range((end - start) // HOUR)]
        shifts = {offset % MINUTE for offset in offsets}
        grid = (base + MINUTE * n - shift for n in range((end - start) // MINUTE + 3) for shift in shifts)
        local = ((at, at.astimezone(tz)) for at in sorted(grid) if start < at <= end)
        return [at for at, wall in local if wall.second == 0 and matches(cron, wall)]
    found = set()
    wall = (start - 2 * DAY).replace(tzinfo=None, second=0)
    while wall < (end + 2 * DAY).replace(tzinfo=None):
        if matches(cron, wall):
            found.add(first_pass(wall, tz))
        wall += MINUTE
    return sorted(at for at in found if start < at <= end)


def first_pass(wall: datetime, tz: ZoneInfo) -> datetime:
    """When a wall clock first shows this time, or jumps over it."""
    at = wall.replace(tzinfo=tz).astimezone(UTC)
    if at.astimezone(tz).replace(tzinfo=None) == wall:
        return at
    low, high = at - 2 * DAY, at + 2 * DAY  # within these, the wall clock passes `wall` once
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if middle == low:
            break
        if middle.astimezone(tz).replace(tzinfo=None) < wall:
            low = middle
        else:
            high = middle
    return high


# Examples


@pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["expr"]) for vector in VECTORS])
def test_every_example_is_met(vector: dict[str, str | None]) -> None:
    expected = "invalid" if vector["expr"] in REFUSED_ON_PURPOSE else vector["expect"]

    assert outcome(vector["expr"] or "", vector["tz"] or "UTC", vector["after"]) == expected


def outcome(expression: str, tz: str, after: str | None) -> str:
    try:
        cron = Cron.parse(expression, tz)
        return f"{cron.next_after(datetime.fromisoformat(after)):%Y-%m-%dT%H:%M:%SZ}" if after else "valid"
    except InvalidCron:
        return "invalid"
    except NoFutureTime:
        return "no future time"


@pytest.mark.parametrize(
    ("expression", "same"),
    [
        *DESCRIPTORS.items(),
        ("? ? ? ? ?", "* * * * *"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("5-59/20 * * * *", "5,25,45 * * * *"),
        ("0 0 * jan,DEC Sun-tue", "0 0 * 1,12 0-2"),
        ("0 0 * * fri/1", "0 0 * * 5,6"),
        ("00 09 01 01 *", "0 9 1 1 *"),
        ("  0\t9  * * 1 ", "0 9 * * 1"),
        ("*/90 * * * *", "0,0 * * * *"),
        ("5,* 0 * * *", "* 0 * * *"),
        ("0 0 ?/1 * 1", "0 0 * * 1"),
    ],
)
def test_these_mean_the_same(expression: str, same: str) -> None:
    after = instant("2025-01-15T12:00")

    assert Cron.parse(expression).preview(20, after) == Cron.parse(same).preview(20, after)


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("13 * 5", "2025-01-03 2025-01-10 2025-01-13 2025-01-17"),
        ("13 * *", "2025-01-13 2025-02-13 2025-03-13 2025-04-13"),
        ("* * 5", "2025-01-03 2025-01-10 2025-01-17 2025-01-24"),
        ("*/1 * 5", "2025-01-03 2025-01-10 2025-01-17 2025-01-24"),  # a step of one leaves the star a star
        ("*/15 * 5", "2025-01-03 2025-01-10 2025-01-16 2025-01-17"),  # a longer one makes it a choice
        ("1-31 * 5", "2025-01-02 2025-01-03 2025-01-04 2025-01-05"),
        ("13 * */3", "2025-01-04 2025-01-05 2025-01-08 2025-01-11"),
        ("?,13 * 5", "2025-01-03 2025-01-10 2025-01-17 2025-01-24"),
    ],
)
def test_either_day_field_will_do_unless_one_is_a_star(days: str, expected: str) -> None:
    found = Cron.parse(f"0 0 {days}").preview(4, instant("2025-01-01T12:00"))

    assert [f"{each.at:%Y-%m-%d}" for each in found] == expected.split()


@pytest.mark.parametrize("prefix", ["TZ=Asia/Tokyo ", "CRON_TZ=Asia/Tokyo ", "TZ=Asia/Tokyo \t "])
@pytest.mark.parametrize("rest", ["0 0 * * *", "@daily"])
def test_a_zone_in_front_wins(prefix: str, rest: str) -> None:
    cron = Cron.parse(prefix + rest, "America/New_York")

    assert cron.tz == "Asia/Tokyo"
    assert cron.next_after(instant("2025-01-01")) == instant("2025-01-01T15:00")


@pytest.mark.parametrize(
    ("text", "length"),
    [("1s", 1), ("90m", 5400), ("1h30m", 5400), ("1.5h", 5400), ("1000ms", 1), ("7d", 604800), ("3653d", 315619200)],
)
def test_every_counts_from_the_whole_second(text: str, length: int) -> None:
    cron = Cron.parse(f"@every {text}", "America/New_York")
    after = datetime(2025, 3, 9, 6, 59, 59, 999_999, tzinfo=UTC)

    assert cron.next_after(after) == instant("2025-03-09T06:59:59") + timedelta(seconds=length)


# Refusals

FIELDS = {
    "minute": ("0 to 59;", "{} * * * *"),
    "hour": ("0 to 23;", "0 {} * * *"),
    "day of month": ("1 to 31;", "0 0 {} * *"),
    "month": ("1 to 12 or JAN to DEC;", "0 0 1 {} *"),
    "day of week": ("0 to 6 or SUN to SAT, Sunday is 0;", "0 0 * * {}"),
}
ANYWHERE = [
    *[(item, "has an empty item in its list") for item in ("1,,2", ",", ",1", "1,")],
    *[(item, "is a range that begins with") for item in ("*-5", "?-5", "*-5/2", "1,*-3")],
    *[(item, "is a range that runs backwards; write two ranges with a comma") for item in ("5-2", "4-3/2")],
    *[(item, "is out of range") for item in ("60", "99999", "1-60", "60/2", "9" * 500)],
    *[(item, "must be a number from 1 to 9999") for item in ("*/0", "1/0", "1-3/x", "*/+2", "*/99999", "1/²")],
    *[
        (item, "cannot read")
        for item in (
            "+5", "-5", "1-", "-", "/", "/2", "*/", "1//2", "1/2/3", "1--3", "1-2-3", "**", "*5", "5*", "1.5", "x",
            "0x1", "٣", "¹", "1\n", "1;2", "~", "H", "%", "é", "janu", "monday",
        )
    ],
    *[(item, "is Quartz notation, and L, W and # are not supported") for item in ("L", "LW", "15W", "fril", "1#2")],
]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("item", "reason"), ANYWHERE)
def test_a_field_that_cannot_be_read_is_named_with_what_is_allowed(field: str, item: str, reason: str) -> None:
    allowed, frame = FIELDS[field]
    expression = frame.format(item)

    with pytest.raises(InvalidCron) as refused:
        Cron.parse(expression)

    assert str(refused.value).startswith("invalid cron expression '")
    assert f": {field}: " in str(refused.value)
    assert reason in str(refused.value)
    assert f"(allowed: {allowed}" in str(refused.value)
    assert len(str(refused.value)) < 1200


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("0 0 * * 7", "day of week"), ("0 24 * * *", "hour"), ("0 0 0 * *", "day of month"),
        ("0 0 32 * *", "day of month"), ("0 0 1 0 *", "month"), ("0 0 1 13 *", "month"), ("0 0 * * 1-7", "day of week"),
    ],
)  # fmt: skip
def test_each_field_has_its_own_range(expression: str, field: str) -> None:
    with pytest.raises(InvalidCron, match=f": {field}: '.+' is out of range"):
        Cron.parse(expression)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("* * * *", "expected exactly 5 fields (minute, hour, day of month, month, day of week), found 4"),
        ("0 * * * * *", "found 6; seconds and years are not supported"),
        ("0 0 * * * * 2025", "found 7; seconds and years are not supported"),
        (" ", "expected exactly 5 fields (minute, hour, day of month, month, day of week), found 0"),
        ("@reboot", "unknown descriptor '@reboot' (allowed: @yearly, @annually, @monthly, @weekly, @daily, @midnight,"),
        ("@Daily", "unknown descriptor '@Daily'"),
        ("@daily ", "unknown descriptor '@daily '"),
        (" @daily", "found 1"),
        ("@", "unknown descriptor '@'"),
        ("TZ=UTC", "nothing follows the time zone"),
        ("TZ=UTC  ", "nothing follows the time zone"),
        ("TZ=", "nothing follows the time zone"),
        ("TZ= * * * * *", "unknown time zone ''"),
        ("TZ=Europe/Berln @daily", "unknown time zone 'Europe/Berln': did you mean 'Europe/Berlin'?"),
        ("tz=UTC @daily", "found 2"),
        ("*" * 1001, "it must have at most 1000 characters, not 1001"),
        *[
            (f"@every{rest}", "must be '@every <duration>': one space, then something like 30s, 5m or 1h30m")
            for rest in ("", " ", "5m", "  5m", " 5m ", "\t5m", " 5", " 0", " ")
        ],
        *[(f"@every {text}", "is not a duration") for text in ("-5m", "+5m", "5 m", "x", "5x", ".5h", "9" * 400 + "d")],
        *[
            (f"@every {text}", "must have a whole number of seconds from 1s to 3653d")
            for text in ("0s", "999ms", "1us", "1.5s", "1s1us", "3653d1s", "100000h")
        ],
    ],
)
def test_what_is_no_expression_is_refused_with_advice(expression: str, reason: str) -> None:
    with pytest.raises(InvalidCron) as refused:
        Cron.parse(expression)

    assert str(refused.value).startswith("invalid cron expression '")
    assert reason in str(refused.value)


def test_nothing_is_called_empty() -> None:
    with pytest.raises(InvalidCron) as refused:
        Cron.parse("")

    assert str(refused.value) == "empty cron expression"


@pytest.mark.parametrize(
    ("tz", "advice"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("New York", "did you mean 'America/New_York'?"),
        ("Tokio", "did you mean 'Asia/Tokyo'?"),
        ("utc", "did you mean 'UTC'?"),
        ("CEST", "abbreviations and offsets are not zones; write Region/City, such as 'Europe/Berlin'"),
        ("WEST", "abbreviations and offsets are not zones"),
        ("GMT+2", "abbreviations and offsets are not zones"),
        ("+02:00", "abbreviations and offsets are not zones"),
        ("cest", "write an IANA name such as 'Europe/Berlin' or 'UTC'"),
        ("", "write an IANA name such as 'Europe/Berlin' or 'UTC'"),
        ("../etc/passwd", "write an IANA name such as"),
        ("/etc/localtime", "unknown time zone"),
        ("localtime", "unknown time zone"),
        ("Local", "unknown time zone"),
        ("Factory", "unknown time zone"),
        ("Europe/Berlin\0", "unknown time zone"),
        ("x" * 10_000, "unknown time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(tz: str, advice: str) -> None:
    with pytest.raises(InvalidCron) as refused:
        Cron.parse("@daily", tz)

    assert "unknown time zone" in str(refused.value)
    assert advice in str(refused.value)
    assert len(str(refused.value)) < 300


def test_what_is_near_to_an_unknown_zone_is_looked_for_once() -> None:
    """A thousand schedules may have a zone that an update of the system has removed."""
    zones._nearest.cache_clear()
    for _ in range(3):
        with pytest.raises(InvalidCron, match="did you mean 'Europe/Berlin'"):
            Cron.parse("@daily", "Europe/Berlln")

    assert zones._nearest.cache_info().misses == 1


@pytest.mark.parametrize("expression", ["* * 31 2 *", "0 0 30 feb *", "0 0 31 4,6,9,11 *"])
@pytest.mark.parametrize("tz", ["UTC", "America/New_York"])
def test_a_date_that_never_comes_yields_no_future_time(expression: str, tz: str) -> None:
    cron = Cron.parse(expression, tz)

    with pytest.raises(NoFutureTime) as refused:
        cron.next_after(instant("2025-01-01"))

    assert str(refused.value) == f"cron {expression!r} yields no future time after 2025-01-01T00:00:00+00:00"
    assert cron.preview(3, instant("2025-01-01")) == []


def test_the_search_ends_with_the_fifth_year() -> None:
    leap_day = Cron.parse("0 0 29 2 *")

    assert leap_day.next_after(instant("2024-02-29")) == instant("2028-02-29")
    with pytest.raises(NoFutureTime):  # 2100 has none
        leap_day.next_after(instant("2096-02-29"))


def test_a_time_without_an_offset_is_no_instant() -> None:
    with pytest.raises(ValueError, match="instant must have a UTC offset, not 2025-01-01T00:00:00"):
        Cron.parse("@daily").next_after(datetime(2025, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("tz", ["UTC", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("expression", ["* * * * *", "0 0 1 1 *", "@every 1h"])
def test_the_ends_of_time_are_no_accident(tz: str, expression: str) -> None:
    cron = Cron.parse(expression, tz)

    assert cron.next_after(datetime.min.replace(tzinfo=UTC)) > datetime.min.replace(tzinfo=UTC)
    assert len(cron.preview(3, datetime.min.replace(tzinfo=UTC))) == 3
    assert cron.preview(1, instant("9997-06-01T12:00")) or expression == "0 0 1 1 *"
    for last in (datetime.max.replace(tzinfo=UTC), instant("9998-01-01"), instant("9997-12-31T23:59:59")):
        with pytest.raises(NoFutureTime):
            cron.next_after(last)


def test_errors_are_value_errors_for_those_who_know_nothing_of_us() -> None:
    assert issubclass(InvalidCron, ValueError)
    assert issubclass(NoFutureTime, ValueError)


# Clock changes


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        ("30 2 * * *", "America/New_York", "2025-03-08T12:00", "03-09T07:00 03-10T06:30"),  # moved to 03:00
        ("0,30 2 * * *", "America/New_York", "2025-03-08T12:00", "03-09T07:00 03-10T06:00"),  # two become one
        ("0,30 2,3 * * *", "America/New_York", "2025-03-08T12:00", "03-09T07:00 03-09T07:30 03-10T06:00"),
        ("*/30 2 * * *", "America/New_York", "2025-03-08T12:00", "03-10T06:00 03-10T06:30"),  # wild: not that day
        ("0/30 2 * * *", "America/New_York", "2025-03-08T12:00", "03-09T07:00 03-10T06:00"),  # not wild
        ("30 1 * * *", "America/New_York", "2025-11-01T12:00", "11-02T05:30 11-03T06:30"),
        ("30 1 * * *", "America/New_York", "2025-11-02T06:13:49", "11-03T06:30 11-04T06:30"),  # during the second pass
        ("30 1 * * *", "America/New_York", "2025-11-02T06:00", "11-03T06:30"),  # at the change itself
        ("30 2 * * *", "America/New_York", "2025-03-09T06:59:59", "03-09T07:00 03-10T06:30"),  # a second before it
        ("30 2 * * *", "America/New_York", "2025-03-09T07:00", "03-10T06:30"),
        ("30 * * * *", "America/New_York", "2025-11-02T04:59", "11-02T05:30 11-02T06:30 11-02T07:30"),
        ("15 2 * * *", "Australia/Lord_Howe", "2024-10-05T00:00", "10-05T15:30 10-06T15:15"),  # 02:00 to 02:30
        ("45 1 * * *", "Australia/Lord_Howe", "2024-04-06T00:00", "04-06T14:45 04-07T15:15"),  # 02:00 to 01:30
        ("0 */2 * * *", "Australia/Lord_Howe", "2024-04-06T14:00", "04-06T15:30 04-06T17:30"),
        ("@daily", "America/Havana", "2024-03-09T12:00", "03-10T05:00 03-11T04:00"),  # 00:00 to 01:00
        ("30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00", "02-18T01:30 02-19T02:30"),  # back over midnight
        (  # 00:01 to 23:01 the day before
            "30 0 * * *",
            "America/St_Johns",
            "2010-11-06T12:00",
            "11-07T04:00 11-08T04:00",
        ),
        ("0 12 30 * *", "Pacific/Apia", "2011-12-01T00:00", "12-30T10:00 01-29T22:00"),  # the 30th never was
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T00:00", "12-29T22:00 12-30T10:00 12-30T22:00"),
        ("0 0 * * *", "Pacific/Apia", "2011-12-28T12:00", "12-29T10:00 12-30T10:00 12-31T10:00"),
    ],
)
def test_a_fixed_time_comes_once_and_others_follow_elapsed_time(
    expression: str, tz: str, after: str, expected: str
) -> None:
    wanted = expected.split()

    found = Cron.parse(expression, tz).preview(len(wanted), instant(after))

    assert [f"{each.at:%m-%dT%H:%M}" for each in found] == wanted


def test_what_was_reached_last_year_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No place has set its clocks back at New Year so far; one may."""
    turn = zones.Turn(zones.year_start(2000) - 60, 3600, 0)
    monkeypatch.setattr("pulse.timing.cron.turns", lambda _, year: (turn,) if year == 1999 else ())

    assert Cron.parse("30 0 * * *").next_after(instant("2000-01-01T00:10")) == instant("2000-01-02T00:30")


FIELD_TEXTS = {
    "minute": st.sampled_from(["0", "30", "15,45", "*", "*/15", "0/7", "59", "1-4", "*/7", "20-40/10"]),
    "hour": st.sampled_from(["0", "1", "2", "3", "23", "*", "*/2", "0-5", "1,2,3", "22/1", "*/5", "12"]),
    "day": st.sampled_from(["*", "*", "1", "30", "*/2", "1-7", "29-31"]),
    "month": st.sampled_from(["*", "*", "*", "3-11", "10", "*/2"]),
    "weekday": st.sampled_from(["*", "*", "0", "1-5", "*/2", "6"]),
}
EXPRESSIONS = st.builds(lambda **fields: " ".join(fields.values()), **FIELD_TEXTS)


@pytest.mark.parametrize(("tz", "day"), CHANGES)
def test_each_change_is_the_long_way_round(tz: str, day: str) -> None:
    start = instant(day) - 2 * DAY
    chance = random.Random(f"{tz}{day}")
    texts = [
        "30 2 * * *", "0 0 * * *", "30 1 * * *", "15 0 * * *", "30 23 * * *", "0-59/15 * * * *", "*/20 * * * *",
        "0/20 0-23 * * *", "*/30 2 * * *", "0 */3 * * *", f"{chance.randrange(60)} {chance.randrange(24)} * * *",
    ]  # fmt: skip

    for text in texts:
        cron = Cron.parse(text, tz)
        assert between(cron, start, start + 4 * DAY) == long_way(cron, start, start + 4 * DAY), text


@settings(max_examples=40, deadline=None)
@given(EXPRESSIONS, st.sampled_from(CHANGES), st.integers(-3 * 86400, 86400))
def test_any_expression_near_any_change_is_the_long_way_round(text: str, change: tuple[str, str], shift: int) -> None:
    tz, day = change
    cron = Cron.parse(text, tz)
    start = instant(day) + timedelta(seconds=shift)

    assert between_or_none(cron, start, start + 2 * DAY) == long_way(cron, start, start + 2 * DAY)


def between_or_none(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    try:
        return between(cron, start, end)
    except NoFutureTime:
        return []


def kinds_of_zones() -> list[str]:
    """One of each set of zones whose clocks were the same from 2024 to 2027."""
    kinds: dict[object, str] = {}
    for tz in sorted(zones.zone_names()):
        clocks = tuple(zones.turns(tz, year) for year in range(2023, 2029))
        kinds.setdefault((zones.offset_at(tz, zones.year_start(2024)), clocks), tz)
    return list(kinds.values())


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["0 0 * * *", "30 2 * * *", "59 1 * * *"])
def test_daily_means_once_on_each_local_day_in_every_zone(expression: str) -> None:
    days = [date(2024, 1, 1) + DAY * n for n in range(4 * 365 + 1)]

    for tz in kinds_of_zones():
        found = between(Cron.parse(expression, tz), instant("2023-12-30"), instant("2028-01-02"))
        local = Counter(at.astimezone(ZoneInfo(tz)).date() for at in found)
        assert {day: local[day] for day in days} == dict.fromkeys(days, 1), tz


def test_hourly_means_by_elapsed_time_in_every_zone() -> None:
    for tz in kinds_of_zones():
        cron = Cron.parse("@hourly", tz)
        for turn in (turn for year in range(2024, 2028) for turn in zones.turns(tz, year)):
            start = zones.to_datetime(turn.at) - 4 * HOUR
            found = between(cron, start, start + 8 * HOUR)
            steps = {later - earlier for earlier, later in pairwise(found)}
            # Where clocks move by half an hour, the full hour itself moves.
            half = {HOUR / 2, HOUR * 3 / 2} if (turn.after - turn.before) % 3600 else set()
            assert HOUR in steps, tz
            assert steps <= {HOUR} | half, tz


# What holds for all

RANDOM_INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
RANDOM_ZONES = st.sampled_from(sorted({tz for tz, _ in CHANGES} | {"UTC", "Asia/Gaza", "Europe/Dublin"}))


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, RANDOM_ZONES, RANDOM_INSTANTS, st.floats(0, 1))
def test_next_is_later_and_does_not_depend_on_the_way_there(text: str, tz: str, after: datetime, part: float) -> None:
    cron = Cron.parse(text, tz)
    try:
        found = cron.next_after(after)
    except NoFutureTime:
        return

    between_them = after + (found - after) * part
    assert found > after
    assert found.tzinfo is UTC
    assert found.microsecond == 0
    if between_them < found:
        assert cron.next_after(between_them) == found
    assert cron.next_after(found - timedelta(microseconds=1)) == found
    assert cron.next_after(after.astimezone(ZoneInfo("Asia/Tokyo"))) == found
    assert cron.next_after(found) > found


@pytest.mark.slow
def test_next_is_later_for_very_many_triples() -> None:
    chance = random.Random(5)
    texts = [f"{chance.randrange(60)} {h} {d} {m} {w}" for h in ("*", "2", "*/5") for d in ("*", "1", "31", "*/9")
             for m in ("*", "2-9") for w in ("*", "0", "1-5")]  # fmt: skip
    names = chance.sample(sorted(zones.zone_names()), 40)
    crons = [Cron.parse(text, tz) for text in texts for tz in chance.sample(names, 5)]
    first, span = instant("2015-01-01"), 20 * 365 * 86400

    for n in range(TRIPLES):
        cron = crons[n % len(crons)]
        after = first + timedelta(seconds=chance.randrange(span))
        assert cron.next_after(after) > after


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=30), st.text("0123456789*?/-, LW#@jansuTZ=", max_size=24)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cron = Cron.parse(text)
    except InvalidCron:
        return
    assert cron.explain()


@pytest.mark.parametrize("tz", ["UTC", "America/New_York", "Africa/Casablanca"])
@pytest.mark.parametrize("expression", ["* * 31 2 *", "0 0 31 2,4,6,9,11 *", "59 23 29 2 *", "0/7 3-4 30 2 ?"])
def test_the_work_of_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch, tz: str, expression: str) -> None:
    cron = Cron.parse(expression, tz)
    months = 0
    days_in = Calendar.days_in

    def counted(calendar: Calendar, year: int, month: int) -> int:
        nonlocal months
        months += 1
        return days_in(calendar, year, month)

    monkeypatch.setattr(Calendar, "days_in", counted)
    between_or_none(cron, instant("2024-03-01"), instant("2024-03-02"))

    stretches = 1 + sum(len(zones.turns(tz, year)) for year in range(2024, 2030))
    assert months <= 72 + 4 * stretches
    monkeypatch.undo()
    assert median_seconds(cron) < 0.005


def median_seconds(cron: Cron) -> float:
    taken = []
    for _ in range(21):
        start = time.perf_counter()
        between_or_none(cron, instant("2024-03-01"), instant("2024-03-02"))
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def test_zones_are_read_from_their_files_once(monkeypatch: pytest.MonkeyPatch) -> None:
    crons = [Cron.parse("0 9 * * *", tz) for tz in sorted(zones.zone_names())[:20]]
    after = instant("2025-01-01")
    answers = [cron.next_after(after) for cron in crons]

    monkeypatch.setattr(zones, "ZoneInfo", lambda name: pytest.fail(f"{name} was read again"))

    assert [cron.next_after(after) for cron in crons] == answers


def test_no_change_of_clocks_is_overlooked() -> None:
    """Against a walk of eight hours a step, in the years in which something unusual happened somewhere."""
    for tz, years in {
        "Africa/Casablanca": (2012, 2025), "Asia/Gaza": (2023, 2040), "Pacific/Apia": (2011,),
        "America/Recife": (2000,), "Africa/Freetown": (1939,), "Europe/Lisbon": (1943, 1992),
        "Antarctica/Casey": (2023,), "Europe/Dublin": (1916,),
    }.items():  # fmt: skip
        for year in years:
            walk = range(zones.year_start(year) - 1, zones.year_start(year + 1), 8 * 3600)
            changes = sum(zones.offset_at(tz, a) != zones.offset_at(tz, b) for a, b in pairwise(walk))
            assert len(zones.turns(tz, year)) == changes > 0, (tz, year)
            for turn in zones.turns(tz, year):
                assert zones.offset_at(tz, turn.at - 1) == turn.before
                assert zones.offset_at(tz, turn.at) == turn.after


# A value to share


def test_it_is_a_value() -> None:
    cron = Cron.parse("0 9 * * 1-5", "Europe/Berlin")

    assert Cron.parse("0 9 * * 1-5", "Europe/Berlin") is cron, "parsed once"
    assert copy.deepcopy(cron) == pickle.loads(pickle.dumps(cron)) == cron
    assert {cron: 1}[Cron.parse("0 9 * * 1-5", "Europe/Berlin")] == 1
    assert cron != Cron.parse("0 9 * * 1-5", "Europe/Paris")
    with pytest.raises(AttributeError):
        cron.tz = "UTC"  # type: ignore[misc]


def test_threads_may_share_it() -> None:
    cron = Cron.parse("*/20 * * * *", "America/Chicago")
    zones.turns.cache_clear()

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: between(cron, instant("2025-11-01"), instant("2025-11-04")), range(16)))

    assert found == [found[0]] * 16
    assert len(found[0]) == 3 * 24 * 3


# In words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes"),
        ("5/15 * * * *", "every 15 minutes from minute 5 of the hour"),
        ("*/7 * * * *", "every hour at minutes 0, 7, 14 … 56"),
        ("*/90 * * * *", "every hour on the hour"),
        ("@hourly", "every hour on the hour"),
        ("30 * * * *", "every hour at minute 30"),
        ("1-3,50 * * * *", "every hour at minutes 1 to 3 and 50"),
        ("* 9-17 * * *", "every minute from 09:00 to 17:59"),
        ("* 9 * * *", "every minute from 09:00 to 09:59"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on Monday to Friday"),
        ("0 */2 * * *", "every 2 hours from 00:00"),
        ("0 */5 * * *", "at 00:00, 05:00, 10:00, 15:00 and 20:00 every day"),
        ("30 9-17 * * *", "every hour from 09:30 to 17:30"),
        ("7 1,2,4,5,7,8,10 * * *", "at minute 7 of the hours 1, 2, 4, 5, 7, 8 and 10 every day"),
        ("0,20 1,3,5,7 * * *", "at minutes 0 and 20 of the hours 1, 3, 5 and 7 every day"),
        ("0-29 8 * * *", "at minutes 0 to 29 of the hour 8 every day"),
        ("0,30 9 * * *", "at 09:00 and 09:30 every day"),
        ("@daily", "at 00:00 every day"),
        ("@weekly", "at 00:00 on Sunday"),
        ("@monthly", "at 00:00 on day 1 of the month"),
        ("@yearly", "at 00:00 on day 1 of the month in January"),
        ("0 9 * * 1-5", "at 09:00 on Monday to Friday"),
        ("0 9,17 1,15 * *", "at 09:00 and 17:00 on days 1 and 15 of the month"),
        ("0 0 13 * 5", "at 00:00 on day 13 of the month and also on Friday"),
        ("0 0 */2 * 1", "at 00:00 on days 1, 3, 5 … 31 of the month and also on Monday"),
        ("0 0 1-31 * 1", "at 00:00 every day"),
        ("0 0 * 1-3,7 *", "at 00:00 every day in January to March and July"),
    ],
)
def test_it_is_said_in_plain_english(expression: str, words: str) -> None:
    assert Cron.parse(expression).explain() == f"{words}, UTC"
    assert Cron.parse(expression, "Asia/Tokyo").explain() == f"{words}, Asia/Tokyo"


def test_every_has_no_zone_to_speak_of() -> None:
    assert Cron.parse("@every 90m", "Asia/Tokyo").explain() == "every 1h30m"


@pytest.mark.parametrize(
    ("expression", "tz", "after", "notes"),
    [
        (
            "30 2 * * *", "America/New_York", "2025-03-08T12:00",
            ["moved: 02:30 does not exist, clocks go forward on 2025-03-09 from 02:00 to 03:00", None],
        ),
        (
            "0,30 2 * * *", "America/New_York", "2025-03-08T12:00",
            ["moved: 02:00 and 02:30 do not exist, clocks go forward on 2025-03-09 from 02:00 to 03:00", None],
        ),
        (
            "*/30 2 * * *", "America/New_York", "2025-03-08T12:00",
            ["skipped: 02:00 and 02:30 do not exist, clocks go forward on 2025-03-09 from 02:00 to 03:00", None],
        ),
        (
            "*/5 * * * *", "Australia/Lord_Howe", "2024-10-05T15:20",
            [
                None,
                (
                    "skipped: 02:00, 02:05, 02:10, 02:15, 02:20 and 02:25 do not exist, "
                    "clocks go forward on 2024-10-06 from 02:00 to 02:30"
                ),
                None,
            ],
        ),
        (
            "*/5 2 * * *", "Europe/Berlin", "2025-03-30T00:00",
            [
                (
                    "skipped: 02:00, 02:05, 02:10, 02:15, 02:20 and others do not exist, "
                    "clocks go forward on 2025-03-30 from 02:00 to 03:00"
                ),
            ],
        ),
        (
            "30 1 * * *", "America/New_York", "2025-11-01T12:00",
            ["not repeated: 01:30 comes twice, clocks go back on 2025-11-02 from 02:00 to 01:00", None],
        ),
        (
            "0 * * * *", "America/New_York", "2025-11-02T04:00",
            [
                "first of two: 01:00 comes twice, clocks go back on 2025-11-02 from 02:00 to 01:00",
                "second of two: 01:00 comes twice, clocks go back on 2025-11-02 from 02:00 to 01:00",
                None,
            ],
        ),
        (
            "0 12 * * *", "Pacific/Apia", "2011-12-29T00:00",
            [
                None,
                (
                    "moved: 2011-12-30 12:00 does not exist, clocks go forward on 2011-12-31 "
                    "from 2011-12-30 00:00 to 00:00"
                ),
                None,
            ],
        ),
        (
            "30 23 * * *", "America/Sao_Paulo", "2018-02-17T12:00",
            ["not repeated: 2018-02-17 23:30 comes twice, clocks go back on 2018-02-18 from 00:00 to 2018-02-17 23:00"],
        ),
        ("0 12 * * *", "America/New_York", "2025-03-08T20:00", [None, None]),
        ("@every 1h", "America/New_York", "2025-03-09T05:00", [None, None, None]),
        ("*/30 2 * * *", "UTC", "2025-03-08T12:00", [None, None, None]),
    ],
)  # fmt: skip
def test_a_preview_says_what_a_clock_change_did(expression: str, tz: str, after: str, notes: list[str | None]) -> None:
    found = Cron.parse(expression, tz).preview(len(notes), instant(after))

    assert [each.note for each in found] == notes


def test_a_preview_has_local_times_and_offsets() -> None:
    found = Cron.parse("30 1 * * *", "America/New_York").preview(2, instant("2025-11-01T12:00"))

    assert [each.local.isoformat() for each in found] == ["2025-11-02T01:30:00-04:00", "2025-11-03T01:30:00-05:00"]
    assert [each.offset for each in found] == [-4 * HOUR, -5 * HOUR]
    assert [each.at for each in found] == [instant("2025-11-02T05:30"), instant("2025-11-03T06:30")]
    assert LONGEST_EVERY == 3653 * DAY
