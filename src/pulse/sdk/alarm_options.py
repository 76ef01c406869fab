"""Which options does an alarm take in Python, and how are they read?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from pulse.model.alarms import DEFAULT_OWNER, ONCE, AlarmFilter, AlarmStatus, NewAlarm
from pulse.model.errors import InvalidAlarm, InvalidFilter, InvalidOption, InvalidPayload
from pulse.sdk.arguments import write_json
from pulse.sdk.options import Length, length
from pulse.timing.once import InvalidOnce, parse_instant


class AlarmOptions(TypedDict, total=False):
    """When an alarm fires, which URL it calls, and with what. Options left out keep their defaults."""

    fire_at: datetime | str | None  # as RFC 3339 writes it, where it is text
    delay: Length | None
    cron: str | None
    tz: str
    url: str | None
    payload: Any
    headers: Mapping[str, str] | None
    label: str
    owner: str | None
    max_failures: int | None
    idempotency_key: str | None


class WantedAlarms(TypedDict, total=False):
    """A filter of the alarms to list."""

    owner: str | None
    status: AlarmStatus | Literal["active", "fired", "failed", "cancelled"] | None
    paused: bool | None
    label: str | None


OPTION_NAMES = tuple(AlarmOptions.__annotations__)


def read_new_alarm(name: str | None, given: AlarmOptions) -> NewAlarm:
    """Return the alarm that these options describe. Its constructor checks their values."""
    if unknown := given.keys() - set(OPTION_NAMES):
        raise InvalidOption("option of an alarm", min(unknown), f"be one of {', '.join(OPTION_NAMES)}")
    when = [option for option in ("delay", "fire_at", "cron") if given.get(option) is not None]
    if len(when) != 1:
        raise InvalidAlarm(f"when? give one of delay, fire_at and cron{', not ' + ' and '.join(when) if when else ''}")
    if given.get("tz") is not None and when != ["cron"]:
        raise InvalidOption("tz", given["tz"], "come with cron (an instant has an offset of its own)")
    fields = {option: _read(option, value) for option, value in given.items()}
    if fields.get("delay") == timedelta():
        raise InvalidAlarm("once alarm requires delay or fire_at: a delay of 0 is none")
    return NewAlarm(name=name, **fields)


def _read(option: str, value: Any) -> Any:  # noqa: ANN401
    match option:
        case "payload":
            return write_json(value, lambda why: InvalidPayload(f"payload: {why}"))
        case "delay":
            return None if value is None else length(option, value)
        case "fire_at":
            return _instant(value) if isinstance(value, str) else value
        case "headers":
            if not isinstance(value, Mapping | None):
                raise InvalidOption("headers", value, 'be a dict of names and values, such as {"X-Shop": "north"}')
            return {} if value is None else value
        case "owner":
            return DEFAULT_OWNER if value is None else value
        case _:
            return value


def _instant(text: str) -> datetime:
    try:
        return parse_instant(ONCE, text)
    except InvalidOnce as error:
        raise InvalidAlarm(str(error)) from None


def read_alarm_filter(wanted: WantedAlarms) -> AlarmFilter:
    known_filters = ", ".join(WantedAlarms.__annotations__)
    if unknown := wanted.keys() - set(WantedAlarms.__annotations__):
        raise InvalidFilter(f"filter of alarms must be one of {known_filters}, not {min(unknown)!r}")
    status: AlarmStatus | None = None
    if (given := wanted.get("status")) is not None:
        try:
            status = AlarmStatus(given)
        except ValueError:
            raise InvalidFilter(f"status of an alarm must be one of {', '.join(AlarmStatus)}, not {given!r}") from None
    rest: dict[str, Any] = {name: value for name, value in wanted.items() if name != "status"}
    return AlarmFilter(status=status, **rest)
