"""How does an operator make jobs of a schedule by hand, now or for the past?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command, read_moment
from pulse.cli.output import print_text
from pulse.cli.schedules.views import fire_as_json, show_backfill

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.cli.session import Session
    from pulse.engine.engine import Engine
    from pulse.model.schedules import Backfill, Schedule


@click.command(cls=Command)
@click.argument("name")
@click.pass_obj
def trigger(session: Session, name: str) -> None:
    """Make a job of the schedule NAME now, and print its id.

    It is made outside the timetable, even if the schedule is paused or its last job still runs, and does not count
    towards --max-occurrences.

    \b
    Examples:
      pulse schedules trigger report
      pulse jobs show $(pulse schedules trigger report)
    """
    fire = session.run_with_engine(lambda engine: engine.schedules.trigger(name))
    session.answer(fire_as_json(fire), lambda: print_text(str(fire.job_id)))


@click.command(cls=Command, short_help="Make the jobs of past occurrences that have none.")
@click.argument("name")
@click.option(
    "--from", "start", metavar="WHEN", required=True, callback=read_moment, help="From a time or an age (7d) on."
)
@click.option(
    "--to", "end", metavar="WHEN", required=True, callback=read_moment, help="Before a time or an age; 0s is now."
)
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Refuse to make more.")
@click.option("--dry-run", is_flag=True, help="Make no jobs, and list those that would be made.")
@click.pass_obj
def backfill(session: Session, name: str, start: datetime, end: datetime, limit: int, dry_run: bool) -> None:
    """Make the jobs of past occurrences of the schedule NAME for which none was made.

    An occurrence that has made its job makes no other one, so a backfill can be repeated.

    \b
    Examples:
      pulse schedules backfill report --from 7d --to 0s --dry-run
      pulse schedules backfill report --from 2026-07-01 --to 2026-07-08
    """

    async def work(engine: Engine) -> tuple[Schedule, Backfill]:
        schedule = await engine.schedules.get(name)
        return schedule, await engine.schedules.backfill(
            schedule.id, start=start, end=end, limit=limit, dry_run=dry_run
        )

    schedule, done = session.run_with_engine(work)
    session.answer(done, lambda: show_backfill(done, schedule))
