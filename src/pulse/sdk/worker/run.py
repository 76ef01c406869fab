"""What does a worker remember about a job while it holds it?"""

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
    """Why a run is ended from outside."""

    TIMEOUT = "timed out"
    LOST = "lease lost"  # another worker may have it; nothing is reported
    CANCELLED = "cancelled"
    STOPPING = "worker stopping"  # given back, uncharged


class Run:
    """One claim being worked on."""

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
        self.work: asyncio.Task[None] | None = None  # on the loop
        self.kill: Callable[[], None] | None = None  # in a process
        self.timer: asyncio.TimerHandle | None = None
        self.report: Report | None = None  # what the handler's end means
        self.started_at: float | None = None  # on the same clock; none where nobody is told how long it took
        self.took: float | None = None  # seconds
        self.has_begun = False
        self.is_concluded = False  # that, or what came in its stead, was said

    @property
    def charged_attempt(self) -> int:
        return self.context.attempt

    @property
    def may_begin(self) -> bool:
        """Whether it is still ours to begin: nobody has ended it, and this process did not stand still past its lease,
        so that others may have the job by now."""
        return self.end_reason is None and time.monotonic() < self.held_until

    def end(self, why: EndReason) -> bool:
        """End it as its kind can be ended; false if it was being ended already."""
        if self.end_reason is not None:
            return False
        self.end_reason = why
        mark_cancelled(self.context)
        if self.work is not None and self.has_begun:  # before that, cancelling would keep it from seeing to its own end
            self.work.cancel(why.value)
        if self.kill is not None:
            self.kill()
        return True
