"""Which flags describe a schedule, and how do they become fields of the model?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import read_length

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.model.schedules import ScheduleStatus

WHEN = ("cron", "every", "run_at", "delay")
CATCH_UP = ("fire_once", "skip", "replay")
OVERLAP = ("allow", "skip", "buffer_one")
CLEARED: dict[str, Any] = {  # the values that --no-… sets
    "starts_at": None,
    "ends_at": None,
    "max_occurrences": None,
    "jitter": None,
    "timeout": None,
    "result_ttl": None,
    "tag": (),
}
FIELDS = {"tag": "tags"}  # the flag is given once for each
NO_TIME = (
    "a schedule needs a time: give --cron '0 9 * * 1-5', --every 15m, --run-at 2026-12-31T18:00:00Z or --delay 10m."
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# --- reading


def read_instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    from pulse.timing.once import FieldNames, InvalidOnce, parse_instant

    if value is None:
        return None
    try:
        return parse_instant(FieldNames("schedule", "delay", str(param.name)), value)
    except InvalidOnce as error:
        example = "" if "such as" in str(error) else ", for example 2026-12-31T18:00:00+01:00"
        raise click.BadParameter(f"{error}{example}.", ctx, param) from None


def read_arguments(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Check JSON text, which must be an object, because the arguments of a task are passed by name."""
    import msgspec

    if value is None:
        return None
    try:
        is_object = isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise click.BadParameter(f"""{error}; write an object, as in '{{"to": "ada"}}'.""", ctx, param) from None
    if not is_object:
        raise click.BadParameter("""must be an object with arguments by name, as in '{"to": "ada"}'.""", ctx, param)
    return value


def read_schedule_status(ctx: click.Context, param: click.Parameter, value: str | None) -> ScheduleStatus | None:
    from pulse.model.schedules import ScheduleStatus

    if value is None:
        return None
    try:
        return ScheduleStatus(value)
    except ValueError:
        names = ", ".join(status.lower() for status in ScheduleStatus)
        raise click.BadParameter(
            f"a state must be one of {names}, not {value!r}. For paused ones use --paused.", ctx, param
        ) from None


# --- flags


def timetable_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--cron", metavar="EXPRESSION", help="By a cron line: '0 9 * * 1-5', @daily."),
        click.option("--every", metavar="LENGTH", callback=read_length, help="At intervals: 30s, 15m, 6h."),
        click.option("--run-at", metavar="TIME", callback=read_instant, help="Once, at 2026-12-31T18:00:00+01:00."),
        click.option("--delay", metavar="LENGTH", callback=read_length, help="Once, after this time: 90s, 10m, 14d."),
        click.option("--tz", metavar="ZONE", help="The time zone of --cron: Europe/Berlin (UTC)."),
        click.option("--starts-at", metavar="TIME", callback=read_instant, help="Not before: 2026-12-01T00:00:00Z."),
        click.option("--ends-at", metavar="TIME", callback=read_instant, help="Only before this time."),
        click.option("--max-occurrences", type=click.IntRange(min=1), metavar="N", help="At most N times."),
    ]
    return _add_options(options, cleared=("starts_at", "ends_at", "max_occurrences") if is_edit else ())


def policy_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--jitter", metavar="LENGTH", callback=read_length, help="Spread the starts over this time."),
        click.option(
            "--catch-up",
            type=click.Choice(CATCH_UP),
            help="For missed occurrences: one job, none, or one for each (fire_once).",
        ),
        click.option(
            "--replay-limit",
            type=click.IntRange(1, 1000),
            metavar="N",
            help="With replay: only the newest N missed ones (100).",
        ),
        click.option(
            "--overlap", type=click.Choice(OVERLAP), help="If the job before it has not finished yet (allow)."
        ),
    ]
    return _add_options(options, cleared=("jitter",) if is_edit else ())


def job_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--task", required=not is_edit, help="The task to run."),
        click.option(
            "--payload", metavar="JSON", callback=read_arguments, help='Its arguments, as in \'{"to": "ada"}\'.'
        ),
        click.option("--topic", help="The topic of its jobs (the task's name)."),
        click.option("--priority", type=click.IntRange(-100, 100), metavar="N", help="Higher runs first (0)."),
        click.option("--max-attempts", type=click.IntRange(1, 1000), metavar="N", help="Attempts of each job (3)."),
        click.option("--timeout", metavar="LENGTH", callback=read_length, help="The time limit of each attempt."),
        click.option("--result-ttl", metavar="LENGTH", callback=read_length, help="How long results are kept."),
        click.option("--tag", multiple=True, help="A tag of each job; repeat it for more."),
    ]
    return _add_options(options, cleared=("timeout", "result_ttl", "tag") if is_edit else ())


def _add_options(options: Sequence[Decorator], *, cleared: tuple[str, ...]) -> Decorator:
    options = [
        *options,
        *(
            click.option(f"--no-{name.replace('_', '-')}", f"no_{name}", is_flag=True, help=f"Remove {_flag_of(name)}.")
            for name in cleared
        ),
    ]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _flag_of(name: str) -> str:
    return "all tags" if name == "tag" else f"--{name.replace('_', '-')}"


# --- fields


def check_when(given: dict[str, Any], *, is_edit: bool = False) -> None:
    """Require exactly one of the flags for a time; an edit may have none and leave the time as it is."""
    found = [f"--{name.replace('_', '-')}" for name in WHEN if given[name] is not None]
    if len(found) > 1:
        raise click.UsageError(
            f"{' and '.join(found)} exclude each other: give one of --cron, --every, --run-at and --delay."
        )
    if not found and not is_edit:
        raise click.UsageError(NO_TIME)


def fields_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given flags as fields of the model."""
    from pulse.model.schedules import CatchUp, Overlap

    kinds: dict[str, Callable[[Any], Any]] = {"catch_up": CatchUp, "overlap": Overlap}
    return {
        FIELDS.get(name, name): kinds.get(name, lambda same: same)(value)
        for name, value in given.items()
        if value is not None and value != () and not name.startswith("no_")
    }


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the given flags as fields of the model, with those that --no-… clears."""
    changes = fields_of(given)
    for name, empty in CLEARED.items():
        if not given[f"no_{name}"]:
            continue
        flag = name.replace("_", "-")
        if FIELDS.get(name, name) in changes:
            raise click.UsageError(f"--{flag} and --no-{flag} exclude each other.")
        changes[FIELDS.get(name, name)] = empty
    if not changes:
        raise click.UsageError("nothing to change: give one of the flags that `pulse schedules edit --help` lists.")
    return changes
