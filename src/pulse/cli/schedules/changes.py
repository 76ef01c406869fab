"""How does an operator create, edit, pause, resume and delete a schedule?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from pulse.cli.options import Command
from pulse.cli.output import age, local_time, print_text
from pulse.cli.schedules.options import (
    changes_of,
    check_when,
    fields_of,
    job_options,
    policy_options,
    timetable_options,
)
from pulse.cli.schedules.views import as_json, describe_timing, occurrence_as_json, show_meaning
from pulse.cli.session import run_with_engine

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.schedules import NewSchedule, Schedule
    from pulse.timing.cron import Occurrence

SHOWN = 3  # occurrences after a change, enough to notice a mistake


@click.command(cls=Command)
@click.argument("name")
@job_options()
@timetable_options()
@policy_options()
@click.pass_obj
def create(session: Session, /, name: str, **given: Any) -> None:  # noqa: ANN401
    """Create a schedule called NAME, and show when it will run.

    \b
    Examples:
      pulse schedules create report --task shop.report --cron '0 9 * * 1-5'
      pulse schedules create sweep --task shop.sweep --every 15m --overlap skip
      pulse schedules create sale --task shop.sale --run-at 2026-12-31T18:00:00Z
      pulse schedules create ping --task ping --payload '{"n": 1}' --delay 10m

    Give its time by one of --cron, --every, --run-at and --delay. Creating the same schedule again changes nothing.
    Schedules that an application declares in its code are created by `pulse schedules sync`.
    """
    check_when(given)
    new = make_new(name, fields_of(given))

    async def work(engine: Engine) -> tuple[Schedule, bool, list[Occurrence]]:
        schedule, is_new = await engine.schedules.create(new)
        return schedule, is_new, await engine.schedules.preview(schedule.id, n=SHOWN)

    schedule, is_new, upcoming = session.run_with_engine(work)
    what = f"Created {name}" if is_new else f"{name} exists already, unchanged"
    document = as_json(schedule) | {"created": is_new, "upcoming": [occurrence_as_json(each) for each in upcoming]}
    session.answer(document, lambda: show_meaning(schedule, upcoming, what))


def make_new(name: str, fields: dict[str, Any]) -> NewSchedule:
    from pulse.model.jobs import NewJob
    from pulse.model.schedules import JOB_FIELDS, NewSchedule

    job = NewJob(**{field: fields.pop(field) for field in JOB_FIELDS if field in fields})
    return NewSchedule(name=name, job=job, **fields)


@click.command(cls=Command)
@click.argument("name")
@job_options(is_edit=True)
@timetable_options(is_edit=True)
@policy_options(is_edit=True)
@click.pass_obj
def edit(session: Session, /, name: str, **given: Any) -> None:  # noqa: ANN401
    """Change the given options of the schedule NAME, and nothing else.

    \b
    Examples:
      pulse schedules edit report --cron '30 8 * * 1-5'
      pulse schedules edit report --ends-at 2027-01-01T00:00:00Z --overlap skip
      pulse schedules edit report --no-ends-at --no-tag

    A new timetable counts from now. The history of the schedule and its pause stay. A schedule that is completed or
    broken becomes active again if its timetable has future times.
    """
    check_when(given, is_edit=True)
    changes = changes_of(given)

    async def work(engine: Engine) -> tuple[Schedule, list[Occurrence]]:
        schedule = await engine.schedules.edit(name, changes)
        return schedule, await engine.schedules.preview(schedule.id, n=SHOWN)

    schedule, upcoming = session.run_with_engine(work)
    document = as_json(schedule) | {"upcoming": [occurrence_as_json(each) for each in upcoming]}
    session.answer(document, lambda: show_meaning(schedule, upcoming, f"Changed {schedule.name}"))


@click.command(cls=Command)
@click.argument("name")
@click.option("--reason", default="", help="Show this with the pause.")
@click.pass_obj
def pause(session: Session, name: str, reason: str) -> None:
    """Pause the schedule NAME: it makes no jobs until it is resumed.

    Jobs that it has made continue. A deploy does not end the pause, and `pulse schedules trigger` still works.
    """
    schedule = session.run_with_engine(lambda engine: engine.schedules.pause(name, reason=reason))
    assert schedule.paused_at is not None
    since = local_time(schedule.paused_at)
    session.answer(as_json(schedule), lambda: print_text(f"{schedule.name} is paused since {since}."))


@click.command(cls=Command)
@click.argument("name")
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Resume the schedule NAME with its next occurrence.

    Occurrences that fell due during the pause make no jobs, but `pulse schedules backfill` can make them. A schedule
    that runs once and whose instant has passed runs now, unless its catch-up is skip.
    """

    async def work(engine: Engine) -> tuple[bool, Schedule]:
        before = await engine.schedules.get(name)
        return before.paused_at is not None, await engine.schedules.resume(name)

    was_paused, schedule = session.run_with_engine(work)
    done = f"{schedule.name} resumed" if was_paused else f"{schedule.name}: not paused, so nothing was changed"
    session.answer(
        as_json(schedule) | {"was_paused": was_paused}, lambda: print_text(f"{done}; {_describe_next(schedule)}.")
    )


def _describe_next(schedule: Schedule) -> str:
    if schedule.next_run_at is None:
        return f"it is {schedule.status}"
    if schedule.paused_at is None and schedule.next_run_at <= schedule.updated_at:
        return f"it was due {age(schedule.next_run_at)} and runs now"
    return f"next {age(schedule.next_run_at)}"


@click.command(cls=Command)
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> None:
    """Delete the schedule NAME. The jobs it has made stay.

    You are asked for confirmation first; without a terminal to ask on, --yes is needed. A schedule that code declares
    has to be removed from the code.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("without a terminal to ask on, this needs --yes.")
    with session.reachable_settings() as settings:
        # The question is asked outside the event loop, which would swallow the first Ctrl-C.
        if not yes:
            found = run_with_engine(settings, lambda engine: engine.schedules.get(name))
            click.confirm(_question(found), abort=True, err=True)
        schedule = run_with_engine(settings, lambda engine: engine.schedules.delete(name))
        session.answer(as_json(schedule), lambda: print_text(f"{schedule.name} is deleted."))


def _question(schedule: Schedule) -> str:
    from pulse.cli.output import escape

    return f"Delete {escape(schedule.name)} ({escape(describe_timing(schedule))})?"
