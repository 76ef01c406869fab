"""How does an operator fire a schedule by hand, now or for a stretch of the past?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command, read_moment
from pulse.cli.output import say
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

    It is made beside the timetable, whatever pause and --overlap say, and does not count towards --max-occurrences.

    \b
    Examples:
      pulse schedules trigger report
      pulse jobs show $(pulse schedules trigger report)
    """
    fire = session.use(lambda engine: engine.schedules.trigger(name))
    session.answer(fire_as_json(fire), lambda: say(str(fire.job_id)))


@click.command(cls=Command, short_help="Make the jobs of the past that it did not make then.")
@click.argument("name")
@click.option("--from", "start", metavar="WHEN", required=True, callback=read_moment, help="A time, or an age (7d).")
@click.option("--to", "end", metavar="WHEN", required=True, callback=read_moment, help="Before this; now is 0s.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=100, show_default=True, help="Refuse if more.")
@click.option("--dry-run", is_flag=True, help="Make nothing; list what would be.")
@click.pass_obj
def backfill(session: Session, name: str, start: datetime, end: datetime, limit: int, dry_run: bool) -> None:
    """Make the jobs of a stretch of the past that the schedule NAME did not make then.

    An occurrence that has made its job makes no other, so a backfill can be repeated.

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

    schedule, done = session.use(work)
    session.answer(done, lambda: show_backfill(done, schedule))
