"""What is there to say of a job that does not run, and what has to be known for it?"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from pulse.model.jobs import Job, JobStatus, Pause
    from pulse.model.workers import WorkerSeen

MAX_COUNTED = 10_000  # jobs in line that are looked at, from either end
MIN_ENDS = 5  # jobs that must have ended lately before a pace is read from them
MAX_NAMED = 3


class Reason(StrEnum):
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    DEAD_LETTERED = "DEAD_LETTERED"
    RUNNING = "RUNNING"
    WORKER_GONE = "WORKER_GONE"  # its worker is not there any more, and its lease has not run out yet
    LEASE_EXPIRED = "LEASE_EXPIRED"  # its worker is gone, and the watchdog has not been there yet
    SCHEDULED = "SCHEDULED"  # waits for its time
    UNKNOWN_TASK = "UNKNOWN_TASK"  # put off again and again: the workers of its topic have no such task
    RETRYING = "RETRYING"  # waits for its next attempt
    OVERDUE = "OVERDUE"  # its time has come, and nobody has made it ready
    DEADLINE_PASSED = "DEADLINE_PASSED"  # it will be dead-lettered instead
    LOCKED = "LOCKED"  # another transaction holds its row
    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"  # none for its topic
    BEHIND = "BEHIND"  # others come first
    WORKERS_BUSY = "WORKERS_BUSY"  # it is next, but for a place
    NEXT = "NEXT"  # nothing stands in its way
    OTHER = "OTHER"  # what only a newer release than this one knows


def unknown_task_error(task: str) -> str:
    """What a worker leaves on a job whose task it does not know; it is recognised by these words."""
    return f"no worker here knows task {task!r}; it waits for one that does"


class Holder(msgspec.Struct, frozen=True):
    """A session of the database that may hold the job's row, the one with the oldest transaction first."""

    pid: int
    application: str | None
    state: str | None
    since: datetime | None
    query: str | None


class Pace(msgspec.Struct, frozen=True):
    """How many jobs of the topic have ended lately, and in how long."""

    jobs: int
    length: timedelta

    @property
    def per_second(self) -> float | None:
        """None: too few to tell."""
        return self.jobs / max(self.length.total_seconds(), 1.0) if self.jobs >= MIN_ENDS else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one job, at one time."""

    job: Job
    now: datetime
    watchdog: timedelta  # how often leases are judged
    pauses: list[Pause] = []  # those that hold its topic
    workers: list[WorkerSeen] = []  # all of them
    ahead: int | None = None  # jobs before it; none: more than are counted
    pace: Pace | None = None
    is_locked: bool = False
    holders: list[Holder] = []

    @property
    def takers(self) -> list[WorkerSeen]:
        return [worker for worker in self.workers if self.job.topic in worker.topics]

    @property
    def holder(self) -> WorkerSeen | None:
        return next((worker for worker in self.workers if worker.name == self.job.locked_by), None)

    @property
    def free(self) -> int:
        return sum(max(0, worker.slots - worker.busy) for worker in self.takers)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running, for people in `text` and for programs in the rest."""

    job_id: UUID
    status: JobStatus
    topic: str
    reason: Reason
    text: str
    worker: str | None = None  # who holds it, or held it last
    ahead: int | None = None  # jobs before it in its topic, where it waits in line; none: not in line, or too many
    expected_at: datetime | None = None  # when it should begin; none: that cannot be reckoned, and the text says why

    def __str__(self) -> str:
        return self.text
