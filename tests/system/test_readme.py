"""The README's example does what the README says, in a folder of its own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import asyncpg

from pulse.settings import Settings
from pulse.store.migrate import migrate
from tests.conftest import recreate_database

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_python_example_runs(worker_id: str, tmp_path: Path) -> None:
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    url = asyncio.run(recreate_database(f"readme_{worker_id}"))
    asyncio.run(migrate(Settings(database_url=url)))
    env = {**os.environ, "PULSE_DATABASE_URL": url}

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert "sending" in done.stdout
    assert "ACCEPTED" in done.stdout


def test_the_sql_example_runs(worker_id: str) -> None:
    [example] = re.findall(r"```sql\n(.*?)```", README, re.DOTALL)
    url = asyncio.run(recreate_database(f"readme_{worker_id}"))
    asyncio.run(migrate(Settings(database_url=url)))

    async def run() -> int:
        conn = await asyncpg.connect(url)
        await conn.execute("create table orders (id int, email text)")
        await conn.execute(example)
        jobs = await conn.fetchval("select count(*) from pulse.jobs where unique_key = 'receipt:42'")
        await conn.close()
        return int(jobs)

    assert asyncio.run(run()) == 1
