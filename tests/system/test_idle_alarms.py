"""What do alarms cost while none is due?"""

from __future__ import annotations

import asyncio
import os

import asyncpg
import pytest

from pulse.engine.engine import open_engine
from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.store.test_alarm_plans import FILL
from tests.system.test_idle_worker import SETTLING, calm_url, commits_a_second

__all__ = ["calm_url"]  # a fixture

ALARMS = int(os.environ.get("PULSE_IDLE_ALARMS", "100000"))


@pytest.mark.slow
@pytest.mark.long
async def test_a_process_that_wakes_asks_once_a_second_at_most_however_many_alarms_there_are(calm_url: str) -> None:
    settings = Settings(database_url=calm_url)
    await migrate(settings)
    conn = await asyncpg.connect(calm_url)
    await conn.execute(FILL, "future", ALARMS, 1_000, 100, timeout=600)
    await conn.execute("update pulse.alarms set next_fire_at = next_fire_at + interval '1 hour'", timeout=600)
    await conn.execute("vacuum analyze pulse.alarms", timeout=600)
    await conn.close()  # a connection tells what it did when it ends, or late
    conn = await asyncpg.connect(calm_url)

    async with open_engine(settings) as engine:
        engine.start()
        await asyncio.sleep(SETTLING)
        rate = await commits_a_second(conn)
    await conn.close()

    print(f"{rate:.2f} transactions/s with {ALARMS} alarms")  # noqa: T201
    assert rate <= 1
