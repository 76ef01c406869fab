"""Does everything that was acknowledged survive a database that dies in the middle, and does all go on afterwards?"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine, open_engine
from pulse.model.errors import Conflict, DatabaseUnreachable, Unavailable
from pulse.model.jobs import JobStatus, NewJob, ReportStatus, RetryPolicy
from pulse.settings import Settings
from pulse.store.connections.notifications import EVERYTHING
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import migrate
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one

if TYPE_CHECKING:
    from pulse.store.jobs.rows import ReadyTopic

QUICK = {"max_connections": "30", "shared_buffers": "32MB"}
# Short enough for the claims whose answer was lost in the outage to be taken away within the test.
LEASE = timedelta(milliseconds=1_500)


class Server:
    """A Postgres of this test's own, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = self._start()
        self.dsn = self._running.dsn

    def _start(self) -> embedded.EmbeddedPostgres:
        return embedded.start(self._folder, postgres=os.environ.get("PULSE_POSTGRES", "wheel"), settings=QUICK)

    def kill(self) -> None:
        """As an immediate shutdown or a crash: no session is told to finish anything."""
        os.kill(self._running.pid, signal.SIGQUIT)
        assert self._running.keeper
        self._running.keeper.join(10)

    def revive(self) -> None:
        self._running = self._start()

    def close(self) -> None:
        self._running.close()


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    server = Server(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def settings(server: Server) -> Settings:
    settings = Settings(
        database_url=server.dsn,
        lease=LEASE,
        heartbeat=LEASE / 3,
        watchdog=timedelta(milliseconds=100),
        tick=timedelta(milliseconds=50),
    )
    await migrate(settings)
    return settings


async def until(condition: Callable[[], Awaitable[object]], patience: float = 10) -> None:
    async with asyncio.timeout(patience):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.01)


class Traffic:
    """Submits, claims and reports in loops, and remembers what it was promised."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.acknowledged: set[UUID] = set()
        self.reported: set[UUID] = set()
        self.errors: list[Exception] = []
        self._stop = asyncio.Event()

    async def submit(self) -> None:
        retry = RetryPolicy(kind="fixed", base=0, jitter=0)
        while not self._stop.is_set():
            try:
                submitted = await self._engine.jobs.submit([a_new_job(retry=retry, max_attempts=20) for _ in range(3)])
                self.acknowledged |= {item.id for item in submitted}
            except Exception as error:  # which kinds there were is what the test asks
                self.errors.append(error)
            await asyncio.sleep(0.002)

    async def work(self) -> None:
        while not self._stop.is_set():
            try:
                claims = await self._engine.claims.claim("mail", worker="w1", slots=10)
                answers = await self._engine.claims.report([a_report(claim) for claim in claims]) if claims else []
                for claim, answer in zip(claims, answers, strict=True):
                    if answer in (ReportStatus.ACCEPTED, ReportStatus.ALREADY):
                        self.reported.add(claim.id)
            except Exception as error:
                self.errors.append(error)
            await asyncio.sleep(0.002)

    async def grows_by(self, more: int) -> None:
        wanted = (len(self.acknowledged) + more, len(self.reported) + more)

        async def has_grown() -> bool:
            return len(self.acknowledged) >= wanted[0] and len(self.reported) >= wanted[1]

        await until(has_grown)

    def stop(self) -> None:
        self._stop.set()


async def test_nothing_acknowledged_is_lost_when_the_database_dies_and_comes_back(
    server: Server, settings: Settings
) -> None:
    async with open_engine(settings) as engine:
        engine.start()
        woken: list[ReadyTopic] = []
        engine.notifications.on_ready(woken.append)
        traffic = Traffic(engine)
        loops = [asyncio.create_task(run()) for run in (traffic.submit, traffic.submit, traffic.work, traffic.work)]

        await traffic.grows_by(100)
        woken.clear()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.revive)
        await traffic.grows_by(100)
        traffic.stop()
        await asyncio.gather(*loops)

        # Whatever was claimed and never answered is taken away from nobody's hands, and done again.
        async def are_all_done() -> bool:
            claims = await engine.claims.claim("mail", worker="w1", slots=100)
            if claims:
                await engine.claims.report([a_report(claim) for claim in claims])
            [counts] = await engine.jobs.counts()
            return set(counts.counts) == {JobStatus.COMPLETED}

        await until(are_all_done)

        assert all(isinstance(error, Unavailable) for error in traffic.errors), traffic.errors
        promised = [await engine.jobs.get(job_id) for job_id in traffic.acknowledged | traffic.reported]
        assert {job.status for job in promised} == {JobStatus.COMPLETED}

        # The duties go on, and so do wake-ups.
        await until(lambda: _is_listening(engine))
        assert EVERYTHING in woken, "the listener is back, and said that it may have missed something"
        delayed = await submit_one(engine, topic="later", delay=timedelta(milliseconds=100))
        await until(lambda: _is(engine, delayed, JobStatus.PENDING))
        outside = await asyncpg.connect(server.dsn)
        await outside.execute("select pulse.enqueue('news')")
        outside.terminate()
        await until(lambda: _has_heard(woken, "news"))


async def _is(engine: Engine, job_id: UUID, status: JobStatus) -> bool:
    return (await engine.jobs.get(job_id)).status is status


async def _is_listening(engine: Engine) -> bool:
    return engine.notifications.is_listening


async def _has_heard(woken: list[ReadyTopic], topic: str) -> bool:
    return any(item.topic == topic for item in woken)


async def test_an_outage_longer_than_patience_is_named_and_not_for_ever(server: Server, settings: Settings) -> None:
    impatient = Settings(database_url=settings.database_url, patience=timedelta(seconds=2))
    async with open_engine(impatient) as engine:
        await submit_one(engine)
        await asyncio.to_thread(server.kill)

        with pytest.raises(DatabaseUnreachable, match="cannot reach the database"):
            await submit_one(engine)
        with pytest.raises(DatabaseUnreachable):
            async with open_engine(impatient):
                pass

        await asyncio.to_thread(server.revive)
        await submit_one(engine)
        assert len(await engine.claims.claim("mail", worker="w1", slots=10)) == 2


async def test_an_outage_does_not_take_leases_away_from_those_who_are_well(server: Server, settings: Settings) -> None:
    """The lease ends while the database is away; the worker renews it when that is back, before anybody judges."""
    async with open_engine(settings) as engine:
        job_id = await submit_one(engine)
        claim = await claim_one(engine)

        async def beat() -> ReportStatus:
            [answer] = await engine.claims.heartbeat([lease_of(claim)])
            return answer

        for _ in range(int(LEASE / settings.watchdog) + 1):  # the watchdog's steps, taken by hand
            await engine.duties.watch()
            assert await beat() is ReportStatus.ACCEPTED
            await asyncio.sleep(settings.watchdog.total_seconds())
        assert await engine.duties.watch() == settings.watchdog
        await asyncio.to_thread(server.kill)
        step = asyncio.create_task(engine.duties.watch())  # tried again and again, until it gets through
        await asyncio.sleep(LEASE.total_seconds() + 0.1)
        await asyncio.to_thread(server.revive)

        await step
        await engine.duties.watch()

        assert await beat() is ReportStatus.ACCEPTED
        assert (await engine.jobs.get(job_id)).attempt == 1


# --- commits that hang


async def _until_it_hangs(
    admin: asyncpg.Connection[Any], commit: Callable[[], Coroutine[Any, Any, str]]
) -> asyncio.Task[str]:
    """Commit until a commit waits for the standby: the checkpointer, which lets them wait, may learn of the setting
    later than sessions do."""
    async with asyncio.timeout(30):
        while True:
            hanging = asyncio.create_task(commit())
            while not hanging.done():
                if await admin.fetchval("select exists (select from pg_stat_activity where wait_event = 'SyncRep')"):
                    return hanging
                await asyncio.sleep(0.01)
            await hanging


@asynccontextmanager
async def a_hanging_commit(server: Server) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A commit with a notification that waits for a standby which is not there: those after it stand in line."""
    admin, other = await asyncpg.connect(server.dsn), await asyncpg.connect(server.dsn)
    await admin.execute("create table if not exists public.slow (id int)")
    await admin.execute("alter system set synchronous_standby_names = 'nobody'")
    await admin.execute("select pg_reload_conf()")
    while await other.fetchval("show synchronous_standby_names") != "nobody":
        await asyncio.sleep(0.01)
    hanging = await _until_it_hangs(
        admin, lambda: other.execute("begin; insert into slow values (1); notify slow; commit")
    )
    await admin.execute("set synchronous_commit = local")
    try:
        yield admin
    finally:
        await admin.execute("alter system reset synchronous_standby_names")
        await admin.execute("select pg_reload_conf()")
        await hanging
        for conn in (admin, other):
            await conn.close()


