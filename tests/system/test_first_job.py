"""The README's installation and first job and the tutorial, word for word: from an empty folder to a finished job, a
failed one and its replay."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulse.store.embedded import server as embedded

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text().partition("## Install")[2].partition("\n## What you write")[0]
PAGE = (ROOT / "docs" / "tutorial" / "first-job.md").read_text()
FIRST, _, REST = PAGE.partition("## When it fails")
PATIENCE = 60.0  # seconds, on a machine that has much else to do


def commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)", "\n".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)), re.MULTILINE)


def files(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def environment() -> dict[str, str]:
    """As in a shell where Pulse was installed, with nothing set up for it."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DATABASE_URL"))}
    return outside | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE
    )


def said_by(command: str, folder: Path) -> str:
    done = run(command, folder)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def until(condition: Callable[[], object], log: Path) -> None:
    give_up_at = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.1)


@pytest.fixture
def dev(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """`pulse dev` in the first terminal, on the file the page says to save."""
    text = getattr(request, "param", FIRST)
    [tasks], [*_, command, _] = files(text), commands(text)
    (tmp_path / "tasks.py").write_text(tasks)
    with (tmp_path / "dev.log").open("wb") as log:
        process = subprocess.Popen(
            command.split(), cwd=tmp_path, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: run("pulse jobs list", tmp_path).returncode == 0 or process.poll() is not None, log_of(tmp_path))
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def log_of(folder: Path) -> Path:
    return folder / "dev.log"


@pytest.mark.parametrize("text", [README, FIRST], ids=["README", "tutorial"])
def test_it_takes_four_commands_and_eight_lines(text: str) -> None:
    [tasks] = files(text)

    assert len([line for line in tasks.splitlines() if line and not line.startswith("#")]) <= 8
    assert [command.split()[0] for command in commands(text)] == ["python3", "pip", "pulse", "python"]
    assert commands(text)[1] == "pip install '/path/to/pulse[all]'"


@pytest.mark.slow
@pytest.mark.parametrize("dev", [README], indirect=True, ids=["README"])
@pytest.mark.usefixtures("dev")
def test_the_readme_is_true(tmp_path: Path) -> None:
    [greet] = commands(README)[3:]

    assert said_by(greet, tmp_path) == "Hello, Ada!\n"
    assert "prints `Hello, Ada!`" in README


@pytest.mark.slow
def test_the_page_is_true(dev: subprocess.Popen[bytes], tmp_path: Path) -> None:
    [greet] = commands(FIRST)[3:]
    [divide, mended] = files(REST)
    fail, list_dead, show, replay, show_again = commands(REST)
    tasks, log = tmp_path / "tasks.py", log_of(tmp_path)

    # Install it, and run a job.
    assert said_by(greet, tmp_path) == "Hello, you!\n"
    assert f"$ {greet}\nHello, you!\n" in PAGE

    # When it fails.
    before = tasks.read_text()
    tasks.write_text(before + "\n\n" + divide)
    said_by(fail, tmp_path)
    until(lambda: "ZeroDivisionError" in said_by(list_dead, tmp_path), log)
    [job_id] = re.findall(r"^[0-9a-f-]{36}", said_by(list_dead, tmp_path), re.MULTILINE)
    assert "DEAD_LETTERED" in said_by(show.replace("ID", job_id), tmp_path)

    # A second chance.
    tasks.write_text(before + "\n\n" + mended)
    until(lambda: log.read_text().count("Pulse worker for tasks.py") == 3, log)  # it has noticed
    said_by(replay.replace("ID", job_id), tmp_path)
    until(lambda: "COMPLETED" in said_by(show_again.replace("ID", job_id), tmp_path), log)

    # Ctrl-C ends all of it.
    os.killpg(dev.pid, signal.SIGINT)
    assert dev.wait(PATIENCE) == 0, log.read_text()
    assert embedded.running(tmp_path / ".pulse") is None
