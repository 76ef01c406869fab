"""What can a handler do to the event loop that it shares with its worker, and what comes of it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import JobStatus, NewJob
from pulse.settings import Settings
from tests.doors.worker_processes import started

TASKS = """
import asyncio, sys
from pulse import Pulse

app = Pulse()

@app.task(name="cancel_everything")
async def cancel_everything() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)

@app.task(name="stop_the_loop")
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(60)

@app.task(name="leave_in_a_task")
async def leave_in_a_task() -> None:
    async def leave() -> None:
        sys.exit(6)

    asyncio.create_task(leave())
    await asyncio.sleep(60)
"""


@pytest.mark.parametrize("task", ["cancel_everything", "stop_the_loop", "leave_in_a_task"])
async def test_a_handler_that_ends_the_loop_ends_its_worker_at_once(
    tmp_path: Path, settings: Settings, engine: Engine, task: str
) -> None:
    """With a code that says so, for whoever starts it again. Its job stays leased, and runs again after that."""
    (tmp_path / "tasks.py").write_text(TASKS)
    [job] = await engine.jobs.submit([NewJob(task=task)])

    with started(tmp_path, "worker", "tasks", PULSE_DATABASE_URL=str(settings.database_url)) as worker:
        code = worker.exit_code()

    assert code > 0, worker.text
    assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING
