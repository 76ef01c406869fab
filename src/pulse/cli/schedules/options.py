"""Which flags say what a schedule is, and how do they become the model's fields?"""

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
CLEARED: dict[str, Any] = {  # what --no-… leaves
    "starts_at": None,
    "ends_at": None,
    "max_occurrences": None,
    "jitter": None,
    "timeout": None,
    "result_ttl": None,
    "tag": (),
}
FIELDS = {"tag": "tags"}  # the flag is given once for each
NEITHER = "when? Give --cron '0 9 * * 1-5', --every 15m, --run-at 2026-12-31T18:00:00Z or --delay 10m."

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# --- reading


def read_instant(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    from pulse.timing.once import InvalidOnce, Words, parse_instant

    if value is None:
        return None
    try:
        return parse_instant(Words("schedule", "delay", str(param.name)), value)
    except InvalidOnce as error:
        example = "" if "such as" in str(error) else ", for example 2026-12-31T18:00:00+01:00"
        raise click.BadParameter(f"{error}{example}.", ctx, param) from None


def read_arguments(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """JSON text: an object, because a task's arguments go by their names."""
    import msgspec

    if value is None:
        return None
    try:
        is_object = isinstance(msgspec.json.decode(value), dict)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise click.BadParameter(f"""{error}; write an object, as in '{{"to": "ada"}}'.""", ctx, param) from None
    if not is_object:
        raise click.BadParameter("""arguments go by their names: write an object, as in '{"to": "ada"}'.""", ctx, param)
    return value


def read_schedule_status(ctx: click.Context, param: click.Parameter, value: str | None) -> ScheduleStatus | None:
    from pulse.model.schedules import ScheduleStatus

    if value is None:
        return None
    try:
        return ScheduleStatus(value.strip().upper())
    except ValueError:
        names = ", ".join(status.lower() for status in ScheduleStatus)
        raise click.BadParameter(
            f"{value!r} is not a state; it is one of {names}. Those that are paused: --paused.", ctx, param
        ) from None


# --- flags


def timetable_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--cron", metavar="EXPRESSION", help="As in '0 9 * * 1-5', or @daily."),
        click.option("--every", metavar="LENGTH", callback=read_length, help="At intervals: 30s, 15m, 6h."),
        click.option("--run-at", metavar="TIME", callback=read_instant, help="Once, at 2026-12-31T18:00:00+01:00."),
        click.option("--delay", metavar="LENGTH", callback=read_length, help="Once, so long from now."),
        click.option("--tz", metavar="ZONE", help="Whose clocks --cron goes by: Europe/Berlin (UTC)."),
        click.option("--starts-at", metavar="TIME", callback=read_instant, help="Not before: 2026-12-01T00:00:00Z."),
        click.option("--ends-at", metavar="TIME", callback=read_instant, help="Not at this time, nor later."),
        click.option("--max-occurrences", type=click.IntRange(min=1), metavar="N", help="At most so many times."),
    ]
    return _all(options, cleared=("starts_at", "ends_at", "max_occurrences") if is_edit else ())


def policy_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--jitter", metavar="LENGTH", callback=read_length, help="Spread the starts over so long."),
        click.option(
            "--catch-up", type=click.Choice(CATCH_UP), help="For what was missed: one job, none, each (fire_once)."
        ),
        click.option("--replay-limit", type=click.IntRange(1, 1000), metavar="N", help="How much of it, newest (100)."),
        click.option("--overlap", type=click.Choice(OVERLAP), help="When a job before it is unfinished (allow)."),
    ]
    return _all(options, cleared=("jitter",) if is_edit else ())


def job_options(*, is_edit: bool = False) -> Decorator:
    options = [
        click.option("--task", required=not is_edit, help="What to run."),
        click.option(
            "--payload", metavar="JSON", callback=read_arguments, help='Its arguments, as in \'{"to": "ada"}\'.'
        ),
        click.option("--topic", help="Where its jobs go (the task's name)."),
        click.option("--priority", type=click.IntRange(-100, 100), metavar="N", help="Higher goes first (0)."),
        click.option("--max-attempts", type=click.IntRange(1, 1000), metavar="N", help="Of each job (3)."),
        click.option("--timeout", metavar="LENGTH", callback=read_length, help="Of each attempt."),
        click.option("--result-ttl", metavar="LENGTH", callback=read_length, help="For how long a result is kept."),
        click.option("--tag", multiple=True, help="On each job; repeat it for more."),
    ]
    return _all(options, cleared=("timeout", "result_ttl", "tag") if is_edit else ())


def _all(options: Sequence[Decorator], *, cleared: tuple[str, ...]) -> Decorator:
    options = [
        *options,
        *(
            click.option(
                f"--no-{name.replace('_', '-')}", f"no_{name}", is_flag=True, help=f"Take {_plain(name)} away."
            )
            for name in cleared
        ),
    ]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _plain(name: str) -> str:
    return "all tags" if name == "tag" else f"--{name.replace('_', '-')}"


# --- fields


def check_when(given: dict[str, Any], *, is_edit: bool = False) -> None:
    """One of the ways to say when; an edit may leave it as it is."""
    found = [f"--{name.replace('_', '-')}" for name in WHEN if given[name] is not None]
    if len(found) > 1:
        raise click.UsageError(
            f"{' and '.join(found)} exclude each other: give one of --cron, --every, --run-at and --delay."
        )
    if not found and not is_edit:
        raise click.UsageError(NEITHER)


def fields_of(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, under the names that the model has for it."""
    from pulse.model.schedules import CatchUp, Overlap

    kinds: dict[str, Callable[[Any], Any]] = {"catch_up": CatchUp, "overlap": Overlap}
    return {
        FIELDS.get(name, name): kinds.get(name, lambda same: same)(value)
        for name, value in given.items()
        if value is not None and value != () and not name.startswith("no_")
    }


def changes_of(given: dict[str, Any]) -> dict[str, Any]:
    """As `fields_of`, and what --no-… clears."""
    changes = fields_of(given)
    for name, empty in CLEARED.items():
        if not given[f"no_{name}"]:
            continue
        flag = name.replace("_", "-")
        if FIELDS.get(name, name) in changes:
            raise click.UsageError(f"--{flag} and --no-{flag} exclude each other.")
        changes[FIELDS.get(name, name)] = empty
    if not changes:
        raise click.UsageError("change what? Give at least one of the flags that `pulse schedules edit --help` lists.")
    return changes
