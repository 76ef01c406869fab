"""What did the processes of a run see and do? Each writes it down in a file of its own, line by line.

A line is written by one system call, so that it is whole or not there, and is kept by the kernel: it outlives the
`kill -9` of the process that wrote it. Times are the machine's clock, which the database on it goes by as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

FOLDER = "PULSE_CHAOS_FOLDER"  # set for the processes of a run

_files: dict[int, int] = {}  # by pid: a forked process has its own


@dataclass(frozen=True, slots=True)
class Note:
    kind: str  # ready; start, end, told: of a handler; report, release: answered
    at: float
    pid: int
    job_id: UUID | None = None
    lease_id: int = 0
    word: str = ""  # the attempt, or what was reported and the answer


def take(kind: str, job_id: UUID, lease_id: int, word: object) -> None:
    take_many([(kind, job_id, lease_id, word)])


def take_many(lines: Iterable[tuple[str, UUID, int, object]]) -> None:
    at = time.time()
    _write("".join(f"{kind} {at:.6f} {job_id} {lease_id} {word}\n" for kind, job_id, lease_id, word in lines))


def take_ready() -> None:
    _write(f"ready {time.time():.6f}\n")


def read(folder: Path) -> list[Note]:
    """Everything that was written so far, in order of time."""
    found = [note for path in folder.glob("*.notes") for note in _read_file(path)]
    return sorted(found, key=lambda note: note.at)


def ready_at(folder: Path, pid: int) -> float | None:
    """When this process became ready; none if it has not yet."""
    path = folder / f"{pid}.notes"
    return next((note.at for note in _read_file(path) if note.kind == "ready"), None) if path.exists() else None


def _read_file(path: Path) -> Iterator[Note]:
    pid = int(path.stem)
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            kind, at, *rest = line.split()
            job = (UUID(rest[0]), int(rest[1]), rest[2]) if rest else ()
            yield Note(kind, float(at), pid, *job)


def _write(text: str) -> None:
    pid = os.getpid()
    if pid not in _files:
        path = Path(os.environ[FOLDER]) / f"{pid}.notes"
        _files[pid] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(_files[pid], text.encode())
