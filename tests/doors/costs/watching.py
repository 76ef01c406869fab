"""What does a request cost the process that serves it? Its processor's time and its memory, never the time of day."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

MAX_CPU = 0.1  # seconds, on a machine where `_reference` takes REFERENCE
REFERENCE = 0.012  # seconds
MAX_MEMORY = 50.0  # MiB
TRIES = 6
QUIET = (0.05, 0.002)  # seconds of a pause, and the processor's time that an idle process may take within it
# Memory that was freed is given back, so that what a request takes is not hidden in what another one left.
GIVING_BACK = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
ENDLESS = 3.0  # seconds of the processor's time, after which an answer is not waited for


def slowness() -> float:
    """Return how many times longer than on a quiet machine the same work takes now, and never less than once.

    Busy neighbours take caches and half of each core away, so that even the processor's own time of a request doubles.
    """
    began = time.thread_time()
    _reference()
    return max(1.0, (time.thread_time() - began) / REFERENCE)


def _reference() -> int:
    return sum(len(text.split("7")) for text in map(str, range(50_000)))


class Cost(NamedTuple):
    cpu: float = 0.0  # seconds, less what a slow machine adds
    memory: float = 0.0  # MiB

    @property
    def is_endless(self) -> bool:
        return self.cpu > ENDLESS

    @property
    def is_too_much(self) -> bool:
        return self.cpu > MAX_CPU or self.memory > MAX_MEMORY


def in_quiet(spent: float) -> float:
    """Return what this much of the processor's time, just spent, would have been on a quiet machine."""
    return spent if spent <= MAX_CPU else spent / slowness()


class Watched:
    """A process of ours, watched from outside."""

    def __init__(self, pid: int, ports: dict[str, int]) -> None:
        self.ports = ports
        self._folder = Path(f"/proc/{pid}")

    def cpu(self) -> float:
        """Of all its threads; those that have ended are not worth counting."""
        total = 0
        for task in (self._folder / "task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                continue
        return total / 1e9

    async def cost_of(self, send: Callable[[], Awaitable[object]]) -> Cost:
        """The least of a few tries: other processes make a try dearer, and none makes it cheaper."""
        best = await self._try(send)
        for _ in range(TRIES - 1):
            if best.is_endless or not best.is_too_much:
                break
            await self._quiet()
            again = await self._try(send)
            best = Cost(min(best.cpu, again.cpu), min(best.memory, again.memory))
        return best

    async def _quiet(self) -> None:
        """Wait until nothing is left to do of what came before: an alarm that was set is delivered, say."""
        pause, idle = QUIET
        for _ in range(40):
            before = self.cpu()
            await asyncio.sleep(pause)
            if self.cpu() - before < idle:
                return

    async def _try(self, send: Callable[[], Awaitable[object]]) -> Cost:
        (self._folder / "clear_refs").write_text("5")  # from here on, the peak is that of this request
        before, base = self.cpu(), self._memory("VmRSS")
        sending = asyncio.ensure_future(send())
        while not (await asyncio.wait([sending], timeout=1.0))[0]:
            if self.cpu() - before > ENDLESS:
                sending.cancel()
                break
        else:
            sending.result()
        spent, peak = self.cpu() - before, self._memory("VmHWM") - base
        return Cost(in_quiet(spent), max(peak, 0.0))

    def _memory(self, line: str) -> float:
        for text in (self._folder / "status").read_text().splitlines():
            if text.startswith(line):
                return int(text.split()[1]) / 1024
        raise AssertionError(line)


@contextmanager
def watched(database_url: str) -> Iterator[Watched]:
    command = [sys.executable, "-m", "tests.doors.costs.served", database_url]
    root = Path(__file__).parents[3]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, cwd=root, env=os.environ | GIVING_BACK, **pipes) as process:
        try:
            assert process.stdout
            yield Watched(process.pid, json.loads(process.stdout.readline()))
        finally:
            process.kill()
