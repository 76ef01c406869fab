"""Pulse: durable jobs, schedules and alarms on nothing but Postgres.

The names below are imported when they are first used, so that `pulse --help` and programs that need only one of them
start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pulse.version import __version__ as __version__

if TYPE_CHECKING:
    from pulse import errors
    from pulse.links.blocking_calls import BlockingCallWarning
    from pulse.model.alarms import Alarm, AlarmStatus, Delivery, DeliveryOutcome
    from pulse.model.jobs import Job, JobStatus
    from pulse.model.schedules import CatchUp, Fire, Overlap, Schedule, ScheduleStatus
    from pulse.sdk.app import Pulse
    from pulse.sdk.context import Context, Discard, RetryIn, Snooze
    from pulse.sdk.handle import JobHandle
    from pulse.sdk.options import Retry
    from pulse.sdk.task import Task
    from pulse.settings import Settings

__all__ = [
    "Alarm",
    "AlarmStatus",
    "BlockingCallWarning",
    "CatchUp",
    "Context",
    "Delivery",
    "DeliveryOutcome",
    "Discard",
    "Fire",
    "Job",
    "JobHandle",
    "JobStatus",
    "Overlap",
    "Pulse",
    "Retry",
    "RetryIn",
    "Schedule",
    "ScheduleStatus",
    "Settings",
    "Snooze",
    "Task",
    "errors",
]

_MODULES = {
    "Alarm": "pulse.model.alarms",
    "AlarmStatus": "pulse.model.alarms",
    "BlockingCallWarning": "pulse.links.blocking_calls",
    "CatchUp": "pulse.model.schedules",
    "Context": "pulse.sdk.context",
    "Delivery": "pulse.model.alarms",
    "DeliveryOutcome": "pulse.model.alarms",
    "Discard": "pulse.sdk.context",
    "Fire": "pulse.model.schedules",
    "Job": "pulse.model.jobs",
    "JobHandle": "pulse.sdk.handle",
    "JobStatus": "pulse.model.jobs",
    "Overlap": "pulse.model.schedules",
    "Pulse": "pulse.sdk.app",
    "Retry": "pulse.sdk.options",
    "RetryIn": "pulse.sdk.context",
    "Schedule": "pulse.model.schedules",
    "ScheduleStatus": "pulse.model.schedules",
    "Settings": "pulse.settings",
    "Snooze": "pulse.sdk.context",
    "Task": "pulse.sdk.task",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("pulse.errors")
    if name not in _MODULES:
        raise AttributeError(f"module 'pulse' has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
