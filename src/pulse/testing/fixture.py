"""What can a test ask of the jobs its code has enqueued, and what can it do with them?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse.model.jobs import PAGE_LIMIT, Job, JobFilter
from pulse.sdk.options import Length, length
from pulse.testing.calls import Call, show_jobs
from pulse.testing.summary import DrainFailed, Summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.engine.engine import Engine
    from pulse.sdk.task import Task
    from pulse.testing.stage import Stage


class PulseFixture:
    """The `pulse` fixture. While a test has it, every `Pulse` app of the process works on a database of the tests'.

    Nothing runs by itself: `drain` runs what is ready. All methods may be called from sync tests and from coroutines.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._ahead = timedelta()

    @property
    def database_url(self) -> str:
        """Where the jobs are. Keep the application's own tables there too, and `using(conn=…)` works in tests."""
        return str(self._stage.settings.database_url)

    @property
    def schema(self) -> str:
        return self._stage.settings.schema

    # --- looking

    def enqueued(self, task: Task[..., Any, Any] | str | None = None) -> list[Job]:
        """The jobs enqueued in this test, of one task or of all, in that order. What became of them does not matter."""
        jobs = self._stage.ask(_all_jobs)
        return jobs if task is None else [job for job in jobs if Call(task, (), {}).is_of(job)]

    def assert_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        /,
        *args: Any,  # noqa: ANN401
        times: int | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> list[Job]:
        """That the task was enqueued with these arguments; those not given may be anything. Answers with the jobs.

        With `times`, exactly so often. An argument is compared with what the handler will get.
        """
        __tracebackhide__ = True
        call, jobs = Call(task, args, kwargs), self.enqueued()
        found = [job for job in jobs if call.matches(job)]
        if times is None and not found:
            raise AssertionError(f"{call} was not enqueued. {self._instead(call, jobs)}")
        if times is not None and len(found) != times:
            raise AssertionError(f"{call} was enqueued {_count(len(found))}, not {times}. {self._instead(call, jobs)}")
        return found

    def refute_enqueued(self, task: Task[..., Any, Any] | str, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """That the task was not enqueued with these arguments; with none given, not at all."""
        __tracebackhide__ = True
        call = Call(task, args, kwargs)
        if found := [job for job in self.enqueued() if call.matches(job)]:
            raise AssertionError(f"{call} was enqueued {_count(len(found))}:\n{show_jobs(found, self._now())}")

    def _instead(self, call: Call, jobs: Sequence[Job]) -> str:
        if not jobs:
            return "Nothing was."
        nearest_first = sorted(jobs, key=lambda job: not call.is_of(job))
        return f"What was:\n{show_jobs(nearest_first, self._now())}"

    # --- running

    def drain(self, *, raise_errors: bool = False) -> Summary:
        """Run everything that is ready, and what that enqueues, until nothing is. Answers with what happened.

        Jobs go through a real worker in this process. It has a thread and an event loop of its own, the same for all
        tests; in a coroutine, `adrain` uses the loop at hand. A failure is kept on its job, as in life, and raised only
        with `raise_errors`.
        """
        __tracebackhide__ = True
        return _judged(self._stage.drain(), raise_errors=raise_errors)

    async def adrain(self, *, raise_errors: bool = False) -> Summary:
        """As `drain`, with async handlers on the event loop of the test."""
        __tracebackhide__ = True
        return _judged(await self._stage.adrain(), raise_errors=raise_errors)

    # --- time

    def travel(self, by: Length) -> None:
        """Move the database's time ahead: `pulse.travel("5m")`. What falls due by that is run by the next drain."""
        ahead = length("travel", by)
        if ahead < timedelta():
            raise ValueError(f"time only goes forward, not by {by}")
        self._ahead += ahead
        self._stage.shift_time(self._ahead)

    def _now(self) -> datetime:
        return datetime.now(UTC) + self._ahead


async def _all_jobs(engine: Engine) -> list[Job]:
    jobs: list[Job] = []
    cursor: str | None = None
    while True:
        page = await engine.jobs.list_page(JobFilter(), after=cursor, limit=PAGE_LIMIT)
        jobs += page.jobs
        if page.next is None:
            return sorted(jobs, key=lambda job: (job.submitted_at, job.id))
        cursor = page.next


def _judged(summary: Summary, *, raise_errors: bool) -> Summary:
    __tracebackhide__ = True
    if raise_errors and summary.failures:
        many = "a run failed" if len(summary.failures) == 1 else f"{len(summary.failures)} runs failed"
        raise DrainFailed("\n\n".join([f"{many}:", *map(str, summary.failures)]))
    return summary


def _count(times: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(times, f"{times} times")
