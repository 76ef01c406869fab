"""How is one of the workers started? `python -m tests.chaos.worker`: it notes each answer that it was given."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pulse.event_loop import run
from pulse.links.opening import open_link
from pulse.model.jobs import Lease, Report, ReportStatus
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from tests.chaos import notes
from tests.chaos.app import app


def note_answers(link: Any) -> None:
    """What is noted was answered; what was answered may not have been noted, if we died in between."""
    report, release = link.report, link.release

    async def noted_report(reports: Sequence[Report]) -> list[ReportStatus]:
        answers: list[ReportStatus] = await report(reports)
        notes.take_many(
            ("report", report.id, report.lease_id, f"{report.outcome}:{answer}")
            for report, answer in zip(reports, answers, strict=True)
        )
        return answers

    async def noted_release(leases: Sequence[Lease]) -> list[ReportStatus]:
        answers: list[ReportStatus] = await release(leases)
        notes.take_many(
            ("release", lease.id, lease.lease_id, answer) for lease, answer in zip(leases, answers, strict=True)
        )
        return answers

    link.report, link.release = noted_report, noted_release


@asynccontextmanager
async def open_noting(settings: Settings) -> AsyncIterator[Any]:
    """Straight to the database, or through the servers of the run."""
    async with open_link(settings) as link:
        note_answers(link)
        yield link


async def main() -> None:
    worker = Worker(app, open_link=open_noting)
    orders = iter([worker.stop])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: next(orders, worker.stop_now)())
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run(main())
