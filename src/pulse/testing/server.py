"""Which Postgres do the tests of a run use, and who starts and stops it?

The one in PULSE_TEST_DATABASE_URL, in a schema made for the run, or one of our own, started when the first test asks.
Test processes of one run (pytest-xdist) share it, with a database each. The one that started it ends it, and waits for
the others to be done: all of them hold a lock on `users.lock` for as long as they need it.
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
# Nothing here outlives the run, so it may be lost.
QUICK = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "300"}


@contextmanager
def open_database(run: str | None, process: str) -> Iterator[Settings]:
    """A database, or a schema in the one that was given, for one process of one run, with our tables in it."""
    name = f"pulse_test_{process}_{secrets.token_hex(3)}"
    if url := os.environ.get(URL):
        with _schema(Settings(database_url=url, schema=name)) as settings:
            yield settings
    else:
        with _server(run) as server:
            yield _database(server, name)


@contextmanager
def _schema(settings: Settings) -> Iterator[Settings]:
    from pulse.testing import database as scratch

    _run(scratch.make_schema(settings))
    try:
        yield settings
    finally:
        _run(scratch.drop_schema(settings))


def _database(server: EmbeddedPostgres, name: str) -> Settings:
    from pulse.testing import database as scratch

    async def make() -> Settings:
        settings = Settings(database_url=await scratch.make_database(server.dsn, name))
        await scratch.make_schema(settings)
        return settings

    return _run(make())


@contextmanager
def _server(run: str | None) -> Iterator[EmbeddedPostgres]:
    from pulse.store.embedded import server as embedded

    folder = Path(tempfile.gettempdir()) / f"pulse-test-{run or secrets.token_hex(8)}"
    lock = _join(folder)
    try:
        server = embedded.start(folder, postgres=Settings.from_env().postgres, settings=QUICK)
    except EmbeddedPostgresFailed as error:
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise EmbeddedPostgresFailed(_ours(str(error))) from None
    try:
        yield server
    finally:
        if server.owned:
            fcntl.flock(lock, fcntl.LOCK_EX)  # when the last of the others has gone
            server.close()
            shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _join(folder: Path) -> IO[str]:
    """Be one of those who use this folder."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "users.lock"
        lock = path.open("a")
        fcntl.flock(lock, fcntl.LOCK_SH)
        if path.exists() and path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
        lock.close()  # the folder was removed while we waited


def _run(work: Coroutine[Any, Any, T]) -> T:
    """On a thread: the one we are on may have an event loop, set or running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _ours(message: str) -> str:
    return message.replace("PULSE_DATABASE_URL", URL)
