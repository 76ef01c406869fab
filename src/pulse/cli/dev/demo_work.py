"""How are the jobs of the demo run? By an ordinary worker in this process, until no job is left."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pulse.cli.dev.demo_shop import app
from pulse.model.errors import PulseError
from pulse.model.jobs import FINISHED
from pulse.sdk.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulse.engine.engine import Engine
    from pulse.model.jobs import TopicCount

    Show = Callable[[list[TopicCount]], None]

CHECK_EVERY = 0.1  # seconds between two reads of the counts
PATIENCE = 120.0  # seconds; far more than a slow machine needs


async def drain(engine: Engine, show: Show) -> float:
    """Run the shop's worker until every job is finished, and return the seconds that it took."""
    started = time.perf_counter()
    worker = Worker(app)
    working = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(PATIENCE):
            while not (await _is_over(engine, show) or working.done()):  # noqa: ASYNC110  the counts are no event
                await asyncio.sleep(CHECK_EVERY)
        return time.perf_counter() - started
    except TimeoutError:
        raise PulseError(f"the demo must finish within {PATIENCE:.0f} s, but it did not") from None
    finally:
        worker.stop()
        await working


async def _is_over(engine: Engine, show: Show) -> bool:
    counts = await engine.jobs.counts()
    show(counts)
    return all(status in FINISHED for count in counts for status in count.counts)
