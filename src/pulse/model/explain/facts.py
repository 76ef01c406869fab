"""What can an explanation of a job that does not run say, and which facts does it need?"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from pulse.model.jobs import Job, JobStatus, Pause
    from pulse.model.workers import WorkerSeen

MAX_COUNTED = 10_000  # waiting jobs that are counted, from either end of the line
MIN_ENDS = 5  # jobs that must have ended recently before a pace is computed from them
MAX_NAMED = 3


class Reason(StrEnum):
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    DEAD_LETTERED = "DEAD_LETTERED"
    RUNNING = "RUNNING"
    WORKER_GONE = "WORKER_GONE"  # its worker is gone, and its lease has not run out yet
    LEASE_EXPIRED = "LEASE_EXPIRED"  # its lease has run out, and no watchdog has taken it back yet
    SCHEDULED = "SCHEDULED"  # waits for its time
    UNKNOWN_TASK = "UNKNOWN_TASK"  # postponed again and again: the workers of its topic have no such task
    RETRYING = "RETRYING"  # waits for its next attempt
    OVERDUE = "OVERDUE"  # its time has come, and no process has made it ready
    DEADLINE_PASSED = "DEADLINE_PASSED"  # it will be dead-lettered instead
    LOCKED = "LOCKED"  # another transaction holds its row
    PAUSED = "PAUSED"
    NO_WORKER = "NO_WORKER"  # none for its topic
    BEHIND = "BEHIND"  # others come first
    WORKERS_BUSY = "WORKERS_BUSY"  # it is the next, but no slot is free
    NEXT = "NEXT"  # nothing stands in its way
    OTHER = "OTHER"  # a reason that only a newer release knows


def unknown_task_error(task: str) -> str:
    """Return the error that a worker records on a job whose task it does not know. Explanations recognise this text."""
    return f"no worker here knows task {task!r}; it waits for one that does"


class Holder(msgspec.Struct, frozen=True):
    """A database session that may hold the lock on the job's row."""

    pid: int
    application: str | None
    state: str | None
    since: datetime | None
    query: str | None


class Pace(msgspec.Struct, frozen=True):
    """How many jobs of the topic have ended recently, and within which time."""

    jobs: int
    length: timedelta

    @property
    def per_second(self) -> float | None:
        """Return the jobs per second, or None if too few have ended to compute it."""
        return self.jobs / max(self.length.total_seconds(), 1.0) if self.jobs >= MIN_ENDS else None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about one job at one instant, from which its explanation is made."""

    job: Job
    now: datetime
    watchdog: timedelta  # how often expired leases are looked for
    pauses: list[Pause] = []  # that apply to its topic
    workers: list[WorkerSeen] = []  # all connected ones
    ahead: int | None = None  # jobs before it; none: more than are counted
    pace: Pace | None = None
    is_locked: bool = False
    holders: list[Holder] = []  # the one with the oldest transaction first

    @property
    def topic_workers(self) -> list[WorkerSeen]:
        return [worker for worker in self.workers if self.job.topic in worker.topics]

    @property
    def job_worker(self) -> WorkerSeen | None:
        return next((worker for worker in self.workers if worker.name == self.job.locked_by), None)

    @property
    def free_slots(self) -> int:
        return sum(max(0, worker.slots - worker.busy) for worker in self.topic_workers)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a job is not running: `text` is for people, the other fields are for programs."""

    job_id: UUID
    status: JobStatus
    topic: str
    reason: Reason
    text: str
    worker: str | None = None  # the worker that has it, or had it last
    ahead: int | None = None  # jobs before it in its topic; none: it does not wait in line, or too many are before it
    expected_at: datetime | None = None  # when it should begin; none: there is no estimate, and the text says why

    def __str__(self) -> str:
        return self.text
