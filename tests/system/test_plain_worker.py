"""Does a worker that was written against the published contract alone work, as the example says?"""

from __future__ import annotations

import ast
import asyncio
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulse import Pulse
from pulse.engine.jobs.use_cases import Jobs
from pulse.model.jobs import JobStatus
from pulse.settings import Settings
from tests.doors.command_line import environment
from tests.doors.worker_processes import PATIENCE, started
from tests.factories import a_new_job
from tests.waiting import until

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plain_worker.py"
LEASE = {"PULSE_LEASE": "3s", "PULSE_HEARTBEAT": "1s", "PULSE_WATCHDOG": "500ms"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example and what the compiler makes of the proto, and nothing of ours."""
    compiler = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(ROOT / "proto" / "pulse" / "v1")]
    subprocess.run([*compiler, "--python_out=.", "--grpc_python_out=.", "pulse.proto"], cwd=tmp_path, check=True)
    shutil.copy(EXAMPLE, tmp_path)
    return tmp_path


@pytest.fixture
def address(tmp_path: Path, settings: Settings) -> Iterator[str]:
    env = {"PULSE_DATABASE_URL": str(settings.database_url)} | LEASE
    with started(tmp_path, "server", "--listen", "127.0.0.1:0", **env) as server:
        yield server.expect(r"address +grpc://(\S+)").group(1)


@pytest.fixture
async def greet(address: str, settings: Settings) -> AsyncIterator[Any]:
    app = Pulse(settings=replace(settings, server_url=f"grpc://{address}"))

    @app.task(name="greet")
    async def greet(name: str) -> str:
        raise AssertionError("the plain worker does that")

    yield greet
    await asyncio.to_thread(app.close)


@contextmanager
def plain_worker(folder: Path, address: str) -> Iterator[subprocess.Popen[str]]:
    env = environment()
    env.pop("PYTHONPATH", None)
    process = subprocess.Popen([sys.executable, EXAMPLE.name, address, "greet"], cwd=folder, env=env, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def test_it_is_short_and_has_nothing_of_ours() -> None:
    text = EXAMPLE.read_text()
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}

    assert len(text.splitlines()) < 60
    assert names == {"json", "os", "sys", "threading", "time", "grpc", "pulse_pb2", "pulse_pb2_grpc"}


async def test_it_runs_what_the_sdk_submits(folder: Path, address: str, greet: Any, jobs: Jobs) -> None:
    handles = await greet.app.aenqueue_many(greet.call(f"ada {number}") for number in range(50))
    with plain_worker(folder, address):
        results = [await handle.aresult(timeout=PATIENCE) for handle in handles]
        late = await greet.aenqueue("bob")
        results.append(await late.aresult(timeout=PATIENCE))
        [wrong] = await jobs.submit([a_new_job(task="greet", payload="{}")])

        async def has_failed() -> bool:
            return (await jobs.get(wrong.id)).status is JobStatus.RETRYING

        await until(has_failed)

    assert results == [*(f"Hello, ada {number}!" for number in range(50)), "Hello, bob!"]
    assert "KeyError" in str((await jobs.get(wrong.id)).last_error)
    assert {(await jobs.get(handle.id)).attempt for handle in handles} == {1}


async def test_its_jobs_come_back_when_it_is_killed(folder: Path, address: str, greet: Any, jobs: Jobs) -> None:
    with plain_worker(folder, address) as worker:
        await (await greet.aenqueue("ada")).aresult(timeout=PATIENCE)  # so it is connected
        worker.send_signal(signal.SIGSTOP)
        handle = await greet.aenqueue("bob")

        async def is_running() -> bool:
            return (await jobs.get(handle.id)).status is JobStatus.RUNNING

        await until(is_running)
        worker.kill()

    with plain_worker(folder, address):
        assert await handle.aresult(timeout=PATIENCE) == "Hello, bob!"
    assert (await jobs.get(handle.id)).attempt == 2
