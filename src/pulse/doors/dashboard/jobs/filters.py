"""Which jobs does a page ask for? The filter in its address, read for the engine and kept for its links."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.model.errors import InvalidFilter
from pulse.model.jobs import JobFilter, JobStatus
from pulse.timing.duration import InvalidDuration, parse_duration

if TYPE_CHECKING:
    from pulse.doors.dashboard.pages import PageRequest

FIELDS = ("topic", "task", "tag", "error", "since", "until", "schedule", "status")


def given_fields(look: PageRequest) -> dict[str, str]:
    """What of the filter was given, as it was typed: for the form and for links to the same list."""
    return {name: value for name in FIELDS if (value := look.given(name))}


def read_filter(given: Mapping[str, str], now: datetime) -> JobFilter:
    status = read_status(given.get("status"))
    if status is None and "error" in given:
        status = JobStatus.DEAD_LETTERED  # most jobs have no error: what failed has a list of its own
    return JobFilter(
        topic=given.get("topic"),
        task=given.get("task"),
        tag=given.get("tag"),
        error=given.get("error"),
        status=status,
        submitted_after=read_moment("since", given.get("since"), now),
        submitted_before=read_moment("until", given.get("until"), now),
        schedule_id=read_schedule(given.get("schedule")),
    )


def read_schedule(text: str | None) -> UUID | None:
    found = read_id(text)
    if text is not None and found is None:
        raise InvalidFilter(f"schedule {text[:60]!r} is not the id of a schedule: its page and its jobs show that")
    return found


def read_status(text: str | None) -> JobStatus | None:
    if text is None:
        return None
    try:
        return JobStatus(text.upper().replace("-", "_"))
    except ValueError:
        names = ", ".join(status.lower() for status in JobStatus)
        raise InvalidFilter(f"state {text[:60]!r} is not one: it is {names}") from None


def read_moment(name: str, text: str | None, now: datetime) -> datetime | None:
    """An age, such as 2h, or an instant; without a zone it is UTC, for the server does not know the reader's."""
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except (InvalidDuration, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text.upper().removesuffix("UTC").strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidFilter(
            f"{name} {text[:60]!r} is neither an age (30m, 2h, 7d) nor a time in UTC (2026-07-31 or 2026-07-31 09:00)"
        ) from None


def read_id(text: str | None) -> UUID | None:
    """A whole id, however it was pasted; None: it is something else."""
    try:
        return UUID(text.strip()) if text and len(text.strip()) in (32, 36) else None
    except ValueError:
        return None
