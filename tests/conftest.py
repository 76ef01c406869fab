"""One Postgres for the whole run, one database for each test process, clean tables for each test."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import asyncpg
import psycopg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs.low_water_marks import LowWaterMarks
from pulse.engine.jobs.use_cases import Jobs
from pulse.event_loop import tune_garbage_collector
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database, connect_options
from pulse.store.embedded import server as embedded
from pulse.store.schema import migrate as migrations
from pulse.store.schema.migrate import migrate
from pulse.store.statements import load_statements
from tests.clock import FrozenClock

SERVER = "PULSE_TEST_SERVER"  # set by the first process of a run for the others
TABLES = (
    "jobs",
    "attempts",
    "pauses",
    "tallies",
    "counts",
    "series",
    "sessions",
    "workers",
    "tokens",
    "schedules",
    "fires",
    "deploys",
    "alarms",
    "deliveries",
    "watch",
    "wake_generations",
)


def pytest_configure(config: pytest.Config) -> None:
    """Start the server before test processes are forked off, so that they share it."""
    if SERVER in os.environ:
        return
    state_dir = Path(tempfile.mkdtemp(prefix="pulse-test-", dir="/tmp"))
    # A test server may lose data: nothing here outlives the run.
    quick = {"fsync": "off", "full_page_writes": "off", "max_connections": "200", "max_wal_size": "2GB"}
    server = embedded.start(state_dir, postgres=os.environ.get("PULSE_POSTGRES", "wheel"), settings=quick)
    os.environ[SERVER] = server.dsn

    def stop() -> None:
        server.close()
        shutil.rmtree(state_dir, ignore_errors=True)
        os.environ.pop(SERVER, None)

    config.add_cleanup(stop)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that in the end no process works alone."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests to nobody's collector: they live as long as this process does."""
    tune_garbage_collector()


def pytest_report_header() -> str:
    return f"server: {os.environ.get('PULSE_POSTGRES', 'wheel')}, buckets: {os.environ.get('PULSE_BUCKETS', '1')}"


def database_url(name: str) -> str:
    server = os.environ[SERVER]
    return server.replace("/pulse?", f"/{name}?")


async def recreate_database(name: str) -> str:
    conn = await asyncpg.connect(os.environ[SERVER])
    await conn.execute(f"drop database if exists {name} with (force)")
    await conn.execute(f"create database {name}")
    await conn.close()
    return database_url(name)


async def migrate_up_to(version: int, settings: Settings) -> None:
    """The schema as an older release left it."""
    conn = await asyncpg.connect(settings.database_url)
    for sql in migrations._foundation(settings):
        await conn.execute(sql)
    for migration in migrations.load_migrations()[:version]:
        for sql in migrations._steps(migration, settings):
            await conn.execute(sql)
    await conn.close()


@pytest.fixture(scope="session")
def migrated(worker_id: str) -> Iterator[Settings]:
    """The settings of this process's database, with the schema in place."""

    async def prepare() -> Settings:
        url = await recreate_database(f"test_{worker_id}")
        buckets = int(os.environ.get("PULSE_BUCKETS", "1"))
        # On any free port: a server of somebody else may have the usual one. Those who test HTTP turn it on.
        settings = Settings(database_url=url, buckets=buckets, listen="127.0.0.1:0", http_listen="")
        await migrate(settings)
        return settings

    yield asyncio.run(prepare())


class Upkeep:
    """The connection by which the fixtures of one process change its database between two tests.

    It stays open and belongs to no event loop: a new one costs Postgres more than most tests do.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: psycopg.Connection | None = None

    async def execute(self, sql: str) -> None:
        try:
            self._open().execute(sql)
        except psycopg.OperationalError:  # a test may have ended every connection there was
            self.close()
            self._open().execute(sql)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._conn = None

    def _open(self) -> psycopg.Connection:
        if self._conn is None:
            self._conn = psycopg.connect(self._url, autocommit=True, options="-c lock_timeout=20s")
        return self._conn


@pytest.fixture(scope="session")
def upkeep(migrated: Settings) -> Iterator[Upkeep]:
    assert migrated.database_url
    upkeep = Upkeep(migrated.database_url)
    yield upkeep
    upkeep.close()


@pytest.fixture
async def settings(migrated: Settings, upkeep: Upkeep) -> Settings:
    """Settings for a test of its own: empty tables, and patience too short to hide a lost connection."""
    await upkeep.execute("; ".join(f"delete from pulse.{table}" for table in TABLES))  # one way there and back
    return migrated


@pytest.fixture
async def database(settings: Settings) -> AsyncIterator[Database]:
    async with await Database.connect(settings) as database:
        yield database


@pytest.fixture
def engine(database: Database, settings: Settings) -> Engine:
    """An engine whose duties are not running: a test takes each step itself.

    Its claims always look from the start: with time standing still, all that is ready became so at one instant.
    """
    engine = Engine(database, buckets=settings.buckets)
    engine.claims._marks = LowWaterMarks(clock=count(step=10).__next__)
    return engine


@pytest.fixture
def jobs(engine: Engine) -> Jobs:
    return engine.jobs


@pytest.fixture
async def clock(settings: Settings, upkeep: Upkeep) -> AsyncIterator[FrozenClock]:
    """Database time, standing still for every connection until the test moves it."""
    clock = FrozenClock(upkeep)
    await clock.freeze()
    yield clock
    await clock.unfreeze()


@pytest.fixture
async def conn(settings: Settings) -> AsyncIterator[Connection]:
    async with open_connection(settings) as conn:
        yield conn


def open_connection(settings: Settings) -> _Opened:
    return _Opened(settings)


class _Opened:
    """A connection as the engine has them, with pinned plans, for tests that need several at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __aenter__(self) -> Connection:
        self._raw = await asyncpg.connect(**connect_options(self._settings))
        return Connection(self._raw, load_statements(self._settings.schema), is_pooled=False)

    async def __aexit__(self, *_: object) -> None:
        self._raw.terminate()


@pytest.fixture
def impatient(settings: Settings) -> Settings:
    from datetime import timedelta

    return replace(settings, patience=timedelta(seconds=1))
