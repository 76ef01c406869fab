"""How does a run wait for what processes do? It asks again and again, and says what it found if it waits in vain."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(
    condition: Callable[[], Awaitable[object]], patience: float, otherwise: str | Callable[[], str]
) -> None:
    give_up_at = time.monotonic() + patience
    while not await condition():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"{otherwise if isinstance(otherwise, str) else otherwise()} after {patience:g} s")
        await asyncio.sleep(0.03)
