"""How does a test inspect and run the jobs that its code has enqueued?"""

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
    from pulse.testing.database_session import DatabaseSession


class PulseFixture:
    """The `pulse` fixture. While a test uses it, every `Pulse` app of the process is connected to the test database.

    Nothing runs by itself: `drain` runs the jobs that are ready. All methods may be called from sync tests and from
    coroutines.
    """

    def __init__(self, session: DatabaseSession) -> None:
        self._session = session
        self._ahead = timedelta()

    @property
    def database_url(self) -> str:
        """Return the URL of the test database. With the application's own tables there, `using(conn=…)` works too."""
        return str(self._session.settings.database_url)

    @property
    def schema(self) -> str:
        return self._session.settings.schema

    # --- inspecting

    def enqueued(self, task: Task[..., Any, Any] | str | None = None) -> list[Job]:
        """Return the jobs enqueued in this test, of one task or of all, in the order they were enqueued.

        Jobs that have run or were cancelled since are included.
        """
        jobs = self._session.ask(_all_jobs)
        return jobs if task is None else [job for job in jobs if Call(task, (), {}).is_of(job)]

    def assert_enqueued(
        self,
        task: Task[..., Any, Any] | str,
        /,
        *args: Any,  # noqa: ANN401
        times: int | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> list[Job]:
        """Assert that the task was enqueued with these arguments, and return its jobs.

        Arguments that are not given may have any value. With `times`, the task must have been enqueued exactly that
        often. An argument is compared with the value that the handler will get.
        """
        __tracebackhide__ = True
        call, jobs = Call(task, args, kwargs), self.enqueued()
        found = [job for job in jobs if call.matches(job)]
        if times is None and not found:
            raise AssertionError(f"{call} was not enqueued. {self._show_enqueued(call, jobs)}")
        if times is not None and len(found) != times:
            enqueued = self._show_enqueued(call, jobs)
            raise AssertionError(f"{call} was enqueued {_count(len(found))}, not {_count(times)}. {enqueued}")
        return found

    def refute_enqueued(self, task: Task[..., Any, Any] | str, /, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Assert that the task was not enqueued with these arguments, or, without arguments, not at all."""
        __tracebackhide__ = True
        call = Call(task, args, kwargs)
        if found := [job for job in self.enqueued() if call.matches(job)]:
            raise AssertionError(f"{call} was enqueued {_count(len(found))}:\n{show_jobs(found, self._now())}")

    def _show_enqueued(self, call: Call, jobs: Sequence[Job]) -> str:
        if not jobs:
            return "No job was enqueued."
        same_task_first = sorted(jobs, key=lambda job: not call.is_of(job))
        return f"Enqueued jobs:\n{show_jobs(same_task_first, self._now())}"

    # --- running

    def drain(self, *, raise_errors: bool = False) -> Summary:
        """Run all jobs that are ready, and those that they enqueue, until none is left. Return a summary.

        Jobs go through a real worker in this process. It has a thread and an event loop of its own, the same for all
        tests; in a coroutine, `adrain` uses the current loop. A failure is stored on its job, as in production, and
        raised only with `raise_errors`.
        """
        __tracebackhide__ = True
        return _check_failures(self._session.drain(), raise_errors=raise_errors)

    async def adrain(self, *, raise_errors: bool = False) -> Summary:
        """Drain like `drain`, with async handlers on the event loop of the test."""
        __tracebackhide__ = True
        return _check_failures(await self._session.adrain(), raise_errors=raise_errors)

    # --- time

    def travel(self, by: Length) -> None:
        """Move the database's clock ahead: `pulse.travel("5m")`. Jobs that fall due are run by the next drain."""
        ahead = length("travel", by)
        if ahead < timedelta():
            raise ValueError(f"travel must go forward in time, not by {by}")
        self._ahead += ahead
        self._session.shift_time(self._ahead)

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


def _check_failures(summary: Summary, *, raise_errors: bool) -> Summary:
    __tracebackhide__ = True
    if raise_errors and summary.failures:
        count = "a run failed" if len(summary.failures) == 1 else f"{len(summary.failures)} runs failed"
        raise DrainFailed("\n\n".join([f"{count}:", *map(str, summary.failures)]))
    return summary


def _count(times: int) -> str:
    return {0: "not at all", 1: "once", 2: "twice"}.get(times, f"{times} times")
