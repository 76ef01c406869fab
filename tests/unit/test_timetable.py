"""Do timetables name the right instants, one by one and counted?"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import available_timezones

import pytest

from pulse.timing.cron import Cron, InvalidCron
from pulse.timing.once import FieldNames, InvalidOnce, parse_instant, resolve_once
from pulse.timing.timetable import Timetable

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
TRIES = int(os.environ.get("PULSE_TRIPLES", "200000")) // 10_000  # five times as many in `make test-long`
ALARM = FieldNames("alarm", "delay_seconds", "fire_at")
ZONES = sorted(available_timezones() - {"localtime", "Factory"})
EXPRESSIONS = [
    "*/7 * * * *",
    "30 2 * * *",
    "0,30 1-3 * * *",
    "0 2,3 * * *",
    "15 */5 * * 1-5",
    "30 1 1,15 * mon",
    "* 2 * * *",
    "*/20 23,0 * * *",
    "0 0 29 2 *",
    "@every 17m",
]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@cache
def walked(timetable: Timetable, after: datetime, until: datetime) -> list[datetime]:
    found = []
    for occurrence in timetable.after(after):
        if occurrence > until:
            break
        found.append(occurrence)
    return found


# --- counting, against going through them


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_occurrences_are_counted_without_going_through_them(expression: str) -> None:
    """Through clock changes of every kind, in all zones, at random."""
    chance = random.Random(expression)
    for _ in range(TRIES):
        cron = Cron.parse(expression, chance.choice(ZONES))
        after = instant("2000-01-01") + chance.randrange(30 * 365 * 86_400) * SECOND
        until = after + chance.randrange(40 * 86_400) * SECOND
        timetable = Timetable(cron=expression, tz=cron.tz)

        assert cron.count_between(after, until) == len(walked(timetable, after, until)), (cron.tz, after, until)


@pytest.mark.parametrize(
    ("expression", "tz", "after", "until", "count"),
    [
        ("30 2 * * *", "Europe/Berlin", "2025-03-29T12:00", "2025-03-30T12:00", 1),  # 02:30 is left out: at 03:00
        ("0 2,3 * * *", "Europe/Berlin", "2025-03-29T12:00", "2025-03-30T12:00", 1),  # both at the same moment
        ("30 2 * * *", "Europe/Berlin", "2025-10-25T12:00", "2025-10-26T12:00", 1),  # 02:30 comes twice
        ("*/30 * * * *", "Europe/Berlin", "2025-10-26T00:00", "2025-10-26T02:00", 4),  # elapsed time
        ("* * * * *", "UTC", "2025-01-01T00:00", "2026-01-01T00:00", 525_600),
        ("* * * * *", "UTC", "2025-01-01T00:00", "2025-01-01T00:00", 0),
        ("0 9 * * *", "UTC", "2025-01-02T00:00", "2025-01-01T00:00", 0),
    ],
)
def test_a_count_at_a_clock_change(expression: str, tz: str, after: str, until: str, count: int) -> None:
    assert Cron.parse(expression, tz).count_between(instant(after), instant(until)) == count


@pytest.mark.parametrize(
    "timetable",
    [
        Timetable(cron="*/7 * * * *", tz="America/New_York"),
        Timetable(cron="30 2 * * *", tz="Australia/Lord_Howe"),
        Timetable(every=7 * MINUTE, anchor=instant("2025-01-01T00:00:13")),
    ],
)
@pytest.mark.parametrize("newest", [1, 3, 100])
@pytest.mark.parametrize("days", [0.001, 2, 400])
def test_what_was_missed_is_counted_and_its_newest_are_named(timetable: Timetable, newest: int, days: float) -> None:
    first = timetable.next_after(instant("2025-02-03T04:05"))
    assert first is not None
    until = first + days * DAY
    everything = [first, *walked(timetable, first, until)]

    missed = timetable.upto(first, until, newest=newest)

    assert (missed.total, missed.newest) == (len(everything), everything[-newest:])


def test_a_year_of_minutes_is_counted_at_once() -> None:
    """By asking a bounded number of questions: a second per question would be noticed."""
    asked = 0

    class Counting(Timetable, frozen=True):
        def next_after(self, instant: datetime) -> datetime | None:
            nonlocal asked
            asked += 1
            return super().next_after(instant)

    timetable = Counting(cron="* * * * *", tz="America/New_York")

    missed = timetable.upto(instant("2020-01-01"), instant("2026-01-01"), newest=2)

    assert missed.total == 3_156_481
    assert missed.newest == [instant("2025-12-31T23:59"), instant("2026-01-01")]
    assert asked < 100


# --- intervals and spans


def test_an_interval_is_counted_from_its_anchor_and_never_drifts() -> None:
    timetable = Timetable(every=10 * MINUTE, anchor=instant("2026-01-01T00:03"))

    assert timetable.next_after(instant("2026-01-01T00:00")) == instant("2026-01-01T00:03")
    assert timetable.next_after(instant("2026-01-01T00:03")) == instant("2026-01-01T00:13")
    assert timetable.next_after(instant("2026-01-01T05:07:59")) == instant("2026-01-01T05:13")


@pytest.mark.parametrize(
    "timetable", [Timetable(cron="* * * * *"), Timetable(every=MINUTE, anchor=instant("2026-01-01"))]
)
def test_occurrences_lie_at_or_after_the_start_and_before_the_end(timetable: Timetable) -> None:
    spanned = type(timetable)(
        cron=timetable.cron,
        every=timetable.every,
        anchor=timetable.anchor,
        starts_at=instant("2026-01-01T00:10"),
        ends_at=instant("2026-01-01T00:12"),
    )

    assert walked(spanned, instant("2025-01-01"), instant("2027-01-01")) == [
        instant("2026-01-01T00:10"),
        instant("2026-01-01T00:11"),
    ]
    assert spanned.next_after(instant("2026-01-01T00:11")) is None
    assert [each.at for each in spanned.preview(5, instant("2025-01-01"))] == walked(
        spanned, instant("2025-01-01"), instant("2027-01-01")
    )
    assert spanned.upto(instant("2026-01-01T00:10"), instant("2026-06-01")).total == 2


def test_a_start_between_two_occurrences_begins_with_the_later_one() -> None:
    timetable = Timetable(cron="* * * * *", starts_at=instant("2026-01-01T00:10:00.5"))

    assert timetable.next_after(instant("2025-01-01")) == instant("2026-01-01T00:11")


def test_once_is_once() -> None:
    timetable = Timetable(run_at=instant("2026-01-01T09:00"))

    assert walked(timetable, instant("2025-01-01"), instant("2027-01-01")) == [instant("2026-01-01T09:00")]
    assert timetable.next_after(instant("2026-01-01T09:00")) is None


def test_an_interval_ends_where_dates_do() -> None:
    timetable = Timetable(every=3_653 * DAY, anchor=instant("9990-01-01"))

    assert timetable.next_after(instant("9999-01-01")) is None


def test_an_expression_without_future_has_none() -> None:
    assert Timetable(cron="0 0 31 2 *").next_after(instant("2026-01-01")) is None


def test_a_timetable_that_cannot_be_read_says_so_when_asked() -> None:
    timetable = Timetable(cron="* * * * *", tz="Atlantis/Center")

    with pytest.raises(InvalidCron, match="Atlantis"):
        timetable.next_after(instant("2026-01-01"))


@pytest.mark.parametrize(
    ("timetable", "words"),
    [
        (Timetable(run_at=instant("2026-01-01T09:00")), "once, at 2026-01-01T09:00:00+00:00"),
        (Timetable(every=90 * MINUTE, anchor=instant("2026-01-01")), "every 1h30m"),
        (Timetable(cron="0 9 * * 1-5", tz="Europe/Berlin"), "at 09:00 on Monday to Friday, Europe/Berlin"),
    ],
)
def test_a_timetable_is_put_into_words(timetable: Timetable, words: str) -> None:
    assert timetable.explain().casefold() == words.casefold()


# --- once: the table of the source documents


NOW = instant("2026-01-01T12:00")
ODD = [
    "2026-01-01 12:00:00Z",
    "2026-01-01T12:00Z",
    "2026-W49-1T12:00:00+01:00",
    "20261201T120000+0100",
    "2026-02-30T12:00:00Z",
]


def test_a_delay_counts_from_now() -> None:
    assert resolve_once(ALARM, delay=600 * SECOND, at=None, now=NOW) == instant("2026-01-01T12:10")


def test_an_instant_is_itself() -> None:
    at = parse_instant(ALARM, "2026-01-01T18:30:00Z")

    assert resolve_once(ALARM, delay=None, at=at, now=NOW) == instant("2026-01-01T18:30")


@pytest.mark.parametrize(
    ("delay", "at", "message"),
    [
        (SECOND, NOW + SECOND, "once alarm takes either delay_seconds or fire_at, not both"),
        (None, None, "once alarm requires delay_seconds or fire_at"),
        (None, NOW, "fire_at 2026-01-01T12:00:00+00:00 is not in the future"),
        (None, NOW - DAY, "fire_at 2025-12-31T12:00:00+00:00 is not in the future"),
        (timedelta(), None, "delay_seconds 0:00:00 is not in the future"),
    ],
)
def test_what_names_no_single_instant_is_refused(delay: timedelta | None, at: datetime | None, message: str) -> None:
    with pytest.raises(InvalidOnce) as refused:
        resolve_once(ALARM, delay=delay, at=at, now=NOW)

    assert str(refused.value) == message


@pytest.mark.parametrize("text", ["2026-01-01t18:30:00z", "2026-01-01T18:30:00z", "2026-01-01t19:30:00.000+01:00"])
def test_small_letters_name_the_same_instant(text: str) -> None:
    assert parse_instant(ALARM, text) == instant("2026-01-01T18:30")


@pytest.mark.parametrize("text", ["", "noon", "2026-01-01", "2026-13-01T12:00:00", "12:00:00Z", *ODD])
def test_what_is_not_rfc_3339_is_refused(text: str) -> None:
    with pytest.raises(InvalidOnce) as refused:
        parse_instant(ALARM, text)

    assert str(refused.value) == f"invalid fire_at {text!r} (want RFC3339)"


def test_an_instant_without_a_zone_is_told_so() -> None:
    with pytest.raises(InvalidOnce) as refused:
        parse_instant(ALARM, "2026-01-01T12:00:00")

    assert str(refused.value).startswith("invalid fire_at '2026-01-01T12:00:00' (want RFC3339): it has no time zone;")
    assert str(refused.value).endswith("; add one, such as 2026-01-01T12:00:00Z")
