"""Does a lock that somebody holds on one table hold up what does not need it?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import Conflict
from pulse.model.jobs import JobStatus, ReportStatus
from pulse.server import Server, open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from pulse.store.duties.peeks import peek_duties
from tests.conftest import open_connection
from tests.factories import claim_one, lease_of, submit_one

LIMIT = 10.0  # seconds; with nobody's lock in the way all of it takes a moment


@asynccontextmanager
async def locked(settings: Settings, table: str) -> AsyncIterator[None]:
    async with open_connection(settings) as holder, holder.transaction():
        await holder.execute(f"lock table pulse.{table} in access exclusive mode")
        yield


@pytest.fixture(params=[False, True], ids=["direct", "pgbouncer"])
async def server(request: pytest.FixtureRequest, settings: Settings) -> AsyncIterator[Server]:
    """With the smallest pool there is, and patience for longer than a test takes."""
    small = replace(
        settings,
        listen="127.0.0.1:0",
        pool_size=1,
        pgbouncer=request.param,  # settings are then made in each transaction, not with the connection
        patience=timedelta(minutes=1),
    )
    async with open_server(small) as server:
        yield server


@pytest.mark.parametrize("table", ["schedules", "alarms", "deliveries"])
async def test_heartbeats_and_delayed_jobs_need_no_other_table(server: Server, settings: Settings, table: str) -> None:
    engine = server._engine
    await submit_one(engine)
    claim = await claim_one(engine)

    async with locked(settings, table), asyncio.timeout(LIMIT):
        later = [await submit_one(engine, topic="later", delay=timedelta(milliseconds=ms)) for ms in (50, 700)]
        for job_id in later:
            while (await engine.jobs.get(job_id)).status is not JobStatus.PENDING:
                assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
                await asyncio.sleep(0.02)


async def test_a_heartbeat_does_not_wait_for_a_duty(engine: Engine, settings: Settings) -> None:
    """Each has a lane of its own: a duty that takes long keeps no lease from being renewed."""
    await submit_one(engine)
    claim = await claim_one(engine)
    is_busy, may_end = asyncio.Event(), asyncio.Event()

    async def take_long(_: Connection) -> None:
        is_busy.set()
        await may_end.wait()

    duty = asyncio.create_task(engine._database.run_duty(take_long))
    await is_busy.wait()
    async with asyncio.timeout(LIMIT):
        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
    may_end.set()
    await duty


async def test_a_duty_that_meets_a_lock_gives_up_soon_and_says_why(
    engine: Engine, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with locked(settings, "schedules"):
        async with asyncio.timeout(LIMIT):
            with pytest.raises(Conflict, match="somebody held a lock for longer than 500ms"):
                await engine._database.run_duty(lambda conn: peek_duties(conn, buckets=[0]))
            await engine.duties.promote()
        assert "jobs are promoted apart from schedules and alarms for 10 s" in caplog.text
        assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_ordinary_work_waits_as_long_as_it_has_patience(database: Database, settings: Settings) -> None:
    async with locked(settings, "pauses"):
        waiting = asyncio.create_task(database.run(lambda conn: conn.fetch("select from pulse.pauses")))
        await asyncio.sleep(0.7)
        assert not waiting.done()
    await waiting
