"""Which options does a schedule take in Python, and how are they read?"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, TypedDict

from pulse.model.errors import InvalidFilter, InvalidOption
from pulse.model.schedules import CatchUp, Overlap, ScheduleFilter, ScheduleStatus
from pulse.sdk.options import Length, length


class ScheduleOptions(TypedDict, total=False):
    """When a schedule has its occurrences, and what happens to late ones. Options left out keep their defaults."""

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


class WantedSchedules(TypedDict, total=False):
    """A filter of the schedules to list."""

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
    """Return the options as the model takes them, which checks their values."""
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


def read_schedule_filter(wanted: WantedSchedules) -> ScheduleFilter:
    known_filters = ", ".join(WantedSchedules.__annotations__)
    if unknown := wanted.keys() - set(WantedSchedules.__annotations__):
        raise InvalidFilter(f"filter of schedules must be one of {known_filters}, not {min(unknown)!r}")
    status: ScheduleStatus | None = None
    if (given := wanted.get("status")) is not None:
        try:
            status = ScheduleStatus(given)
        except ValueError:
            known = ", ".join(each.value.lower() for each in ScheduleStatus)
            raise InvalidFilter(f"status of a schedule must be one of {known}, not {given!r}") from None
    rest: dict[str, Any] = {name: value for name, value in wanted.items() if name != "status"}
    return ScheduleFilter(status=status, **rest)
