"""How does an operator see which workers are connected?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command
from pulse.cli.output import Column, age, say, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.cli.session import Session
    from pulse.model.workers import WorkerSeen


@click.command(cls=Command, short_help="Show the workers that are connected.")
@click.pass_obj
def workers(session: Session, /) -> None:
    """Show the workers that are connected, as they were a few seconds ago.

    Those without a server go straight to the database. What a worker holds is kept by leases, whether or not it is
    shown here.

    \b
    Examples:
      pulse workers
      pulse workers --json
    """
    found = session.use(lambda engine: engine.workers.list())
    session.answer({"workers": found}, lambda: _show(found))


def _show(found: Sequence[WorkerSeen]) -> None:
    if not found:
        say("No worker is connected.")
        return
    columns = [
        Column("WORKER", rank=1, least=16),
        Column("TOPICS", rank=2, least=12),
        Column("BUSY", is_number=True),
        Column("SLOTS", is_number=True),
        Column("VERSION"),
        Column("SERVER", rank=3, least=10),
        Column("CONNECTED"),
        Column("SEEN"),
    ]
    show_table(
        columns,
        [
            [
                worker.name,
                ", ".join(worker.topics),
                f"{worker.busy:,}",
                f"{worker.slots:,}",
                worker.version,
                worker.server or "-",
                age(worker.connected_at),
                age(worker.seen_at),
            ]
            for worker in found
        ],
    )
