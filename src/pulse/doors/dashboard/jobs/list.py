"""Which jobs are there? The list, with its filter."""

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
PATIENCE = 0.15  # seconds to go on for a full page, once a filter has to pick
MAX_NAMES = 200  # of topics that a field suggests

# In which order each state is listed, and the instant that matters there.
ORDERS: dict[JobStatus | None, tuple[str, str, str]] = {
    None: ("newest first", "submitted", "submitted_at"),
    JobStatus.SCHEDULED: ("the next to fall due first", "due", "run_at"),
    JobStatus.PENDING: (
        "as they will be claimed: the most urgent first, then the longest waiting",
        "waiting",
        "ready_at",
    ),
    JobStatus.RUNNING: ("the longest running first", "running", "claimed_at"),
    JobStatus.RETRYING: ("the next to be tried again first", "next try", "run_at"),
    JobStatus.COMPLETED: ("the last finished first", "finished", "finished_at"),
    JobStatus.DEAD_LETTERED: ("the last to die first", "finished", "finished_at"),
    JobStatus.CANCELLED: ("the last cancelled first", "finished", "finished_at"),
}


class Tab(NamedTuple):
    name: str
    jobs: int
    link: str
    is_current: bool


class Line(NamedTuple):
    """A job in a list, and the instant by which the list is ordered."""

    job: JobHead
    at: Any


def lines(jobs: Iterable[JobHead], column: str) -> list[Line]:
    return [Line(job, getattr(job, column)) for job in jobs]


async def job_list(look: PageRequest) -> dict[str, Any]:
    counts = await look.served.engine.jobs.counts()
    shared = {"title": "Jobs", "topics": [count.topic for count in counts][:MAX_NAMES]}
    given: dict[str, str] = {}
    try:
        given = given_fields(look)
        if job_id := read_id(given.get("error")):
            raise RedirectTo(url("/jobs", job_id))
        found = await _found(look, given, counts)
    except InvalidInput as error:
        return shared | {"given": given, "problem": str(error), "status": 400, "tabs": _tabs(counts, {}, None)}
    return shared | {"given": given, "problem": None} | found


async def _found(look: PageRequest, given: dict[str, str], counts: list[TopicCount]) -> dict[str, Any]:
    wanted = read_filter(given, await look.served.engine.read_clock())
    look.caller.check(VIEWING, wanted.topic or "*")
    heads, following = await search(find_shown(look), wanted, after=look.given("after"), limit=PAGE, patience=PATIENCE)
    order, label, column = ORDERS[None if wanted.schedule_id else wanted.status]
    return {
        "tabs": _tabs(counts, given, wanted),
        "state": wanted.status,
        "lines": lines(heads, column),
        "order": order,
        "label": label,
        "next": following,
        "first": look.given("after") is None,
        "is_picking": is_picking(wanted),
        "is_error_only": wanted.status is not None and "status" not in given,
        "deed": deed_for(wanted.status),
        "may_act": look.may(ACTING, wanted.topic or "*"),
    }


def find_shown(look: PageRequest) -> ListJobs[JobHead]:
    return as_shown(look.served.engine.jobs.list_heads, look.served.settings.redaction)


def is_picking(wanted: JobFilter) -> bool:
    """Whether more is asked for than a topic and a state, which are counted."""
    return wanted != JobFilter(topic=wanted.topic, status=wanted.status)


def deed_for(status: JobStatus | None) -> str | None:
    """What can be done to all jobs of a list at once."""
    if status is JobStatus.DEAD_LETTERED:
        return "replay"
    if status in (JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRYING):
        return "cancel"
    return None


def count_of(counts: Iterable[TopicCount], topic: str | None, status: JobStatus | None) -> int:
    """Exact, of all jobs of a topic or of every topic, and of a state or of all states."""
    return sum(
        jobs
        for count in counts
        if topic in (None, count.topic)
        for state, jobs in count.counts.items()
        if status in (None, state)
    )


def _tabs(counts: list[TopicCount], given: dict[str, str], wanted: JobFilter | None) -> list[Tab]:
    """One for all and for each state; the numbers are those of the topic, whatever else is asked for."""
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
