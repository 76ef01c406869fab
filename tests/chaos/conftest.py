"""A Postgres and a stage for each run, and the table at the end."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.chaos import figures
from tests.chaos.stage import Server, Stage, open_stage


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="chaos", dir="/tmp"))  # a socket's path must be short
    server = Server(folder)
    yield server
    server.close()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def stage(server: Server, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """Named for its test; with a planted bug, if the test is given one."""
    title = request.node.name.removeprefix("test_").replace("_", " ")
    bug = request.node.callspec.params.get("bug") if hasattr(request.node, "callspec") else None
    began_at = time.monotonic()
    async with open_stage(server, tmp_path, title, bug=bug) as stage:
        yield stage
    stage.figure("seconds in all", time.monotonic() - began_at)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := figures.lines():
        terminalreporter.section(f"chaos, PULSE_CHAOS_SEED={figures.SEED}, scale {figures.SCALE:g}")
        for line in lines:
            terminalreporter.write_line(line)
