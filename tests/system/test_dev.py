"""`pulse dev` as a developer meets it when not all goes well: tokens, kills, a Postgres that is taken away."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulse.cli.session import run_with_engine
from pulse.store.embedded import server as embedded
from pulse.store.embedded.binaries import find_binaries
from tests.doors.worker_processes import TASKS, python_in, run_in, started

if TYPE_CHECKING:
    from pulse.settings import Settings

needs_binaries = pytest.mark.skipif(not find_binaries(), reason="no Postgres binaries on this machine")

TIMED = TASKS + '\n@app.task(every="1h")\ndef hourly() -> None: ...\n'


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, as sockets need, and nothing but an application."""
    path = Path(tempfile.mkdtemp(prefix="dev", dir="/tmp"))
    (path / "tasks.py").write_text(TIMED)
    yield path
    embedded.stop(path / ".pulse")
    shutil.rmtree(path)


def test_tokens_in_the_database_do_not_lock_its_own_worker_out(folder: Path, settings: Settings) -> None:
    run_with_engine(settings, lambda engine: engine.tokens.create("reader", ["read"]))
    database = {"PULSE_DATABASE_URL": str(settings.database_url)}

    with started(folder, "dev", **database) as dev:
        assert dev.expect("schedules (1 created$|declared in code were not synced)")[1] == "1 created"
        python_in(folder, "from tasks import hello, wait; hello.enqueue('ada'); wait.enqueue(600)", **database)
        missing = {"greeting ada", "waiting"}
        while missing:
            missing.discard(dev.expect("greeting ada|waiting(?=  job)")[0])
        dev.process.send_signal(signal.SIGINT)
        assert dev.exit_code() == 0
        assert dev.text.endswith("1 job given back, to run again.\nStopped.\n")

    assert [token.name for token in run_with_engine(settings, lambda engine: engine.tokens.list())] == ["reader"]
    assert "pulse_" not in dev.text


@needs_binaries
@pytest.mark.long
def test_a_postgres_that_is_stopped_under_it_comes_back(folder: Path) -> None:
    with started(folder, "dev") as dev:
        dev.expect("  schedules 1 created$")
        python_in(folder, "from tasks import app; app.alarms.set('look', delay='10ms', payload={'a': 1})")
        dev.expect('  wake  local .*{"a": 1}')

        assert run_in(folder, "db", "stop").stdout == "Postgres was stopped.\n"
        dev.expect(r"Postgres was stopped and has been started again\.")
        assert "tasks.hourly" in run_in(folder, "schedules", "list").stdout

        python_in(folder, "from tasks import hello; hello.enqueue('ada')")
        dev.expect("greeting ada")
        dev.process.send_signal(signal.SIGINT)
        assert dev.exit_code() == 0

    assert embedded.running(folder / ".pulse") is None


def test_a_worker_that_is_killed_is_started_again_and_soon_not_at_once(folder: Path, settings: Settings) -> None:
    with started(folder, "worker", "tasks.py", "--reload", PULSE_DATABASE_URL=str(settings.database_url)) as watched:
        for waits in ("", " in 1 s"):
            worker = int(watched.expect(r"Pulse worker for tasks\.py, pid (\d+)")[1])
            os.kill(worker, signal.SIGKILL)
            said = watched.expect("worker (was|has) ended.*")[0]
            assert said == f"worker was ended by SIGKILL: starting again{waits}."
        watched.process.send_signal(signal.SIGINT)
        assert watched.exit_code() == 0
