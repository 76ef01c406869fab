"""What do programs in a folder know about the `pulse dev` that runs there, besides its database?

They know where to send alarms that name no URL, and that alarms may call this machine. `pulse dev` keeps the file with
its notes locked. A program that can lock the file knows that dev has ended, in whatever way, and ignores the notes.
"""

from __future__ import annotations

import fcntl
import json
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.settings import Settings

NAME = "dev.json"
NAMES = ("alarm_target", "alarm_networks")


@contextmanager
def leave_notes(state_dir: Path, **notes: str) -> Iterator[None]:
    """Leave notes for other programs in this folder until the block ends, unless another dev has left its own."""
    path = state_dir / NAME
    path.touch(mode=0o600)
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        file.truncate(0)
        json.dump(notes, file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def with_notes(settings: Settings) -> Settings:
    """Return the settings, with the notes of dev where the settings themselves have no value."""
    notes = _read(settings.state_dir / NAME)
    missing: dict[str, Any] = {name: notes[name] for name in NAMES if name in notes and not getattr(settings, name)}
    return replace(settings, **missing) if missing else settings


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found = json.load(file)
            return found if isinstance(found, dict) else {}
    return {}
