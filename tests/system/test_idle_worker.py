"""What does a worker cost that has nothing to do?"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from pulse.settings import Settings
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import migrate
from tests.waiting import connected

PROGRAM = """
import asyncio, signal
from pulse import Pulse
from pulse.event_loop import run
from pulse.sdk.worker.worker import Worker

app = Pulse()
for number in range(50):
    app.task(name=f"topic{number}")(lambda: None)

async def main():
    worker = Worker(app)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()

run(main())
"""
MINE = "from pg_stat_activity where datname = current_database() and application_name = 'pulse'"
MEASURED = 60  # seconds
SETTLING = 70  # seconds: by then each duty was done once, and its statements are prepared, which is a commit, too
COMMITS = "select sum(xact_commit) from pg_stat_database where datname = current_database()"


@pytest.fixture
def calm_url() -> Iterator[str]:
    """A server of its own without autovacuum, whose transactions would be counted too."""
    state_dir = Path(tempfile.mkdtemp(prefix="pulse-idle-", dir="/tmp"))
    postgres = os.environ.get("PULSE_POSTGRES", "wheel")
    with embedded.start(state_dir, postgres=postgres, settings={"autovacuum": "off", "fsync": "off"}) as server:
        yield server.dsn
    shutil.rmtree(state_dir)


@pytest.mark.slow
@pytest.mark.long
async def test_an_idle_worker_costs_next_to_nothing(calm_url: str) -> None:
    """Fifty topics: three connections, four transactions a second, eighty megabytes at most."""
    await migrate(Settings(database_url=calm_url))
    env = os.environ | {"PULSE_DATABASE_URL": calm_url}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, env=env)
    try:
        async with connected(calm_url) as conn:
            while await conn.fetchval(f"select count(*) {MINE}") < 2:
                await asyncio.sleep(0.1)
            await asyncio.sleep(SETTLING)  # there is no event for nothing happening
            rate = await commits_a_second(conn)
            connections = await conn.fetchval(f"select count(*) {MINE}")
        memory = resident_megabytes(process.pid)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0

    found = f"{connections} connections, {rate:.1f} transactions/s, {memory:.0f} MB"
    assert (connections <= 3, rate <= 4, memory <= 80) == (True, True, True), found


@pytest.mark.slow
def test_importing_pulse_does_not_load_the_driver() -> None:
    """150 ms is the promise. What would break it is a heavy import, so that is what is looked for."""
    program = "from pulse import Pulse; import sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "pulse.sdk.app" in loaded
    assert not {"asyncpg", "uvloop", "rich", "click", "pydantic", "sqlalchemy", "psycopg"} & set(loaded)


async def commits_a_second(conn: asyncpg.Connection) -> float:
    """Return how many transactions others commit.

    A rate needs a while: backends tell their numbers once a second, so a short one would count a second too many. And
    what is done once a minute counts as what it is.
    """
    before = await conn.fetchval(COMMITS)
    await asyncio.sleep(MEASURED)
    ours = 1  # the first of the two questions
    return float(await conn.fetchval(COMMITS) - before - ours) / MEASURED


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024
