"""What does a handler know about the job it runs, and what can it ask for?"""

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
    """A handler's own word on how its job goes on. Raise one of its kinds."""


class Snooze(Verdict):
    """Not now: run it again after a while, without charging an attempt."""

    def __init__(self, in_: Length) -> None:
        super().__init__(f"snoozed for {in_}")
        self.delay = _wait("snooze", in_)


class RetryIn(Verdict):
    """Failed: charge the attempt, and try again after this long instead of the usual wait."""

    def __init__(self, in_: Length, reason: str = "") -> None:
        super().__init__(reason or f"the handler asked for a retry in {in_}")
        self.delay = _wait("retry", in_)


class Discard(Verdict):
    """Never again: a dead letter at once, with this reason."""

    def __init__(self, reason: str = "discarded by its handler") -> None:
        super().__init__(reason)


def _wait(option: str, in_: Length) -> timedelta:
    """Checked here, in the handler's own line: where the report is made nobody could answer for it."""
    wait = length(option, in_)
    check_length(option, wait, timedelta())
    return wait


class Context:
    """One run of one job. Take it as the first parameter, annotated as such."""

    __slots__ = ("_cancelled", "_claim", "_note", "_schema")

    def __init__(self, claim: Claim, *, schema: str) -> None:
        self._claim = claim
        self._schema = schema
        self._note: Callable[[str], None] | None = None
        self._cancelled = False

    def on_progress(self, note: Callable[[str], None]) -> None:
        """Where progress goes: the worker's business."""
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
        """1 on the first try. Snoozed and released runs do not count."""
        return self._claim.attempt - self._claim.refunded

    @property
    def max_attempts(self) -> int:
        return self._claim.max_attempts

    @property
    def last_attempt(self) -> bool:
        """Whether a failure now makes it a dead letter."""
        return self._claim.is_last_attempt

    @property
    def deadline(self) -> datetime | None:
        return self._claim.deadline

    @property
    def scheduled_for(self) -> datetime | None:
        """For a job that a schedule made: the instant of its timetable, however late the job runs."""
        return self._claim.scheduled_for

    @property
    def lease(self) -> Lease:
        """What proves that this run is the current one."""
        return Lease(self._claim.id, self._claim.lease_id)

    @property
    def cancelled(self) -> bool:
        """True once nobody waits for this run: cancelled, timed out, lease lost, worker stopping. Look now and then
        in a long sync handler; an async one is cancelled by itself."""
        return self._cancelled

    def progress(self, value: Any) -> None:  # noqa: ANN401  any JSON
        """Show how far it is, as any JSON value. Returns at once; of several in a row the last one is kept."""
        text = write_json(value, lambda why: TypeError(f"progress cannot be written as JSON: {why}"))
        if self._note is not None:
            self._note(text)

    def retry(self, in_: Length, reason: str = "") -> NoReturn:
        """Raise RetryIn: this attempt failed, and the next one starts then. A `raise` in front does no harm."""
        raise RetryIn(in_, reason)

    def snooze(self, in_: Length) -> NoReturn:
        """Raise Snooze: not now, and not charged. A `raise` in front does no harm."""
        raise Snooze(in_)

    def fence(self, conn: Any) -> Awaitable[None]:  # noqa: ANN401  any connection we know
        """Fail with LeaseLost unless this run is still the current one, and keep it so until the transaction ends.

        `ctx.fence(conn)` on a sync connection, `await ctx.fence(conn)` on an async one.
        """
        from pulse.links.transactions import fence_through

        return fence_through(conn, self.lease, schema=self._schema)

    def complete(self, conn: Any, result: Any = None) -> Awaitable[None]:  # noqa: ANN401
        """Finish the job within this transaction, so that its effect and its completion commit together.

        Fails with LeaseLost if this run is no longer the current one. Await it on an async connection.
        """
        from pulse.links.transactions import complete_through

        text = write_json(result, lambda why: TypeError(f"the result cannot be written as JSON: {why}"))
        return complete_through(conn, self.lease, text, schema=self._schema)


current: ContextVar[Context | None] = ContextVar("pulse_job", default=None)


@contextmanager
def during(context: Context) -> Iterator[None]:
    """What is done and logged here is of this job."""
    token = current.set(context)
    try:
        yield
    finally:
        current.reset(token)


def mark_cancelled(context: Context) -> None:
    context._cancelled = True


def stand_in(task: str) -> Context:
    """For a task that is called as a plain function, in a unit test say."""
    now = datetime.now(UTC)
    claim = Claim(uuid4(), 1, "", task, task, "{}", 1, 1, 0, 0, now, now, now, None, None, None)
    return Context(claim, schema="pulse")
