"""The tools that read the files of deploy/, and the programs that these files start."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.doors.command_line import environment
from tests.doors.worker_processes import Started

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent  # `pulse` and `pulsed`, and tools that are Python packages
PATIENCE = 60  # seconds


def find_program(name: str) -> str | None:
    ours = BIN / name
    return str(ours) if ours.exists() else shutil.which(name)


def needs(name: str, package: str) -> pytest.MarkDecorator:
    """Left out, by name, where a tool is missing. `package` is what brings it."""
    return pytest.mark.skipif(find_program(name) is None, reason=f"no {name} on this machine: install {package}")


def run_program(*command: object, **options: object) -> str:
    """What it said; that it failed is an error which says the same."""
    name, *args = map(str, command)
    ended = subprocess.run(
        [find_program(name) or name, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert ended.returncode == 0, f"{' '.join([name, *args])} exits with {ended.returncode}:\n{ended.stdout}"
    return str(ended.stdout)


@contextmanager
def running(command: Sequence[str], folder: Path, env: dict[str, str]) -> Iterator[Started]:
    """A command of deploy/, whose program is the one of this environment."""
    name, *args = command
    program = [str(BIN / Path(name).name), *args] if Path(name).name.startswith("pulse") else list(command)
    with subprocess.Popen(
        program,
        cwd=folder,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        started = Started(process)
        try:
            yield started
        finally:
            started.close()
