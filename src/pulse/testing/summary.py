"""What did a drain run, and what became of the jobs?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from pulse.model.jobs import Job, JobStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One run that failed, even if a later run of its job succeeded."""

    call: str
    error: str
    traceback: str | None

    def __str__(self) -> str:
        return "\n".join([f"{self.call}: {self.error}", *(self.traceback or "").splitlines()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """How many handlers a drain ran, and the states of their jobs now."""

    runs: int = 0
    completed: int = 0
    retrying: int = 0  # failed, to be tried again later
    snoozed: int = 0
    dead_lettered: int = 0
    cancelled: int = 0
    jobs: Sequence[Job] = field(default=(), repr=False, compare=False)
    failures: Sequence[Failure] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, runs: int, jobs: Sequence[Job], failures: Sequence[Failure]) -> Summary:
        counts = Counter(job.status for job in jobs)
        return cls(
            runs=runs,
            completed=counts[JobStatus.COMPLETED],
            retrying=counts[JobStatus.RETRYING],
            snoozed=counts[JobStatus.SCHEDULED],
            dead_lettered=counts[JobStatus.DEAD_LETTERED],
            cancelled=counts[JobStatus.CANCELLED],
            jobs=jobs,
            failures=failures,
        )


class DrainFailed(AssertionError):
    """A handler failed and the test asked for errors to be raised, or the drain could not finish."""
