"""Is trouble that lasts told at once, and then ever less often?"""

from __future__ import annotations

from pulse.links.repeated_warnings import RepeatedWarning


def test_it_is_told_at_intervals_that_double_up_to_ten_minutes() -> None:
    now = 0.0
    complaint = RepeatedWarning(lambda: now)
    told = []
    for second in range(4_000):
        now = float(second)
        if complaint.is_due("revoked"):
            told.append(second)

    assert told == [0, 30, 90, 210, 450, 930, 1530, 2130, 2730, 3330, 3930]


def test_another_one_or_one_after_an_end_is_told_at_once() -> None:
    complaint = RepeatedWarning(lambda: 0.0)

    assert [complaint.is_due(text) for text in ("revoked", "revoked", "expired")] == [True, False, True]
    complaint.reset()
    assert complaint.is_due("expired")
