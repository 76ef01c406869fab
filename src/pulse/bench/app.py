"""Which tasks do the benchmarks run? Tasks that do nothing, or return when they began."""

from __future__ import annotations

import time
from typing import Any

from pulse.sdk.app import Pulse
from pulse.sdk.options import Retry

app = Pulse()

PAYLOAD: dict[str, Any] = {"order_id": 12345, "to": "someone@example.com"}


@app.task(name="bench.noop")
async def noop(order_id: int, to: str) -> bool:
    return True


@app.task(name="bench.sync_noop")
def sync_noop(order_id: int, to: str) -> bool:
    return True


@app.task(name="bench.stamp")
async def stamp() -> float:
    """Return when the handler began, by the clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@app.task(name="bench.stumble", retry=Retry(2, "fixed", "200ms", jitter=0))
async def stumble(failed_at: float) -> float:
    """Fail on the first attempt, and return when the second began."""
    from pulse.sdk.context import current

    context = current.get()
    if context is not None and context.attempt == 1:
        raise RuntimeError(str(time.time()))
    return time.time()
