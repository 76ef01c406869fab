"""How does an operator list the connected workers?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command
from pulse.cli.output import Column, age, print_text, show_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.cli.session import Session
    from pulse.model.workers import WorkerSeen


@click.command(cls=Command, short_help="List the connected workers.")
@click.pass_obj
def workers(session: Session, /) -> None:
    """List the connected workers, as they were a few seconds ago.

    Workers without a server use the database directly. The jobs of a worker are protected by leases, even if the
    worker is not listed here.

    \b
    Examples:
      pulse workers
      pulse workers --json
    """
    found = session.run_with_engine(lambda engine: engine.workers.list())
    session.answer({"workers": found}, lambda: _show(found))


def _show(found: Sequence[WorkerSeen]) -> None:
    if not found:
        print_text("No worker is connected.")
        return
    columns = [
        Column("WORKER", rank=1, min_width=16),
        Column("TOPICS", rank=2, min_width=12),
        Column("BUSY", is_number=True),
        Column("SLOTS", is_number=True),
        Column("VERSION"),
        Column("SERVER", rank=3, min_width=10),
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
