"""Does every public call answer a wrong value with an error of Pulse's, whatever the parameter and the value?"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest

from pulse import Discard, JobHandle, Pulse, Retry, RetryIn, Snooze, Task
from pulse.errors import PulseError
from pulse.sdk.alarm_options import AlarmOptions, WantedAlarms
from pulse.sdk.alarms import Alarms
from pulse.sdk.schedule_options import ScheduleOptions, WantedSchedules
from pulse.sdk.schedules import Schedules
from pulse.settings import Settings
from tests.sdk.apps_here import closing

RUBBISH: dict[str, object] = {
    "None": None,
    "object": object(),
    "text": "nonsense",
    "NUL": "a\x00b",
    "minus one": -1,
    "huge": 10**30,
    "not a number": float("nan"),
    "bytes": b"x",
    "list": [],
    "list of objects": [object()],
    "dict": {},
    "dict of numbers": {1: 2},
    "naive": datetime(2030, 1, 1),  # noqa: DTZ001
    "class": int,
    "function": len,
}
FEW = ("object", "NUL", "minus one")  # for twins for coroutines, and through servers, which share what checks them
SOON = datetime.now(UTC) + timedelta(days=1)
EXTRA: dict[tuple[type, str], type] = {  # what stands behind ** in a signature
    (Alarms, "options"): AlarmOptions,
    (Alarms, "wanted"): WantedAlarms,
    (Schedules, "options"): ScheduleOptions,
    (Schedules, "wanted"): WantedSchedules,
    (Pulse, "overrides"): Settings,
}
# Those that only make or end something, or take nothing of the caller's.
LEFT_OUT = {"close", "link_thread", "settings", "topics", "declared", "declare_for", "async_"}


def greet(name: str = "Ada") -> str:
    return name


class Calls:
    """Every public method with arguments that are right, one of which is then replaced."""

    def __init__(self, app: Pulse) -> None:
        self.app = app
        self.task: Task[Any, Any, Any] = app.task(name="greet")(greet)
        self.handle: JobHandle[Any] = self.task.enqueue()
        app.schedules.create("daily", self.task, cron="0 9 * * *")
        app.alarms.set("tea", fire_at=SOON, url="https://example.com/")
        self.count = 0

    def unique(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def right(self, owner: type, method: str) -> dict[str, Any]:
        name = method.removeprefix("a")
        known: dict[str, Any] = {
            "task": {"function": greet, "name": self.unique()},
            "handle": {"job_id": self.handle.id},
            "enqueue_many": {"calls": [self.task.call()]},
            "submit": {"jobs": [self.task.call().job]},
            "find_task": {"name": "greet"},
            "backfill": {"name": "daily", "start": SOON - timedelta(days=3), "end": SOON - timedelta(days=2)},
            "declare": {"name": self.unique(), "task": self.task, "cron": "0 9 * * *"},
            "create": {"name": self.unique(), "task": self.task, "cron": "0 9 * * *"},
            "set": {"name": "tea", "fire_at": SOON, "url": "https://example.com/"},
            "result": {"timeout": 0},
            "sync": {"app_name": "shop"},
        }
        for each in (method, name):
            if each in known:
                return dict(known[each])
        if owner is Alarms:
            return {} if name == "list" else {"key": "tea"}
        if owner is Schedules:
            return {} if name == "list" else {"name": "daily"}
        if name in ("on_startup", "on_shutdown", "on_dead_letter"):
            return {"hook": greet}
        return {"around": greet} if name == "middleware" else {}


def parameters(owner: type, function: Callable[..., Any]) -> Iterator[str]:
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self" or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            yield name
        elif (owner, name) in EXTRA:
            yield from get_type_hints(EXTRA[owner, name])
        elif (owner, name) == (Pulse, "given"):
            yield from ("name", "aliases", "executor", "topic", "priority", "delay", "retry", "timeout", "deadline")
            yield from ("result_ttl", "tags", "cron", "every", "tz")


def methods(owner: type) -> list[str]:
    return [
        name
        for name, member in vars(owner).items()
        if not name.startswith("_") and callable(member) and name not in LEFT_OUT
    ]


OWNERS: dict[str, type] = {"app": Pulse, "task": Task, "handle": JobHandle, "alarms": Alarms, "schedules": Schedules}
CASES = [(which, name) for which, owner in OWNERS.items() for name in methods(owner)]


def trouble_of(call: Callable[[], Any]) -> str | None:
    """What came out that should not have: an error that is neither ours nor Python's own of the call itself."""
    try:
        answer = call()
        if inspect.iscoroutine(answer):
            asyncio.run(answer)
        elif inspect.isasyncgen(answer):
            asyncio.run(anext(answer, None))
        elif inspect.isgenerator(answer):
            next(answer, None)
    except PulseError:
        return None
    except TypeError as error:
        depth = len(list(inspect.getinnerframes(error.__traceback__))) if error.__traceback__ else 0
        return None if depth <= 2 and "argument" in str(error) else f"TypeError: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize(("which", "method"), CASES)
def test_a_wrong_value_is_answered_with_an_error_of_ours(settings: Settings, which: str, method: str) -> None:
    found = []
    is_twin = (method[0] == "a" and hasattr(OWNERS[which], method[1:])) or method == "edit"  # which reads as create
    is_whole = settings.server_url is None and not is_twin
    with closing(Pulse(settings=settings)) as app:
        calls = Calls(app)
        thing = {"app": app, "task": calls.task, "handle": calls.handle, "alarms": app.alarms}.get(which, app.schedules)
        function = getattr(thing, method)
        for parameter in parameters(OWNERS[which], getattr(OWNERS[which], method)):
            for kind, value in (RUBBISH if is_whole else {name: RUBBISH[name] for name in FEW}).items():
                if (parameter, value) == ("timeout", None) and "result" in method:
                    continue  # for ever, which is no mistake
                given = calls.right(OWNERS[which], method) | {parameter: value}
                if trouble := trouble_of(lambda given=given: _call(function, given)):  # type: ignore[misc]
                    found.append(f"{which}.{method}({parameter}={kind}): {trouble}")

    assert not found, "\n".join(found)


def _call(function: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Positional-only parameters by place."""
    if "function" in given and given["function"] is not greet:
        return function(given["function"])
    if "function" in given:
        return function(**{name: value for name, value in given.items() if name != "function"})(greet)
    return function(**given)


@pytest.mark.parametrize("kind", [Retry, Snooze, RetryIn, Discard])
def test_a_wrong_value_for_a_value_of_ours_is_too(kind: Callable[..., Any]) -> None:
    right = {"in_": "5m"} if kind in (Snooze, RetryIn) else {}
    found = [
        f"{kind.__name__}({parameter}={name}): {trouble}"
        for parameter in inspect.signature(kind).parameters
        for name, value in RUBBISH.items()
        if (trouble := trouble_of(lambda given=right | {parameter: value}: kind(**given)))  # type: ignore[misc]
    ]

    assert not found, "\n".join(found)


@pytest.mark.parametrize("setting", sorted(get_type_hints(Settings)))
def test_a_wrong_value_for_a_setting_is_too(setting: str) -> None:
    found = []
    for name, value in RUBBISH.items():
        given = {setting: value}
        if trouble := trouble_of(lambda given=given: Pulse(**given).settings):  # type: ignore[misc]
            found.append(f"Pulse({setting}={name}): {trouble}")

    assert not found, "\n".join(found)
