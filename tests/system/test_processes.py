"""Eight real processes on one topic: every job is claimed once, and nobody's transaction is undone."""

from __future__ import annotations

import asyncpg
import pytest
from benchmarks import processes

from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.conftest import recreate_database


@pytest.mark.slow
async def test_eight_processes_claim_disjoint_jobs(worker_id: str) -> None:
    settings = Settings(database_url=await recreate_database(f"eight_{worker_id}"), notify=False)
    await migrate(settings)
    admin = await asyncpg.connect(settings.database_url)

    run = await processes.drain(admin, settings, jobs=8_000, processes=8)

    await admin.close()
    assert (run.completed, run.rollbacks) == (8_000, 0)
