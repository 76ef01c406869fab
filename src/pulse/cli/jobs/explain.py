"""How does an operator find out why a job is not running?"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import click

from pulse.cli.jobs.views import STYLES
from pulse.cli.options import Command, JobId
from pulse.cli.output import Cell, Styled, show_fields, time_and_age

if TYPE_CHECKING:
    from pulse.cli.session import Session
    from pulse.model.explain.facts import Explanation


@click.command(cls=Command)
@click.argument("job_id", metavar="ID", type=JobId())
@click.pass_obj
def explain(session: Session, /, job_id: UUID) -> None:
    """Explain why a job is not running, and when it should.

    It may wait for its time or its next attempt, its topic may be paused, there may be no worker for it, other jobs
    may be before it, a transaction may lock it, or it may be finished.

    \b
    Examples:
      pulse explain 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000
      pulse explain 01998e5c-7a40-7bd2-a3ea-0f2ce83f7000 --json
    """
    found = session.run_with_engine(lambda engine: engine.explain(job_id))
    session.answer(found, lambda: _show(found))


def _show(found: Explanation) -> None:
    fields: list[tuple[str, Cell]] = [
        ("job", str(found.job_id)),
        ("topic", found.topic),
        ("status", Styled(found.status, STYLES[found.status])),
        ("reason", Styled(found.reason.lower().replace("_", " "), "bold")),
        ("why", found.text),
    ]
    if found.expected_at is not None:
        fields.append(("expected", time_and_age(found.expected_at)))
    show_fields(fields)
