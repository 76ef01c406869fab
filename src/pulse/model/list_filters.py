"""What can people look for among schedules and alarms? States as they are shown, and a part of a name."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from pulse.model.jobs import check_kind
from pulse.model.text import check_name, check_text

SCAN_LIMIT = 5_000  # rows looked at for one page when a search has to pick among them


class ScheduleState(StrEnum):
    """A pause counts before the rest: it is what keeps an active one from firing."""

    ACTIVE = "active"
    PAUSED = "paused"
    BROKEN = "broken"
    COMPLETED = "completed"
    DISABLED = "disabled"


class AlarmState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"  # active, and its last attempt failed
    FAILED = "failed"
    FIRED = "fired"
    CANCELLED = "cancelled"


class ScheduleSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given must hold. `text` is a part of the name or the task; `start*` is how the name begins."""

    text: str | None = None
    state: ScheduleState | None = None
    task: str | None = None
    topic: str | None = None

    def __post_init__(self) -> None:
        check_kind("state", self.state, ScheduleState, None)
        if self.text is not None:
            check_text("text", self.text)
        for what in ("task", "topic"):
            if (name := getattr(self, what)) is not None:
                check_name(what, name)

    @property
    def start(self) -> str:
        """How the name begins; empty: anyhow."""
        return self.text[:-1] if self.text and self.text.endswith("*") else ""

    @property
    def part(self) -> str | None:
        return None if self.text is None or self.text.endswith("*") else self.text


class AlarmSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Everything given must hold. `text` is a part of the name, the label or the URL."""

    owner: str | None = None
    state: AlarmState | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        check_kind("state", self.state, AlarmState, None)
        if self.text is not None:
            check_text("text", self.text)
        if self.owner is not None:
            check_name("owner", self.owner)
