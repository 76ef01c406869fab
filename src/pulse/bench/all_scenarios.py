"""Which scenarios can `pulse bench` run?"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from pulse.bench import alarms, scenarios, schedules

if TYPE_CHECKING:
    from pulse.bench.results import Result
    from pulse.bench.scenarios import Plan

SCENARIOS: dict[str, Callable[[Plan], Coroutine[Any, Any, Result]]] = {
    "drain": scenarios.drain,
    "live": scenarios.live,
    "latency": scenarios.latency,
    "delayed": scenarios.delayed,
    "retries": scenarios.retries,
    "backlog": scenarios.backlog,
    "enqueue": scenarios.enqueue,
    "fire": schedules.fire,
    "on-time": schedules.on_time,
    "wake": alarms.wake,
    "wake-on-time": alarms.wake_on_time,
}
