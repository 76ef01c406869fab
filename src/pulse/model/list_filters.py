"""What can people search schedules and alarms for? For a state, as pages show it, and for a part of a name."""

from __future__ import annotations

import msgspec

from pulse.model.any_case import AnyCase
from pulse.model.jobs import check_kind
from pulse.model.text import check_name, check_text

SCAN_LIMIT = 5_000  # rows read for one page when no index answers a search alone


class ScheduleState(AnyCase):
    """The state that pages show of a schedule. An active one that is paused counts as paused, as it does not fire."""

    ACTIVE = "active"
    PAUSED = "paused"
    BROKEN = "broken"
    COMPLETED = "completed"
    DISABLED = "disabled"


class AlarmState(AnyCase):
    ACTIVE = "active"
    PAUSED = "paused"
    FAILING = "failing"  # active, and its last attempt failed
    FAILED = "failed"
    FIRED = "fired"
    CANCELLED = "cancelled"


class ScheduleSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules that match every field given. `text` is a part of the name or task; `start*` begins the name."""

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
        """Return the text that the name must begin with, or an empty one if it may begin with any."""
        return self.text[:-1] if self.text and self.text.endswith("*") else ""

    @property
    def part(self) -> str | None:
        return None if self.text is None or self.text.endswith("*") else self.text


class AlarmSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms that match every field given. `text` is a part of the name, the label or the URL."""

    owner: str | None = None
    state: AlarmState | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        check_kind("state", self.state, AlarmState, None)
        if self.text is not None:
            check_text("text", self.text)
        if self.owner is not None:
            check_name("owner", self.owner)
