"""Does a server run in a folder, is it ours, is it ready, and is anything of an earlier one left?

server.lock is an open file that every process that we launch inherits. The kernel releases its lock when the last of
them has ended, so zombies, reused pids and a second container on the same folder cannot make a server that has ended
look as if it were running, nor the other way round.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Record:
    """The contents of server.json."""

    home: str  # another path means that the folder was copied together with its record
    place: str  # the machine or container that the pids below belong to
    owner: int
    pid: int
    major: int
    socket_dir: str
    port: int | None


def read_record(home: Path) -> Record | None:
    with suppress(FileNotFoundError, ValueError, TypeError):
        record = Record(**json.loads((home / "server.json").read_text()))
        return record if record.home == str(home) else None
    return None


def write_record(home: Path, record: Record) -> None:
    new = home / "server.json.new"
    new.write_text(json.dumps(asdict(record)))
    new.replace(home / "server.json")


def is_ready(home: Path, record: Record) -> bool:
    if record.place != this_place() or postmaster(home) != (record.pid, "ready"):
        return False
    return is_held(home) and is_alive(record.pid)  # if it was killed, its children may hold the lock for another moment


def postmaster(home: Path) -> tuple[int, str]:
    """Return the pid and the status that Postgres itself wrote down."""
    with suppress(FileNotFoundError, ValueError, IndexError):
        lines = (home / "data" / "postmaster.pid").read_text().splitlines()
        return int(lines[0]), lines[7].strip()
    return 0, ""


def this_place() -> str:
    """Return what identifies this machine or container: two containers may share a folder, but not their pids."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not: it has ended, and its parent has not collected it yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's, but alive
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return True


def is_held(home: Path) -> bool:
    """Return whether any process of a server is left."""
    try:
        with (home / "server.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    """Hold the lock until the block ends, or as long as a process that inherited the file lives."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
