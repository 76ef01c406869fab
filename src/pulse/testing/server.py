"""Which Postgres do the tests of a run use, and which process starts and stops it?

Tests use the database in PULSE_TEST_DATABASE_URL, with a schema of their own, or else a Postgres that is started when
the first test needs it. The test processes of one run (pytest-xdist) share it, with a database each. The process that
started it stops it once the others are done: each holds a lock on `users.lock` for as long as it needs Postgres.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from pulse.model.errors import EmbeddedPostgresFailed
from pulse.settings import Settings

if TYPE_CHECKING:
    from pulse.store.embedded.server import EmbeddedPostgres

T = TypeVar("T")
URL = "PULSE_TEST_DATABASE_URL"
# No data of a test run is worth keeping after a crash, so speed comes before durability.
FAST_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300"}


@contextmanager
def open_database(run: str | None, process: str) -> Iterator[Settings]:
    """Create a database, or a schema in the given one, with the tables of Pulse, for one process of a test run."""
    name = f"pulse_test_{process}_{secrets.token_hex(3)}"
    if url := os.environ.get(URL):
        with _schema(Settings(database_url=url, schema=name)) as settings:
            yield settings
    else:
        with _server(run) as server:
            yield _make_database(server, name)


@contextmanager
def _schema(settings: Settings) -> Iterator[Settings]:
    from pulse.testing import database as test_database

    _run(test_database.make_schema(settings))
    try:
        yield settings
    finally:
        _run(test_database.drop_schema(settings))


def _make_database(server: EmbeddedPostgres, name: str) -> Settings:
    from pulse.testing import database as test_database

    async def make() -> Settings:
        settings = Settings(database_url=await test_database.make_database(server.dsn, name))
        await test_database.make_schema(settings)
        return settings

    return _run(make())


@contextmanager
def _server(run: str | None) -> Iterator[EmbeddedPostgres]:
    from pulse.store.embedded import server as embedded

    folder = Path(tempfile.gettempdir()) / f"pulse-test-{run or secrets.token_hex(8)}"
    lock = _join(folder)
    try:
        server = embedded.start(folder, postgres=Settings.from_env().postgres, settings=FAST_SETTINGS)
    except EmbeddedPostgresFailed as error:
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise EmbeddedPostgresFailed(_name_test_setting(str(error))) from None
    try:
        yield server
    finally:
        if server.owned:
            fcntl.flock(lock, fcntl.LOCK_EX)  # waits until the other processes are done
            server.close()
            shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _join(folder: Path) -> IO[str]:
    """Take a shared lock on the folder, as one of the processes that use it."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "users.lock"
        lock = path.open("a")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
        lock.close()  # the folder was removed meanwhile


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new thread: the current one may already have an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _name_test_setting(message: str) -> str:
    """Name the setting for tests in a message that advises to set PULSE_DATABASE_URL."""
    return message.replace("PULSE_DATABASE_URL", URL)
