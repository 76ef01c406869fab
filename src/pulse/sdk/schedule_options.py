"""How is a schedule written in Python, and how does it become what the engine reads?"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypedDict

from pulse.model.errors import InvalidFilter, InvalidOption
from pulse.model.schedules import CatchUp, Overlap, ScheduleFilter, ScheduleStatus
from pulse.sdk.options import Length, length


class ScheduleOptions(TypedDict, total=False):
    """When a schedule has its occurrences, and what happens when things are late. What is not there was not said."""

    cron: str | None
    every: Length | None
    run_at: datetime | None
    delay: Length | None
    tz: str
    starts_at: datetime | None
    ends_at: datetime | None
    max_occurrences: int | None
    jitter: Length | None
    catch_up: CatchUp | Literal["fire_once", "skip", "replay"]
    replay_limit: int
    overlap: Overlap | Literal["allow", "skip", "buffer_one"]


class Wanted(TypedDict, total=False):
    """Which schedules to list."""

    status: ScheduleStatus | str | None
    paused: bool | None
    task: str | None
    topic: str | None
    tag: str | None


OPTION_NAMES = tuple(ScheduleOptions.__annotations__)
LENGTHS = ("every", "delay", "jitter")
KINDS = {"catch_up": CatchUp, "overlap": Overlap}
TEXTS = {"cron": '"0 9 * * 1-5"', "tz": '"Europe/Berlin"'}


def read_options(given: ScheduleOptions) -> dict[str, Any]:
    """By the names that the model has for them; it checks their values itself."""
    if unknown := given.keys() - set(OPTION_NAMES):
        raise InvalidOption("option of a schedule", min(unknown), f"be one of {', '.join(OPTION_NAMES)}")
    return {name: _read(name, value) for name, value in given.items()}


def _read(name: str, value: Any) -> Any:  # noqa: ANN401
    if name in TEXTS and not isinstance(value, str) and not (name == "cron" and value is None):
        raise InvalidOption(name, value, f"be text, such as {TEXTS[name]}")
    if name in LENGTHS and value is not None:
        return length(name, value)
    if kind := KINDS.get(name):
        with suppress(ValueError):
            return kind(value)
    return value


def read_filter(wanted: Wanted) -> ScheduleFilter:
    if unknown := wanted.keys() - set(Wanted.__annotations__):
        raise InvalidFilter(f"there is no filter {min(unknown)!r}: there are {', '.join(Wanted.__annotations__)}")
    status: ScheduleStatus | None = None
    if (given := wanted.get("status")) is not None:
        try:
            status = ScheduleStatus(given.upper())
        except (AttributeError, ValueError):
            known = ", ".join(each.value.lower() for each in ScheduleStatus)
            raise InvalidFilter(f"there is no status {given!r} of a schedule: there are {known}") from None
    rest: dict[str, Any] = {name: value for name, value in wanted.items() if name != "status"}
    return ScheduleFilter(status=status, **rest)
