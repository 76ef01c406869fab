"""Is an instant at the server never taken for a later one than it was?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulse.links.remote.server_clock import ServerClock

seconds = st.floats(min_value=0, max_value=1e6, allow_nan=False)


@given(start=seconds, way_there=st.floats(0, 10), way_back=st.floats(0, 10), later=seconds)
def test_it_never_says_too_late(start: float, way_there: float, way_back: float, later: float) -> None:
    """The server's clock runs `ahead` of ours by any amount; the question takes its time on both ways."""
    ahead = 12_345.0
    asked_at = start
    shown = asked_at + way_there + ahead  # what the server's clock shows when it answers
    clock = ServerClock()
    clock.synchronize(asked_at=asked_at, server_time=shown)

    truly = asked_at + way_there + way_back + later
    estimate = clock.to_local(truly + ahead)

    assert estimate <= truly + 1e-6
    assert truly - estimate == pytest.approx(way_there, abs=1e-6)


def test_the_newest_answer_counts() -> None:
    clock = ServerClock()
    clock.synchronize(asked_at=10, server_time=1_000)
    clock.synchronize(asked_at=20, server_time=1_011)

    assert clock.to_local(1_012) == 21


def test_without_an_answer_nothing_is_known() -> None:
    with pytest.raises(RuntimeError, match="must be synchronized before it is read"):
        ServerClock().to_local(1)
