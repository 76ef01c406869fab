import asyncio, pytest
from pulse.store import wakeups
from pulse.engine.engine import Engine
from pulse.store.pool import Database
from tests.conftest import *  # noqa


async def test_stop_always_ends(settings, monkeypatch):
    monkeypatch.setattr(wakeups, "PROBE_EVERY", 0.0005)
    monkeypatch.setattr(wakeups, "PROBE_PATIENCE", 0.5)
    hung = 0
    async with await Database.connect(settings) as database:
        for i in range(300):
            engine = Engine(database, buckets=settings.buckets)
            engine.wakeups.start()
            await asyncio.sleep(0.02 + i * 0.00005)
            stop = asyncio.create_task(engine.wakeups.stop())
            done, _ = await asyncio.wait([stop], timeout=1)
            if not done:
                hung += 1
                for t in engine.wakeups._tasks:
                    t.cancel()
                await asyncio.wait([stop], timeout=1)
    assert hung == 0
