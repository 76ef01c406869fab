"""What can be done with a job after it was enqueued?"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pulse.model.errors import JobCancelled, JobFailed, PulseError, ResultTimeout
from pulse.model.jobs import FINISHED, Job, JobStatus
from pulse.sdk.options import Length, length

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.links.link import Producing
    from pulse.model.explain.facts import Explanation
    from pulse.sdk.app import Pulse
    from pulse.sdk.arguments import Result

R = TypeVar("R")

PIECE = 20.0  # seconds of one call
LONGEST = 1e9
EXPLAIN_PATIENCE = 1.0  # seconds, after the time was up


class JobHandle(Generic[R]):
    """One job, by its id. Each method has a twin for coroutines, with an `a` in front."""

    __slots__ = ("_app", "_result", "id")

    def __init__(self, app: Pulse, job_id: UUID, result: Result) -> None:
        self.id = job_id
        self._app = app
        self._result = result

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def job(self) -> Job:
        """Everything there is to know about it."""
        return self._app.link_thread.call(lambda link: link.get(self.id))

    async def ajob(self) -> Job:
        return await self._app.link_thread.acall(lambda link: link.get(self.id))

    def status(self) -> JobStatus:
        return self.job().status

    async def astatus(self) -> JobStatus:
        return (await self.ajob()).status

    def progress(self) -> Any:  # noqa: ANN401  whatever the handler said last
        return _decoded(self.job().progress)

    async def aprogress(self) -> Any:  # noqa: ANN401
        return _decoded((await self.ajob()).progress)

    def cancel(self, *, reason: str = "") -> None:
        """Whether it waits or runs. A running handler is told at its next heartbeat, and its result is not taken."""
        self._app.link_thread.call(lambda link: link.cancel(self.id, reason=reason))

    async def acancel(self, *, reason: str = "") -> None:
        await self._app.link_thread.acall(lambda link: link.cancel(self.id, reason=reason))

    def explain(self) -> Explanation:
        """Why it is not running, and when it should be; `str` of it is for people."""
        return self._app.link_thread.call(lambda link: link.explain(self.id))

    async def aexplain(self) -> Explanation:
        return await self._app.link_thread.acall(lambda link: link.explain(self.id))

    def result(self, timeout: Length | None = None) -> R:
        """Wait until the job is finished and return its result.

        Raises JobFailed for a dead letter, JobCancelled for a cancelled job, and InvalidResult where the result does
        not fit the task's annotation.
        """
        wait = _Wait(timeout)
        while wait.goes_on(job := self._app.link_thread.call(lambda link: link.wait(self.id, seconds=wait.next()))):
            pass
        if job.status not in FINISHED:
            raise self._app.link_thread.call(lambda link: wait.timed_out(job, link))
        return self._outcome(job)

    async def aresult(self, timeout: Length | None = None) -> R:
        wait = _Wait(timeout)
        while wait.goes_on(
            job := await self._app.link_thread.acall(lambda link: link.wait(self.id, seconds=wait.next()))
        ):
            pass
        if job.status not in FINISHED:
            raise await self._app.link_thread.acall(lambda link: wait.timed_out(job, link))
        return self._outcome(job)

    def _outcome(self, job: Job) -> R:
        if job.status is JobStatus.DEAD_LETTERED:
            raise JobFailed(job.id, job.last_error)
        if job.status is JobStatus.CANCELLED:
            raise JobCancelled(job.id, job.last_error)
        return self._result.unpack(job.result, job.id)  # type: ignore[no-any-return]


class _Wait:
    """Until a job is finished or the time is up, in pieces that any server takes."""

    def __init__(self, timeout: Length | None) -> None:
        self._timeout = LONGEST if timeout in (None, math.inf) else length("timeout", timeout).total_seconds()
        self._give_up_at = time.monotonic() + self._timeout

    def next(self) -> float:
        return max(0.0, min(PIECE, self._give_up_at - time.monotonic()))

    def goes_on(self, job: Job) -> bool:
        return job.status not in FINISHED and time.monotonic() < self._give_up_at

    async def timed_out(self, job: Job, link: Producing) -> ResultTimeout:
        """The error to raise, with the reason if it can be had soon: nobody who gave up waiting waits long for it.

        Whoever looks again and again, with a timeout of 0, is not made to pay for it.
        """
        why = ""
        if job.status is not JobStatus.RUNNING and self._timeout > 0:
            with suppress(PulseError, TimeoutError):  # a token that may not read, a server that does not answer
                async with asyncio.timeout(min(self._timeout, EXPLAIN_PATIENCE)):
                    why = " ".join((await link.explain(job.id)).text.split())
        return ResultTimeout(job.id, job.status, self._timeout, why=why)


def _decoded(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)
