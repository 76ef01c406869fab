"""How does an operator list schedules, and show their next and last occurrences?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from pulse.cli.options import Group, read_length
from pulse.cli.output import print_text
from pulse.cli.schedules.changes import create, delete, edit, make_new, pause, resume
from pulse.cli.schedules.fires import backfill, trigger
from pulse.cli.schedules.options import read_schedule_status
from pulse.cli.schedules.sync import sync
from pulse.cli.schedules.views import (
    as_json,
    display_zone,
    explain,
    fire_as_json,
    occurrence_as_json,
    show_fire_page,
    show_list,
    show_occurrences,
    show_schedule,
)
from pulse.cli.session import run_with_engine
from pulse.model.errors import Unavailable

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.schedules import Fire, FirePage, NewSchedule, Schedule, ScheduleStatus
    from pulse.timing.cron import Occurrence

UPCOMING, RECENT = 5, 5  # occurrences on a schedule's page
PATIENCE = timedelta(seconds=2)  # for a database, without which a preview is possible, too


@click.group(cls=Group)
def schedules() -> None:
    """List and change schedules.

    \b
    Examples:
      pulse schedules create report --task shop.report --cron '0 9 * * 1-5'
      pulse schedules list
      pulse schedules show report
      pulse schedules preview --cron '30 2 * * *' --tz America/New_York
      pulse schedules pause report --reason 'until the audit is over'
      pulse schedules sync shop.tasks:app
    """


@schedules.command("list")
@click.option("--status", metavar="STATE", callback=read_schedule_status, help="active, completed, broken or disabled.")
@click.option("--paused/--not-paused", default=None, help="Only paused schedules, or only others.")
@click.option("--task", help="Only schedules of this task.")
@click.option("--topic", help="Only schedules of this topic.")
@click.option("--tag", help="Only schedules with this tag.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="List at most this many.")
@click.option("--after", metavar="NEXT", help="Continue after an earlier page, with the `next` that it printed.")
@click.pass_obj
def list_schedules(
    session: Session,
    /,
    status: ScheduleStatus | None,
    limit: int,
    after: str | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """List schedules by name, with all given filters.

    \b
    Examples:
      pulse schedules list --not-paused --status active
      pulse schedules list --status broken --json
    """
    from pulse.model.schedules import ScheduleFilter

    wanted = ScheduleFilter(status=status, **given)
    page = session.run_with_engine(lambda engine: engine.schedules.list_page(wanted, after=after, limit=limit))
    document = {"schedules": [as_json(schedule) for schedule in page.schedules], "next": page.next}
    session.answer(document, lambda: show_list(page))


@schedules.command(short_help="Show everything about one schedule.")
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show everything about one schedule, found by its name or id, with its next and last occurrences."""

    async def read(engine: Engine) -> tuple[Schedule, list[Occurrence], list[Fire]]:
        schedule = await engine.schedules.get(name)
        upcoming = await engine.schedules.preview(schedule.id, n=UPCOMING)
        return schedule, upcoming, (await engine.schedules.fires(schedule.id, limit=RECENT)).fires

    schedule, upcoming, fires = session.run_with_engine(read)
    document = as_json(schedule) | {
        "upcoming": [occurrence_as_json(each) for each in upcoming],
        "fires": [fire_as_json(fire) for fire in fires],
    }
    session.answer(document, lambda: show_schedule(schedule, upcoming, fires))


@schedules.command(short_help="Show the past occurrences of a schedule, newest first.")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True, help="Show at most this many.")
@click.option("--after", metavar="NEXT", help="Continue after an earlier page, with the `next` that it printed.")
@click.pass_obj
def fires(session: Session, name: str, limit: int, after: str | None) -> None:
    """Show the past occurrences of the schedule NAME and what became of them, newest first.

    Occurrences that were missed together are one line. If the schedule was deleted, give its id, which its jobs show.
    """

    async def read(engine: Engine) -> tuple[Schedule | None, FirePage]:
        from pulse.model.errors import ScheduleNotFound

        try:
            schedule = await engine.schedules.get(name)
        except ScheduleNotFound:
            return None, await engine.schedules.fires(name, after=after, limit=limit)
        return schedule, await engine.schedules.fires(schedule.id, after=after, limit=limit)

    schedule, page = session.run_with_engine(read)
    document = {"fires": [fire_as_json(fire) for fire in page.fires], "next": page.next}
    session.answer(document, lambda: show_fire_page(page, schedule, name))


