"""How does a process deliver alarms and die in the middle? `python -m tests.system.wake_and_die`.

It reads lines as fire_and_die does. Beside statements, `post` is a place: before it, when it was sent and nothing was
answered, when the answer is there and was not read, and after it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pulse.delivery.webhook import Deliverer
from pulse.engine.engine import Engine
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.system.fire_and_die import ANSWERED, _end, serve
from tests.system.fire_and_die import plant as plant_in_driver

NETWORKS = "127.0.0.0/8"


def plant(when: str, what: str, how: str) -> None:
    if what != "post":
        plant_in_driver(when, what, how)
        return
    post = Deliverer._post

    async def wrapped(self: Any, *given: Any) -> Any:
        if when == "before":
            _end(None, how)
        if when in ("sent", "answered"):  # whether there is an answer is for the endpoint to say
            posting = asyncio.ensure_future(post(self, *given))
            await asyncio.sleep(ANSWERED)
            time.sleep(ANSWERED)  # noqa: ASYNC251
            _end(posting, how)
        response = await post(self, *given)
        _end(None, how)
        return response

    setattr(Deliverer, "_post", wrapped)  # noqa: B010  a method


async def wake(url: str) -> None:
    """All that is due, and no more."""
    settings = Settings(database_url=url, alarm_networks=NETWORKS)
    async with await Database.connect(settings) as database:
        wakes = Engine(database, buckets=1).duties.deliveries
        while not await wakes.step():
            pass
        while wakes._in_flight:
            await asyncio.wait(list(wakes._in_flight))
        await wakes.stop(0)


if __name__ == "__main__":
    serve(wake, plant)
