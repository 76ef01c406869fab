"""Which flags describe an alarm, and how are they read?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.model.alarms import AlarmStatus, NewAlarm

WHEN = ("delay", "fire_at", "cron")
NO_TIME = "an alarm needs a time: give --delay 10m, --fire-at 2026-12-31T18:00:00+01:00 or --cron '0 9 * * *'."


def read_fire_at(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    from pulse.model.alarms import ONCE
    from pulse.timing.once import InvalidOnce, parse_instant

    if value is None:
        return None
    try:
        return parse_instant(ONCE, value)
    except InvalidOnce as error:
        raise click.BadParameter(str(error), ctx, param) from None


def read_payload(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check JSON text, which may be any value."""
    import msgspec

    if value is None:
        return None
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise click.BadParameter(f"""{error}; write JSON, as in '{{"user": 42}}'.""", ctx, param) from None
    return value


def read_headers(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"must be NAME=VALUE, as in x-team=billing, not {text!r}.", ctx, param)
        headers[name.strip()] = value
    return headers


def read_alarm_status(ctx: click.Context, param: click.Parameter, value: str | None) -> AlarmStatus | None:
    from pulse.model.alarms import AlarmStatus

    if value is None:
        return None
    try:
        return AlarmStatus(value)
    except ValueError:
        names = ", ".join(AlarmStatus)
        raise click.BadParameter(
            f"a state must be one of {names}, not {value!r}. For paused ones use --paused.", ctx, param
        ) from None


def check_when(given: dict[str, Any]) -> None:
    """Require exactly one of the flags for a time."""
    found = [f"--{name.replace('_', '-')}" for name in WHEN if given[name] is not None]
    if len(found) > 1:
        raise click.UsageError(f"{' and '.join(found)} exclude each other: give one of --delay, --fire-at and --cron.")
    if not found:
        raise click.UsageError(NO_TIME)
    if given["tz"] is not None and given["cron"] is None:
        raise click.UsageError("--tz can be used only with --cron; an instant has an offset of its own.")


def make_new(name: str | None, given: dict[str, Any]) -> NewAlarm:
    from pulse.model.alarms import NewAlarm

    fields = {flag: value for flag, value in given.items() if value is not None and flag != "header"}
    return NewAlarm(name=name, headers=given["header"], **fields)