IN_LINE = """
select exists (
    select from pg_locks join pg_stat_activity using (pid)
    where locktype = 'object' and not granted and now() - xact_start > interval '1.2 seconds'
)
"""


@pytest.mark.parametrize(
    "jobs",
    [[a_new_job(), a_new_job()], [a_new_job(unique_key="k")], [a_new_job(id=UUID(int=0x7000 << 64))]],
    ids=["several", "a key", "an id"],
)
async def test_a_submit_behind_slow_commits_waits_and_is_not_said_to_conflict(
    server: Server, settings: Settings, jobs: list[NewJob]
) -> None:
    """For longer than it would wait for whoever submits the same key, which nobody does."""
    async with open_engine(settings) as engine:
        async with a_hanging_commit(server) as admin:
            submitting = asyncio.create_task(engine.jobs.submit(jobs))
            while not submitting.done() and not await admin.fetchval(IN_LINE):
                await asyncio.sleep(0.02)

        assert [each.created for each in await submitting] == [True] * len(jobs)


@asynccontextmanager
async def a_transaction(server: Server) -> AsyncIterator[asyncpg.Connection[Any]]:
    conn = await asyncpg.connect(server.dsn)
    try:
        await conn.execute("begin")
        yield conn
    finally:
        conn.terminate()


async def test_a_table_that_somebody_locks_is_not_said_to_be_a_conflict(server: Server, settings: Settings) -> None:
    """Where the database has a lock_timeout, as many have."""
    admin = await asyncpg.connect(server.dsn)
    await admin.execute("alter role current_user set lock_timeout = '50ms'")
    await admin.close()
    async with (
        open_engine(replace(settings, patience=timedelta(seconds=1))) as engine,
        a_transaction(server) as other,
    ):
        await other.execute("lock table pulse.jobs in access exclusive mode")

        with pytest.raises(Unavailable, match="another session holds a table of Pulse"):
            await engine.jobs.submit([a_new_job(), a_new_job()])


async def test_a_key_that_somebody_is_submitting_is_a_conflict(server: Server, settings: Settings) -> None:
    async with open_engine(settings) as engine, a_transaction(server) as other:
        await other.fetchval("""select pulse.enqueue('mail', '{}', '{"unique_key": "k"}')""")

        with pytest.raises(Conflict, match="another transaction is submitting the same id or unique key"):
            await engine.jobs.submit([a_new_job(unique_key="k")])
