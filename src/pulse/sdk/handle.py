"""What can be done with a job after it was enqueued?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from pulse.model.errors import JobCanceled, JobFailed, ResultTimeout
from pulse.model.jobs import FINISHED, Job, JobStatus

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.model.explaining import Explanation
    from pulse.sdk.app import Pulse
    from pulse.sdk.arguments import Result

R = TypeVar("R")

PIECE = 20.0  # seconds of one call
LONGEST = 1e9


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

    def explain(self) -> Explanation:
        """Why it is not running, and when it should be; `str` of it is for people."""
        return self._app.portal.call(lambda link: link.explain(self.id))

    async def aexplain(self) -> Explanation:
        return await self._app.portal.acall(lambda link: link.explain(self.id))

    def result(self, timeout: float | None = None) -> R:
        """Wait until it is finished. A dead letter raises JobFailed, a canceled one JobCanceled."""
        wait = _Wait(self.id, timeout)
        while wait.goes_on(job := self._app.portal.call(lambda link: link.wait(self.id, seconds=wait.next()))):
            pass
        return self._outcome(job)

    async def aresult(self, timeout: float | None = None) -> R:
        wait = _Wait(self.id, timeout)
        while wait.goes_on(job := await self._app.portal.acall(lambda link: link.wait(self.id, seconds=wait.next()))):
            pass
        return self._outcome(job)

    def _outcome(self, job: Job) -> R:
        if job.status is JobStatus.DEAD_LETTERED:
            raise JobFailed(job.id, job.last_error)
        if job.status is JobStatus.CANCELED:
            raise JobCanceled(job.id, job.last_error)
        return self._result.unpack(job.result)  # type: ignore[no-any-return]


class _Wait:
    """Until a job is finished or the time is up, in pieces that any server takes."""

    def __init__(self, job_id: UUID, timeout: float | None) -> None:
        self._job_id = job_id
        self._timeout = timeout
        self._give_up_at = time.monotonic() + (LONGEST if timeout is None else timeout)

    def next(self) -> float:
        return max(0.0, min(PIECE, self._give_up_at - time.monotonic()))

    def goes_on(self, job: Job) -> bool:
        if job.status in FINISHED:
            return False
        if self._timeout is not None and time.monotonic() >= self._give_up_at:
            raise ResultTimeout(self._job_id, job.status, self._timeout)
        return True


def _decoded(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)