class Preview(NamedTuple):
    explained: str
    tz: str
    display_zone: tzinfo | None
    is_paused: bool
    occurrences: list[Occurrence]


@schedules.command(short_help="Show the next occurrences of a schedule or of any timetable.")
@click.argument("name", required=False)
@click.option("--cron", metavar="EXPRESSION", help="Instead of NAME: '0 9 * * 1-5', or @daily.")
@click.option("--every", metavar="LENGTH", callback=read_length, help="Instead of NAME: 30s, 15m, 6h.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron or --every: Europe/Berlin (UTC).")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="Show this many.")
@click.pass_obj
def preview(
    session: Session, name: str | None, cron: str | None, every: timedelta | None, tz: str | None, count: int
) -> None:
    """Show the next occurrences of a schedule, or of a timetable given by flags.

    Each is shown with its local time and offset, and with a note if clocks change. A timetable needs no database.

    \b
    Examples:
      pulse schedules preview report
      pulse schedules preview --cron '30 2 * * *' --tz America/New_York -n 5
      pulse schedules preview --every 6h
    """
    if [name, cron, every].count(None) != 2:
        raise click.UsageError("give either a NAME, or --cron '0 9 * * 1-5', or --every 15m.")
    if name is None:
        timing = {"cron": cron, "every": every, **({"tz": tz} if tz is not None else {})}
        found = _preview_timetable(session, make_new("preview", {"task": "preview", **timing}), count)
    elif tz is not None:
        raise click.UsageError("--tz can be used with --cron or --every; a schedule has its own time zone.")
    else:
        found = session.run_with_engine(lambda engine: _preview_schedule(engine, name, count))
    listed = [occurrence_as_json(each) for each in found.occurrences]
    session.answer({"explained": found.explained, "tz": found.tz, "occurrences": listed}, lambda: _show_preview(found))


def _show_preview(found: Preview) -> None:
    paused, over = ", but paused" * found.is_paused, ": no more occurrences" * (not found.occurrences)
    print_text(f"{found.explained[0].upper()}{found.explained[1:]}{over or paused}.")
    if found.occurrences:
        show_occurrences(found.occurrences, found.display_zone)


async def _preview_schedule(engine: Engine, name: str, count: int) -> Preview:
    schedule = await engine.schedules.get(name)
    occurrences = await engine.schedules.preview(schedule.id, n=count)
    is_paused = schedule.paused_at is not None
    return Preview(explain(schedule), schedule.timed.tz, display_zone(schedule.timed), is_paused, occurrences)


def _preview_timetable(session: Session, new: NewSchedule, count: int) -> Preview:
    """Preview a timetable by the clock of the database, if one is given and answers soon, or else of this machine."""
    now = datetime.now(UTC)
    timed = new.timed(now)
    occurrences = _ask(session, new, count)
    if occurrences is None:
        timed.first_after(now)
        occurrences = timed.preview(count, now)
    return Preview(timed.explain(), timed.tz, display_zone(timed), False, occurrences)


def _ask(session: Session, new: NewSchedule, count: int) -> list[Occurrence] | None:
    from dataclasses import replace

    settings = session.settings()
    if settings.server_url is None and settings.database_url is None:
        return None
    impatient = replace(settings, patience=min(settings.patience, PATIENCE))
    try:
        return run_with_engine(impatient, lambda engine: engine.schedules.preview_new(new, n=count))
    except Unavailable:
        print_text("The database did not answer, so the clock of this machine is used.", to_stderr=True)
        return None


for command in (create, edit, pause, resume, trigger, backfill, delete, sync):
    schedules.add_command(command)
