"""What does a worker know about a job while it holds its lease?"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Any

from pulse.sdk.context import Context, mark_cancelled

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from pulse.model.jobs import Claim, Report
    from pulse.sdk.task import Task


class EndReason(Enum):
    """The reason why a run is ended from outside."""

    TIMEOUT = "timed out"
    LOST = "lease lost"  # another worker may have the job; nothing is reported
    CANCELLED = "cancelled"
    STOPPING = "worker stopping"  # the job is given back, and the attempt is not charged


class Run:
    """The run of one claim by this worker."""

    __slots__ = (
        "claim",
        "context",
        "end_reason",
        "has_begun",
        "held_until",
        "is_concluded",
        "kill",
        "report",
        "started_at",
        "task",
        "timer",
        "took",
        "work",
    )

    def __init__(self, claim: Claim, task: Task[..., Any, Any], context: Context, held_until: float) -> None:
        self.claim = claim
        self.task = task
        self.context = context
        self.held_until = held_until  # on this process's monotonic clock, never later than the lease
        self.end_reason: EndReason | None = None
        self.work: asyncio.Task[None] | None = None  # of a handler that runs on the loop
        self.kill: Callable[[], None] | None = None  # ends a handler that runs in a process
        self.timer: asyncio.TimerHandle | None = None
        self.report: Report | None = None  # the outcome of the handler, once it has ended
        self.started_at: float | None = None  # on the same clock; None if the run time is not logged
        self.took: float | None = None  # seconds
        self.has_begun = False
        self.is_concluded = False  # its report or release was passed on, or it has none

    @property
    def charged_attempt(self) -> int:
        return self.context.attempt

    @property
    def may_begin(self) -> bool:
        """Tell whether the handler may still begin: the run was not ended, and its lease has not passed, as it may have
        while this process was suspended."""
        return self.end_reason is None and time.monotonic() < self.held_until

    def end(self, why: EndReason) -> bool:
        """End the run in the way its handler allows. Return False if it was being ended already."""
        if self.end_reason is not None:
            return False
        self.end_reason = why
        mark_cancelled(self.context)
        if self.work is not None and self.has_begun:  # a task cancelled before it begins could not conclude the run
            self.work.cancel(why.value)
        if self.kill is not None:
            self.kill()
        return True
