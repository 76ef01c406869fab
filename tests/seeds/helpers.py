"""What the tests of several documents say in the same words. Alarms and schedules are made and moved as elsewhere."""

from __future__ import annotations

from datetime import timedelta

from tests.engine.test_schedules import a_schedule, create, fire
from tests.engine.test_schedules import log as fires_of
from tests.engine.test_schedules import made as jobs_made
from tests.engine.test_wakes import HOUR, MINUTE, NOON, SECOND, deliver, set_one
from tests.engine.test_wakes import log_of as deliveries

DAY = timedelta(days=1)

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "NOON",
    "SECOND",
    "a_schedule",
    "create",
    "deliver",
    "deliveries",
    "fire",
    "fires_of",
    "jobs_made",
    "set_one",
]
