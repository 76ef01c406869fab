"""How is a job shown in a list, on a page of its own, and as JSON?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse.cli.output import (
    Cell,
    Column,
    Styled,
    age,
    local_time,
    print_next_page,
    print_text,
    show_fields,
    show_table,
    time_and_age,
)

if TYPE_CHECKING:
    from pulse.model.jobs import Attempt, Job, Page

JSON_FIELDS = ("payload", "result", "progress", "retry", "tags", "trace")  # stored as JSON text
SHORT_JSON = 60  # characters that fit on one line
COUNTED = ("max_attempts", "refunded")  # fields that are shown with the attempt
STYLES = {
    "SCHEDULED": "cyan",
    "PENDING": "blue",
    "RUNNING": "yellow",
    "RETRYING": "magenta",
    "COMPLETED": "green",
    "DEAD_LETTERED": "red",
    "CANCELLED": "dim",
}
LIST_COLUMNS = (
    Column("ID"),
    Column("STATUS"),
    Column("TOPIC", rank=1, min_width=10),
    Column("TASK", rank=4, min_width=10),
    Column("TRY"),
    Column("SUBMITTED", rank=5, min_width=25),
    Column("AGE"),
    Column("LAST ERROR", rank=3, min_width=12),
)


def as_json(job: Job) -> dict[str, Any]:
    """Return the fields of a job. JSON fields are embedded as they are, to the last digit."""
    import msgspec

    fields = {name: getattr(job, name) for name in job.__struct_fields__}
    for name in JSON_FIELDS:
        if fields[name] is not None:
            fields[name] = msgspec.Raw(fields[name].encode())
    return fields


def show_list(page: Page, *, has_one_status: bool) -> None:
    hidden = {"STATUS"} if has_one_status else set()
    if all(job.task == job.topic for job in page.jobs):
        hidden.add("TASK")
    if not any(job.last_error for job in page.jobs):
        hidden.add("LAST ERROR")
    columns = [column for column in LIST_COLUMNS if column.title not in hidden]
    rows = [_row(job) for job in page.jobs]
    if rows:
        show_table(columns, [[row[column.title] for column in columns] for row in rows])
    else:
        print_text("No jobs match." if page.next is None else "No jobs match so far.")
    print_next_page(page.next)


def _row(job: Job) -> dict[str, Cell]:
    return {
        "ID": str(job.id),
        "STATUS": Styled(job.status, STYLES[job.status]),
        "TOPIC": job.topic,
        "TASK": job.task,
        "TRY": f"{job.attempt - job.refunded}/{job.max_attempts}",
        "SUBMITTED": local_time(job.submitted_at),
        "AGE": age(job.submitted_at),
        "LAST ERROR": job.last_error or "",
    }


def show_job(job: Job, attempts: list[Attempt]) -> None:
    fields = {name: field_value(name, getattr(job, name)) for name in job.__struct_fields__ if name not in COUNTED}
    show_fields(list((fields | {"attempt": _format_attempt(job)}).items()))
    for attempt in attempts:
        _show_attempt(attempt)


def _format_attempt(job: Job) -> str:
    """Return the attempt without those that do not count, from before a replay or of snoozed runs. Counting them could
    give 2 of 1, which looks like a mistake."""
    free = f" ({job.refunded} not counted)" if job.refunded else ""
    return f"{job.attempt - job.refunded} of {job.max_attempts}{free}"


def field_value(name: str, value: Any) -> Cell:  # noqa: ANN401
    """Return a field as a cell for `show_fields`."""
    from pulse.timing.duration import format_duration

    match value:
        case None:
            return Styled("-", "dim")
        case str() if name == "status":
            return Styled(value, STYLES[value])
        case str() if name in JSON_FIELDS:
            return _readable_json(value)
        case datetime():
            return time_and_age(value)
        case timedelta():
            return format_duration(value)
    return str(value)


def _readable_json(text: str) -> str:
    import msgspec

    return text if len(text) <= SHORT_JSON else msgspec.json.format(text, indent=2)


def _show_attempt(attempt: Attempt) -> None:
    worker = attempt.worker or "no worker"
    print_text(f"\nAttempt {attempt.attempt} failed {time_and_age(attempt.ended_at)}{_after(attempt)}, on {worker}")
    fields: list[tuple[str, Cell]] = [("  error", Styled(attempt.error, "red"))]
    if attempt.traceback:
        fields.append(("  traceback", attempt.traceback.rstrip()))
    show_fields(fields)


def _after(attempt: Attempt) -> str:
    from pulse.timing.duration import format_duration

    if attempt.started_at is None:
        return ""
    milliseconds = max(attempt.ended_at - attempt.started_at, timedelta()) // timedelta(milliseconds=1)
    return f", after {format_duration(timedelta(milliseconds=milliseconds))}"
