"""How do commands share an embedded Postgres that one of them started and will stop?

All hold one lock together. Whoever is about to stop the server first waits a while until it has the lock alone, so it
leaves last; a command that comes in that very moment waits too, and then starts a server of its own. Those that go on
for longer start the server again when it is stopped.
"""

from __future__ import annotations

import fcntl
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from pulse.cli.output import say
from pulse.model.errors import EmbeddedPostgresFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUIET = 1.0  # seconds of waiting before a word about it
PATIENCE = 10.0  # seconds: commands are done by then, or keep the server themselves
LOOK_EVERY = 0.05


class CommandsLock:
    def __init__(self, file: IO[str]) -> None:
        self._file = file
        fcntl.flock(file, fcntl.LOCK_SH)

    def wait_for_others(self) -> None:
        """Until there are none, or they have had their time."""
        started, has_spoken = time.monotonic(), False
        while not self._is_alone() and time.monotonic() - started < PATIENCE:
            if not has_spoken and time.monotonic() - started > QUIET:
                say(f"Waiting up to {PATIENCE:.0f} s for other commands that use this Postgres.", to_stderr=True)
                has_spoken = True
            time.sleep(LOOK_EVERY)

    def _is_alone(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def shared_server(state_dir: Path) -> Iterator[CommandsLock]:
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (state_dir / "commands.lock").open("a")
    except OSError as error:
        raise EmbeddedPostgresFailed(
            f"{state_dir} cannot be used ({error}): choose another PULSE_STATE_DIR, or set PULSE_DATABASE_URL"
        ) from error
    with file:
        yield CommandsLock(file)
