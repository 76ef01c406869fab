"""Which jobs does a page show? This file reads the filter in the page's address."""

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


def given_fields(request: PageRequest) -> dict[str, str]:
    """Return the fields of the filter as they were typed, for the form and for links to the same list."""
    return {name: value for name in FIELDS if (value := request.param(name))}


def read_filter(given: Mapping[str, str], now: datetime) -> JobFilter:
    status = read_status(given.get("status"))
    if status is None and "error" in given:
        status = JobStatus.DEAD_LETTERED  # most jobs have no error, so only the list of dead letters is searched
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
        raise InvalidFilter(f"schedule must be the id of a schedule, which its jobs show, not {text[:60]!r}")
    return found


def read_status(text: str | None) -> JobStatus | None:
    if text is None:
        return None
    try:
        return JobStatus(text)
    except ValueError:
        names = ", ".join(status.lower() for status in JobStatus)
        raise InvalidFilter(f"state must be one of {names}, not {text[:60]!r}") from None


def read_moment(name: str, text: str | None, now: datetime) -> datetime | None:
    """Read an age, such as 2h, or an instant. Without an offset it is in UTC: the reader's time zone is not known."""
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
            f"{name} must be an age (30m, 2h, 7d) or a time in UTC (2026-07-31 or 2026-07-31 09:00), not {text[:60]!r}"
        ) from None


def read_id(text: str | None) -> UUID | None:
    """Return an id, with or without hyphens and spaces around it; None if the text is something else."""
    try:
        return UUID(text.strip()) if text and len(text.strip()) in (32, 36) else None
    except ValueError:
        return None
