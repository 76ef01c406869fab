"""How long does a loop of ours wait after a failure?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from pulse.timing import backoff
from pulse.timing.backoff import Backoff

MILLISECOND = timedelta(milliseconds=1)


@pytest.fixture
def unlucky(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest wait that chance allows."""
    monkeypatch.setattr(backoff.random, "uniform", lambda _least, most: most)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unlucky")
def test_the_wait_doubles_up_to_the_most() -> None:
    waits = [Backoff().delay(failures) / MILLISECOND for failures in range(1, 10)]

    assert waits == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]


@pytest.mark.usefixtures("unlucky")
def test_first_and_most_may_be_chosen() -> None:
    chosen = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=5))

    assert [chosen.delay(failures).total_seconds() for failures in (1, 2, 3, 4)] == [1, 2, 4, 5]


def test_waits_are_spread_over_the_upper_half() -> None:
    waits = {Backoff().delay(3) / MILLISECOND for _ in range(500)}

    assert 200 <= min(waits) < 220
    assert 380 < max(waits) <= 400
    assert len(waits) > 100, "processes that failed together do not come back together"


@pytest.mark.parametrize("failures", [33, 1_000, 10**9])
def test_an_outage_of_any_length_has_a_wait(failures: int) -> None:
    assert timedelta(seconds=5) <= Backoff().delay(failures) <= timedelta(seconds=10)
