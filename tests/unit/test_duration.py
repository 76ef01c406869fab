"""Are lengths of time read and written as people mean them?"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.timing.duration import InvalidDuration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("2d", timedelta(days=2)),
        ("250ms", timedelta(milliseconds=250)),
        ("7us", timedelta(microseconds=7)),
        ("1.5s", timedelta(seconds=1.5)),
        ("1d2h3m4s5ms6us", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5, microseconds=6)),
        ("30m1h", timedelta(minutes=90)),
        ("45", timedelta(seconds=45)),
        ("0.25", timedelta(milliseconds=250)),
        ("0", timedelta()),
        ("0s", timedelta()),
        ("  5m\n", timedelta(minutes=5)),
        ("90m", timedelta(hours=1.5)),
        ("0.1s0.2s", timedelta(seconds=0.3)),
    ],
)
def test_it_is_read(text: str, length: timedelta) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "s", "5 m", "1h 30m", "-5s", "+5s", "5x", "1M", "5S", "1y", "1mo", "five", "1,5s", ".5s", "5.s", "1e3",
        "inf", "nan", "5s;", "1h-30m", "PT5M", "00:05", "5mm", "--",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidDuration, match=r"write something like 30s, 5m, 1h30m, 2d or 250ms") as refused:
        parse_duration(text)

    assert repr(text.strip()) in str(refused.value)


@pytest.mark.parametrize("text", ["1000000000d", "9" * 400, "9" * 400 + "d", "99999999999h"])
def test_what_is_longer_than_time_can_be_is_refused_too(text: str) -> None:
    with pytest.raises(InvalidDuration):
        parse_duration(text)


def test_it_is_a_value_error_for_those_who_know_nothing_of_us() -> None:
    assert issubclass(InvalidDuration, ValueError)


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=7), "7d"),
        (timedelta(hours=36), "1d12h"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(microseconds=1), "1us"),
        (timedelta(seconds=-5), "-5s"),
        (timedelta.min, "-999999999d"),
    ],
)
def test_it_is_written_in_its_largest_units(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


@given(st.timedeltas(min_value=timedelta()))
def test_what_is_written_is_read_back_exactly(length: timedelta) -> None:
    assert parse_duration(format_duration(length)) == length


@given(st.text(max_size=8))
def test_any_text_is_read_or_refused_and_never_negative(text: str) -> None:
    try:
        length = parse_duration(text)
    except InvalidDuration:
        return
    assert length >= timedelta()
