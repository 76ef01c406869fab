"""How do commands share an embedded Postgres that one of them started and will stop?

All hold a shared lock. The command that will stop the server first waits a while for an exclusive lock, so that it ends
last. A command that starts at that very moment waits for the lock, too, and then starts a server of its own. Commands
that run for longer start the server again when it is stopped.
"""

from __future__ import annotations

import fcntl
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from pulse.cli.output import print_text
from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTICE_AFTER = 1.0  # seconds of waiting before a message says so
PATIENCE = 10.0  # seconds, after which other commands have ended, or start the server again themselves
CHECK_EVERY = 0.05  # seconds


class CommandsLock:
    def __init__(self, file: IO[str]) -> None:
        self._file = file
        fcntl.flock(file, fcntl.LOCK_SH)

    def wait_for_others(self) -> None:
        """Wait until no other command holds the lock, or for as long as others may take."""
        started, has_noticed = time.monotonic(), False
        while not self._is_alone() and time.monotonic() - started < PATIENCE:
            if not has_noticed and time.monotonic() - started > NOTICE_AFTER:
                print_text(f"Waiting up to {PATIENCE:.0f} s for other commands that use this Postgres.", to_stderr=True)
                has_noticed = True
            time.sleep(CHECK_EVERY)

    def _is_alone(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def hold_commands_lock(state_dir: Path) -> Iterator[CommandsLock]:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_dir / "commands.lock").open("a")
    except OSError as error:
        raise EmbeddedPostgresFailed(
            f"{state_dir} cannot be used ({error}): choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
        ) from error
    with file:
        yield CommandsLock(file)
