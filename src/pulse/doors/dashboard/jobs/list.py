"""Which jobs are there? This is the list of jobs, with its filter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from pulse.doors.dashboard.drawing import url
from pulse.doors.dashboard.jobs.filters import given_fields, read_filter, read_id
from pulse.doors.dashboard.pages import PageRequest, RedirectTo, View
from pulse.engine.jobs.bulk import ListJobs, as_shown, search
from pulse.model.errors import InvalidInput
from pulse.model.jobs import JobFilter, JobHead, JobStatus, TopicCount
from pulse.model.tokens import Right

VIEWING = Right.VIEW
ACTING = Right.OPERATE
PAGE = 50
PATIENCE = 0.15  # seconds to search for a full page, if the list is filtered
MAX_NAMES = 200  # topics that a field suggests

# For each state: the order of its list in words, and the instant that the list shows: its label, and its field.
ORDERS: dict[JobStatus | None, tuple[str, str, str]] = {
    None: ("newest first", "submitted", "submitted_at"),
    JobStatus.SCHEDULED: ("next due first", "due", "run_at"),
    JobStatus.PENDING: (
        "as they will be claimed, highest priority first, then longest waiting first",
        "waiting",
        "ready_at",
    ),
    JobStatus.RUNNING: ("longest running first", "running", "claimed_at"),
    JobStatus.RETRYING: ("next attempt first", "next try", "run_at"),
    JobStatus.COMPLETED: ("last finished first", "finished", "finished_at"),
    JobStatus.DEAD_LETTERED: ("newest dead letter first", "finished", "finished_at"),
    JobStatus.CANCELLED: ("last cancelled first", "finished", "finished_at"),
}


class Tab(NamedTuple):
    name: str
    jobs: int
    link: str
    is_current: bool


class Line(NamedTuple):
    """A job in a list, and the instant that the list shows."""

    job: JobHead
    at: Any


def lines(jobs: Iterable[JobHead], column: str) -> list[Line]:
    return [Line(job, getattr(job, column)) for job in jobs]


async def job_list(request: PageRequest) -> dict[str, Any]:
    counts = await request.services.engine.jobs.counts()
    shared = {"title": "Jobs", "topics": [count.topic for count in counts][:MAX_NAMES]}
    given: dict[str, str] = {}
    try:
        given = given_fields(request)
        if job_id := read_id(given.get("error")):
            raise RedirectTo(url("/jobs", job_id))
        found = await _find_jobs(request, given, counts)
    except InvalidInput as error:
        return shared | {"given": given, "problem": str(error), "status": 400, "tabs": _tabs(counts, {}, None)}
    return shared | {"given": given, "problem": None} | found


async def _find_jobs(request: PageRequest, given: dict[str, str], counts: list[TopicCount]) -> dict[str, Any]:
    wanted = read_filter(given, await request.services.engine.read_clock())
    request.caller.check(VIEWING, wanted.topic or "*")
    heads, next_page = await search(
        list_jobs(request), wanted, after=request.param("after"), limit=PAGE, patience=PATIENCE
    )
    order, label, column = ORDERS[None if wanted.schedule_id else wanted.status]
    return {
        "tabs": _tabs(counts, given, wanted),
        "state": wanted.status,
        "lines": lines(heads, column),
        "order": order,
        "label": label,
        "next": next_page,
        "first": request.param("after") is None,
        "is_filtered": is_filtered(wanted),
        "is_error_only": wanted.status is not None and "status" not in given,
        "action": bulk_action(wanted.status),
        "may_act": request.may(ACTING, wanted.topic or "*"),
    }


def list_jobs(request: PageRequest) -> ListJobs[JobHead]:
    return as_shown(request.services.engine.jobs.list_heads, request.services.settings.redaction)


def is_filtered(wanted: JobFilter) -> bool:
    """Tell whether the filter has more than a topic and a state, whose jobs are counted."""
    return wanted != JobFilter(topic=wanted.topic, status=wanted.status)


def bulk_action(status: JobStatus | None) -> str | None:
    """Return what can be done with all jobs of a list at once."""
    if status is JobStatus.DEAD_LETTERED:
        return "replay"
    if status in (JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRYING):
        return "cancel"
    return None


def count_of(counts: Iterable[TopicCount], topic: str | None, status: JobStatus | None) -> int:
    """Return the exact number of jobs of a topic, or of all topics, and in a state, or in all states."""
    return sum(
        jobs
        for count in counts
        if topic in (None, count.topic)
        for state, jobs in count.counts.items()
        if status in (None, state)
    )


def _tabs(counts: list[TopicCount], given: dict[str, str], wanted: JobFilter | None) -> list[Tab]:
    """Return a tab for all jobs and one for each state. Their numbers are filtered by the topic alone."""
    topic, current = (wanted.topic, wanted.status) if wanted else (None, None)
    return [
        Tab(
            status.lower().replace("_", " ") if status else "all",
            count_of(counts, topic, status),
            url("/jobs", **{**given, "status": status.lower() if status else None}),
            wanted is not None and status is current,
        )
        for status in (None, *JobStatus)
    ]


VIEWS = (View("/jobs", "jobs/list.html", job_list, VIEWING),)
