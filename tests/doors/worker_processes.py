"""A `pulse worker` or `pulse dev` as a test has it: a real process in a folder with an app, and what it says."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.doors.command_line import PROGRAM, environment

PATIENCE = 60  # seconds, on a machine that has much else to do

TASKS = """
import asyncio, logging, time
from pulse import Context, Pulse

app = Pulse()
log = logging.getLogger("shop.tasks")

@app.task
async def hello(name: str = "world") -> str:
    log.info("greeting %s", name)
    return f"hello {name}"

@app.task
def in_a_thread() -> None:
    log.info("in a thread")

@app.task
async def wait(seconds: float) -> str:
    log.info("waiting")
    await asyncio.sleep(seconds)
    return "waited"

@app.task
def block_a_thread(seconds: float) -> None:
    log.info("blocking")
    time.sleep(seconds)

@app.task
async def block_the_loop(seconds: float) -> None:
    log.info("blocking")
    time.sleep(seconds)
"""


class Started:
    """A running process, and its output line by line, stderr and stdout in one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def expect(self, pattern: str) -> re.Match[str]:
        """The next line that has this in it."""
        while line := self._lines.get(timeout=PATIENCE):
            self.said.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"no line has {pattern!r}:\n{self.text}")

    def expect_end(self) -> str:
        """Everything it said, once nobody can say more: neither it nor a child of its."""
        while line := self._lines.get(timeout=PATIENCE):
            self.said.append(line)
        return self.text

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE)
        self.expect_end()
        return code

    @property
    def text(self) -> str:
        return "".join(self.said)

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def close(self) -> None:
        self.process.kill()
        self._reading.join()


@contextmanager
def started(folder: Path, *args: object, **env: str) -> Iterator[Started]:
    with subprocess.Popen(
        [*PROGRAM, *map(str, args)],
        cwd=folder,
        env=environment(PYTHONUNBUFFERED="1", **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        running = Started(process)
        try:
            yield running
        finally:
            running.close()


def rewrite(file: Path, code: str) -> None:
    """Write a module in one step, a second later than it was written before.

    Python takes what it compiled before if the size and the second of the last change are the same.
    """
    changed_at = max(time.time(), file.stat().st_mtime + 1) if file.exists() else time.time()
    fresh = file.with_suffix(".new")
    fresh.write_text(code)
    os.utime(fresh, (changed_at, changed_at))
    fresh.replace(file)


def run_in(folder: Path, *args: object, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line, to its end."""
    command = [*PROGRAM, *map(str, args)]
    return subprocess.run(
        command, cwd=folder, env=environment(**env), capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def python_in(folder: Path, code: str, **env: str) -> str:
    """Another program of the same application."""
    kept: dict[str, Any] = environment(**env)
    return subprocess.check_output([sys.executable, "-c", code], cwd=folder, env=kept, text=True, timeout=PATIENCE)


def is_gone(pid: int) -> bool:
    """Ended, though perhaps not yet buried by whoever inherited it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return True
