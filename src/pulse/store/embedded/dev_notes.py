"""What do programs in a folder know of the `pulse dev` that runs there, beyond its database?

Where alarms go that name no URL, and that they may call this machine. Dev keeps the file locked, so whoever can lock it
knows that dev is gone, however it ended, and believes none of it.
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
TOLD = ("alarm_target", "alarm_networks")


@contextmanager
def leave_notes(state_dir: Path, **notes: str) -> Iterator[None]:
    """For others in this folder, as long as the block lasts. A second dev leaves none: theirs is the first."""
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
    """With what dev says of this folder, where the settings say nothing themselves."""
    notes = _read(settings.state_dir / NAME)
    missing: dict[str, Any] = {name: notes[name] for name in TOLD if name in notes and not getattr(settings, name)}
    return replace(settings, **missing) if missing else settings


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found = json.load(file)
            return found if isinstance(found, dict) else {}
    return {}
