"""What does a handler know about the job it runs, and what can it do with it?"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID, uuid4

from pulse.model.jobs import Claim, Lease, check_length
from pulse.sdk.arguments import write_json
from pulse.sdk.options import Length, length

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class Verdict(Exception):
    """A handler's own decision about its job. Raise one of its subclasses."""


class Snooze(Verdict):
    """Postpones the job without charging an attempt."""

    def __init__(self, in_: Length) -> None:
        super().__init__(f"snoozed for {in_}")
        self.delay = _wait("snooze", in_)


class RetryIn(Verdict):
    """Fails the attempt and tries again after this long instead of the usual wait."""

    def __init__(self, in_: Length, reason: str = "") -> None:
        super().__init__(reason or f"the handler asked for a retry in {in_}")
        self.delay = _wait("retry", in_)


class Discard(Verdict):
    """Ends the job at once as a dead letter, with this reason."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)


def _wait(option: str, in_: Length) -> timedelta:
    """Return the checked wait. A wrong one is refused in the handler's own line, not later when it is reported."""
    wait = length(option, in_)
    check_length(option, wait, timedelta())
    return wait


class Context:
    """One run of one job. A handler gets it by annotating its first parameter with this class."""

    __slots__ = ("_cancelled", "_claim", "_note", "_schema")

    def __init__(self, claim: Claim, *, schema: str) -> None:
        self._claim = claim
        self._schema = schema
        self._note: Callable[[str], None] | None = None
        self._cancelled = False

    def on_progress(self, note: Callable[[str], None]) -> None:
        """Pass progress to `note` from now on. Called by the worker."""
        self._note = note

    @property
    def job_id(self) -> UUID:
        return self._claim.id

    @property
    def task(self) -> str:
        return self._claim.task

    @property
    def topic(self) -> str:
        return self._claim.topic

    @property
    def attempt(self) -> int:
        """Return the number of this attempt, from 1. Snoozed and released runs do not count."""
        return self._claim.attempt - self._claim.refunded

    @property
    def max_attempts(self) -> int:
        return self._claim.max_attempts

    @property
    def last_attempt(self) -> bool:
        """Tell whether a failure of this attempt makes the job a dead letter."""
        return self._claim.is_last_attempt

    @property
    def deadline(self) -> datetime | None:
        return self._claim.deadline

    @property
    def scheduled_for(self) -> datetime | None:
        """Return the instant in the timetable for a job made by a schedule, however late it runs; else None."""
        return self._claim.scheduled_for

    @property
    def lease(self) -> Lease:
        """Return the lease, which proves that this run is the current one."""
        return Lease(self._claim.id, self._claim.lease_id)

    @property
    def cancelled(self) -> bool:
        """Tell whether this run should end: it was cancelled or timed out, its lease was lost, or its worker stops.

        A long sync handler should look at it now and then; an async one is cancelled with `CancelledError`.
        """
        return self._cancelled

    def progress(self, value: Any) -> None:  # noqa: ANN401  any JSON
        """Record the progress of the job, as any JSON value. Returns at once; of several in a row the last is kept."""
        text = write_json(value, lambda why: TypeError(f"progress cannot be written as JSON: {why}"))
        if self._note is not None:
            self._note(text)

    def retry(self, in_: Length, reason: str = "") -> NoReturn:
        """Raise RetryIn: fail this attempt, and start the next one after `in_`. `raise ctx.retry(…)` works as well."""
        raise RetryIn(in_, reason)

    def snooze(self, in_: Length) -> NoReturn:
        """Raise Snooze: run the job again after `in_`, without charging an attempt. `raise ctx.snooze(…)` works too."""
        raise Snooze(in_)

    def fence(self, conn: Any) -> Awaitable[None]:  # noqa: ANN401  a connection of any supported driver
        """Raise LeaseLost unless this run is still the current one, and keep it so until the transaction ends.

        `ctx.fence(conn)` on a sync connection, `await ctx.fence(conn)` on an async one.
        """
        from pulse.links.transactions import fence_through

        return fence_through(conn, self.lease, schema=self._schema)

    def complete(self, conn: Any, result: Any = None) -> Awaitable[None]:  # noqa: ANN401
        """Complete the job in the caller's transaction, so that its effect and its completion commit together.

        Raises LeaseLost if this run is no longer the current one. Await it on an async connection.
        """
        from pulse.links.transactions import complete_through

        text = write_json(result, lambda why: TypeError(f"the result cannot be written as JSON: {why}"))
        return complete_through(conn, self.lease, text, schema=self._schema)


current: ContextVar[Context | None] = ContextVar("pulse_job", default=None)


@contextmanager
def use_context(context: Context) -> Iterator[None]:
    """Make this the current job of everything that is logged and enqueued within."""
    token = current.set(context)
    try:
        yield
    finally:
        current.reset(token)


def mark_cancelled(context: Context) -> None:
    context._cancelled = True


def placeholder_context(task: str) -> Context:
    """Return a context for a task that is called as a plain function, such as in a unit test."""
    now = datetime.now(UTC)
    claim = Claim(uuid4(), 1, "", task, task, "{}", 1, 1, 0, 0, now, now, now, None, None, None)
    return Context(claim, schema="pulse")
