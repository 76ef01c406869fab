"""Who works in a run? Real processes, started, killed, stopped and woken by their pid, and none of them left behind."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos import notes
from tests.chaos.asking import until

ROOT = Path(__file__).parents[2]
OURS = (sys.executable, "-m", "tests.chaos.worker")
THE_COMMAND = (str(Path(sys.executable).with_name("pulse")), "worker", "tests.chaos.app:app", "--log-level", "info")
TRACEBACK = "Traceback (most recent"
START_PATIENCE = 60.0  # on two cores that others use as well


@dataclass(eq=False)
class Member:
    """One worker's process."""

    process: subprocess.Popen[bytes]
    folder: Path
    killed_at: float | None = None
    standstills: list[tuple[float, float]] = field(default_factory=list)
    _stopped_at: float = 0.0
    _ready_at: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ready_at(self) -> float | None:
        if self._ready_at is None:
            self._ready_at = notes.ready_at(self.folder, self.pid)
        return self._ready_at

    def has_been_ready_for(self, seconds: float) -> bool:
        return self.ready_at is not None and time.time() - self.ready_at > seconds

    def kill(self) -> None:
        self.killed_at = time.time()
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Not a line of it runs until it is woken."""
        self._stopped_at = time.time()
        os.kill(self.pid, signal.SIGSTOP)

    def wake(self) -> None:
        self.standstills.append((self._stopped_at, time.time()))
        os.kill(self.pid, signal.SIGCONT)

    async def terminate(self, signals: int, patience: float) -> tuple[int | None, float]:
        """SIGTERM, so many times; answers with its exit code, none if it did not end, and how long that took."""
        asked_at = time.monotonic()
        for number in range(signals):
            await asyncio.sleep(0.05 * number)
            self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self.process.wait, patience)
        return self.process.returncode, time.monotonic() - asked_at


class Fleet:
    def __init__(self, folder: Path, environment: Mapping[str, str], command: Sequence[str] = OURS) -> None:
        self.folder = folder
        self.environment = {**os.environ, **environment, notes.FOLDER: str(folder)}
        self.command = command
        self.members: list[Member] = []  # the dead, too

    @property
    def alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    @property
    def deaths(self) -> dict[int, float]:
        """When each of those that were killed was, by pid."""
        return {member.pid: member.killed_at for member in self.members if member.killed_at is not None}

    @property
    def absences(self) -> dict[int, list[tuple[float, float]]]:
        """From when to when each of them could do nothing, by pid."""
        ever_since = {pid: [(died_at, math.inf)] for pid, died_at in self.deaths.items()}
        return {member.pid: [*member.standstills, *ever_since.get(member.pid, [])] for member in self.members}

    def start(self) -> Member:
        taken = {member.pid for member in self.members}
        while (member := self._spawn()).pid in taken:  # a pid is a name here, and this one means somebody else
            member.process.kill()
            member.process.wait()
        self.members.append(member)
        return member

    async def start_many(self, number: int) -> list[Member]:
        """Return when they are ready."""
        started = [self.start() for _ in range(number)]
        await self.all_ready()
        return started

    async def all_ready(self) -> None:
        async def are_ready() -> bool:
            gone = [member.pid for member in self.members if not member.is_alive and member.ready_at is None]
            assert not gone, f"workers ended before they were ready: {gone}\n{self.last_words()}"
            return all(member.ready_at for member in self.alive)

        await until(are_ready, START_PATIENCE, "workers are not ready")

    def close(self) -> None:
        """Whatever happened, nobody is left: by pid, the stopped ones as well."""
        for member in self.members:
            if member.is_alive:
                member.process.kill()
        for member in self.members:
            member.process.wait()

    def unexpected(self) -> list[str]:
        """What the workers themselves were surprised by."""
        logs = [path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log"))]
        found = [log[log.index(TRACEBACK) :][:3_000] for log in logs if TRACEBACK in log]
        return [f"{len(found)} workers logged a traceback, the first one:\n{found[0]}"] if found else []

    def last_words(self) -> str:
        paths = sorted(self.folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-1_500:]}" for path in paths[-3:])

    def _spawn(self) -> Member:
        with (self.folder / f"worker-{len(self.members):03}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        return Member(process, self.folder)
