"""What can be done with a job after it was enqueued?"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pulse.model.errors import JobCanceled, JobFailed, ResultTimeout
from pulse.model.jobs import FINISHED, Job, JobStatus

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.sdk.app import Pulse
    from pulse.sdk.arguments import Result

R = TypeVar("R")

FIRST_WAIT, LONGEST_WAIT = 0.005, 0.25  # seconds between two looks


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
        return self._app.portal.call(lambda link: link.get(self.id))

    async def ajob(self) -> Job:
        return await self._app.portal.acall(lambda link: link.get(self.id))

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
        self._app.portal.call(lambda link: link.cancel(self.id, reason=reason))

    async def acancel(self, *, reason: str = "") -> None:
        await self._app.portal.acall(lambda link: link.cancel(self.id, reason=reason))

    def result(self, timeout: float | None = None) -> R:
        """Wait until it is finished. A dead letter raises JobFailed, a canceled one JobCanceled."""
        wait = _Wait(self.id, timeout)
        while (job := self.job()).status not in FINISHED:
            time.sleep(wait.next_pause(job))
        return self._outcome(job)

    async def aresult(self, timeout: float | None = None) -> R:
        wait = _Wait(self.id, timeout)
        while (job := await self.ajob()).status not in FINISHED:  # noqa: ASYNC110  there is no event to wait for
            await asyncio.sleep(wait.next_pause(job))
        return self._outcome(job)

    def _outcome(self, job: Job) -> R:
        if job.status is JobStatus.DEAD_LETTERED:
            raise JobFailed(job.id, job.last_error)
        if job.status is JobStatus.CANCELED:
            raise JobCanceled(job.id, job.last_error)
        return self._result.unpack(job.result)  # type: ignore[no-any-return]


class _Wait:
    """How long until the next look, and when to give up."""

    def __init__(self, job_id: UUID, timeout: float | None) -> None:
        self._job_id = job_id
        self._timeout = timeout
        self._started = time.monotonic()
        self._pause = FIRST_WAIT

    def next_pause(self, job: Job) -> float:
        pause, self._pause = self._pause, min(self._pause * 1.5, LONGEST_WAIT)
        if self._timeout is None:
            return pause
        left = self._started + self._timeout - time.monotonic()
        if left <= 0:
            raise ResultTimeout(self._job_id, job.status, self._timeout)
        return min(pause, left)


def _decoded(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)
