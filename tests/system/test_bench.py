"""What do the processes of a benchmark do when somebody has seen enough of it?"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg

from pulse.engine.engine import Engine
from pulse.settings import Settings
from tests.doors.command_line import start_process
from tests.system.test_embedded import becomes_true, is_gone


def test_a_worker_leaves_ctrl_c_to_the_benchmark_and_ends_without_a_word(settings: Settings, engine: Engine) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "pulse.bench.workers", json.dumps(["bench"])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema},
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=60)
    finally:
        worker.kill()

    assert (worker.returncode, said) == (0, "")


def children_of(pid: int) -> list[int]:
    """Those that any of its threads has started."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


def test_sigterm_leaves_neither_processes_nor_a_schema_behind(settings: Settings, engine: Engine) -> None:
    workers: list[int] = []
    with start_process(
        "bench", "drain", "--jobs", 20_000, "--rounds", 100, PULSE_DATABASE_URL=str(settings.database_url)
    ) as bench:
        try:
            assert becomes_true(lambda: len(children_of(bench.pid)) == 2, within=60)
            workers = children_of(bench.pid)
            bench.send_signal(signal.SIGTERM)
            _, said = bench.communicate(timeout=60)
        finally:
            for pid in (bench.pid, *workers):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    assert (bench.returncode, said.splitlines()[-1]) == (1, "Aborted!")
    assert all(is_gone(pid) for pid in workers)
    with psycopg.connect(str(settings.database_url)) as conn:
        assert conn.execute("select to_regnamespace('pulse_bench')").fetchone() == (None,)
