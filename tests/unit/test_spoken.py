"""Are lengths, lists and foreign words said so that a sentence can hold them?"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from pulse.model.human_text import about, first_words, instant, listed


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "less than 1s"),
        (timedelta(seconds=-5), "less than 1s"),
        (timedelta(milliseconds=999), "less than 1s"),
        (timedelta(seconds=12.7), "12s"),
        (timedelta(minutes=5, seconds=20.5), "5m20s"),
        (timedelta(hours=2, minutes=3, seconds=50), "2h3m"),
        (timedelta(days=400, hours=1, minutes=59), "400d1h"),
        (timedelta(days=2), "2d"),
    ],
)
def test_a_length_has_two_units_at_most(length: timedelta, text: str) -> None:
    assert about(length) == text


def test_a_list_ends_with_and() -> None:
    assert [listed(words) for words in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_an_instant_is_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert instant(datetime(2026, 7, 31, 9, 0, tzinfo=east)) == "2026-07-31 07:00:00 UTC"


def test_of_foreign_words_the_first_line_is_kept_and_no_more_than_fits() -> None:
    assert first_words("ValueError: no.\n  at line 3") == "ValueError: no"
    assert first_words("x" * 300, 10) == "xxxxxxxxx…"
