from typing import Any

import pytest

from pulse.model.alarms import AlarmStatus
from pulse.model.any_case import AnyCase
from pulse.model.jobs import JobStatus
from pulse.model.list_filters import AlarmState, ScheduleState
from pulse.model.schedules import ScheduleStatus

STATES = [JobStatus, ScheduleStatus, AlarmStatus, ScheduleState, AlarmState]


@pytest.mark.parametrize("states", STATES)
def test_a_state_is_read_in_any_case(states: type[AnyCase]) -> None:
    for state in states:
        for text in (state.value, state.lower(), state.upper(), state.title(), f" {state.lower().replace('_', '-')} "):
            assert states(text) is state


@pytest.mark.parametrize("text", ["", "pend", "PENDING!", None, 1, "dead lettered"])
def test_what_is_no_state_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a valid JobStatus"):
        JobStatus(text)
