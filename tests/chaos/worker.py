"""How is one of the workers started? `python -m tests.chaos.worker`: it notes each answer that it was given."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from pulse.cli.session import new_loop
from pulse.engine.engine import open_engine
from pulse.links.direct import DirectLink
from pulse.model.jobs import Answer, Lease, Report
from pulse.sdk.worker import Worker
from pulse.settings import Settings
from tests.chaos import notes
from tests.chaos.app import app


class NotingLink(DirectLink):
    """What is noted was answered; what was answered may not have been noted, if we died in between."""

    async def report(self, reports: Sequence[Report]) -> list[Answer]:
        answers = await super().report(reports)
        notes.take_many(
            ("report", report.id, report.lease_id, f"{report.outcome}:{answer}")
            for report, answer in zip(reports, answers, strict=True)
        )
        return answers

    async def release(self, leases: Sequence[Lease]) -> list[Answer]:
        answers = await super().release(leases)
        notes.take_many(
            ("release", lease.id, lease.lease_id, answer) for lease, answer in zip(leases, answers, strict=True)
        )
        return answers


@asynccontextmanager
async def open_noting(settings: Settings) -> AsyncIterator[NotingLink]:
    async with open_engine(settings) as engine:
        yield NotingLink(engine)


async def main() -> None:
    worker = Worker(app, open_link=open_noting)
    orders = iter([worker.stop])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: next(orders, worker.stop_now)())
    await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.Runner(loop_factory=new_loop).run(main())
