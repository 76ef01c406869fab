"""How are many jobs found, or acted upon, in steps that each cost little?

A list looks at a bounded number of rows for one page, so a page of a rare match may be short and have a next. Whoever
wants a full page goes on for a while, and whoever wants to act on all that match goes from page to page. Both may be
stopped by the clock, and say where to go on.
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
    """As engine.jobs.list_page."""

    async def __call__(self, wanted: JobFilter, *, after: str | None, limit: int) -> AnyPage[T_co]: ...


class BulkResult(NamedTuple):
    """What became of those that were met, and where to go on; none: all were."""

    done: int
    refused: int  # they had changed meanwhile, or were held
    next: str | None


class FilteredPage(NamedTuple, Generic[T_co]):
    jobs: Sequence[T_co]
    next: str | None


def as_shown(find: ListJobs[J], redaction: Redaction) -> ListJobs[J]:
    """A `find` for those who may not see what is marked: a part of an error is looked for in what is shown of it.

    A row may have been written before a field was marked. Were it searched, one could guess the value: by what is
    found, by where the next page begins, by how long it takes. So the statement is not told the text at all, and a page
    looks at no more rows than it may have.
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
    """A full page where there is one, or what was found within so many seconds; and where to go on."""
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
    """Act on those that match, in the order of their list, until `limit` of them were moved or patience ends.

    Only on those that were in their state by `before`, the database's time when the operation began: a job that is
    replayed and dies again at once would be replayed for ever.
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
    """Whether a job was in its state by then. What was submitted, claimed, made ready or died later was not."""
    entered = {
        JobStatus.PENDING: job.ready_at,
        JobStatus.RUNNING: job.claimed_at,
        JobStatus.DEAD_LETTERED: job.finished_at,
    }
    return (entered.get(job.status) or job.submitted_at) <= before
