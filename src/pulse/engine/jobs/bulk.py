"""How are many jobs searched or changed in steps that each cost little?

A list reads a limited number of rows for one page, so a page of rare matches may be short and not the last. To fill a
page, `search` reads further pages for a while; to act on all matches, `act_on_all` goes from page to page. Both stop
when their time is over, and return where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar
from uuid import UUID

import msgspec

from pulse.model.jobs import PAGE_LIMIT, JobFilter, JobStatus

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.engine.jobs.use_cases import Outcomes
    from pulse.model.jobs import Job, JobHead
    from pulse.model.redaction import Redaction

T_co = TypeVar("T_co", covariant=True)
J = TypeVar("J", "Job", "JobHead")


class AnyPage(Protocol[T_co]):
    @property
    def jobs(self) -> Sequence[T_co]: ...
    @property
    def next(self) -> str | None: ...


class ListJobs(Protocol[T_co]):
    """A function like engine.jobs.list_page."""

    async def __call__(self, wanted: JobFilter, *, after: str | None, limit: int) -> AnyPage[T_co]: ...


class BulkResult(NamedTuple):
    """How many jobs were changed or left alone, and where to go on."""

    done: int
    refused: int  # they had changed meanwhile, or were locked
    next: str | None  # none: this was all


class FilteredPage(NamedTuple, Generic[T_co]):
    jobs: Sequence[T_co]
    next: str | None


def as_shown(find: ListJobs[J], redaction: Redaction) -> ListJobs[J]:
    """Return a `find` for callers who may not see marked fields: it searches errors as they are shown, masked.

    A row may have been written before a field was marked. A search of the row itself would let a caller guess the
    value: by what it finds, by where the next page begins, by how long it takes. So the statement does not get the text
    at all, and a page reads no more rows than it may return.
    """

    async def find_shown(wanted: JobFilter, *, after: str | None, limit: int) -> AnyPage[J]:
        if wanted.error is None or not redaction:
            return await find(wanted, after=after, limit=limit)
        page = await find(msgspec.structs.replace(wanted, error=None), after=after, limit=limit)
        part = wanted.error.lower()
        return FilteredPage([job for job in page.jobs if part in (job.last_error or "").lower()], page.next)

    return find_shown


async def search(
    find: ListJobs[T_co], wanted: JobFilter, *, after: str | None = None, limit: int, patience: float
) -> tuple[list[T_co], str | None]:
    """Return a full page, or the matches found within `patience` seconds, and where to go on."""
    give_up_at = time.monotonic() + patience
    found: list[T_co] = []
    while True:
        page = await find(wanted, after=after, limit=limit - len(found))
        found += page.jobs
        after = page.next
        if after is None or len(found) == limit or time.monotonic() > give_up_at:
            return found, after


async def act_on_all(
    find: ListJobs[J],
    act: Callable[[Sequence[UUID]], Awaitable[Outcomes]],
    wanted: JobFilter,
    *,
    before: datetime,
    after: str | None = None,
    limit: int,
    patience: float = float("inf"),
) -> BulkResult:
    """Act on the jobs that match, in the order of their list, until `limit` of them are changed or patience ends.

    Jobs that came into their state after `before`, the database's time when the operation began, are left alone:
    otherwise a job that dies again right after its replay would be replayed for ever.
    """
    give_up_at = time.monotonic() + patience
    done = refused = 0
    while True:
        page = await find(wanted, after=after, limit=min(PAGE_LIMIT, limit - done))
        outcomes = await act([job.id for job in page.jobs if existed_before(job, before)])
        moved = sum(problem is None for problem in outcomes.values())
        done, refused, after = done + moved, refused + len(outcomes) - moved, page.next
        if after is None or done >= limit or time.monotonic() > give_up_at:
            return BulkResult(done, refused, after)


def existed_before(job: Job | JobHead, before: datetime) -> bool:
    """Tell whether a job was in its present state by `before`."""
    entered = {
        JobStatus.PENDING: job.ready_at,
        JobStatus.RUNNING: job.claimed_at,
        JobStatus.DEAD_LETTERED: job.finished_at,
    }
    return (entered.get(job.status) or job.submitted_at) <= before
