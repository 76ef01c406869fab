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

    from pulse.links.link import ProducerLink
    from pulse.model.explain.facts import Explanation
    from pulse.sdk.app import Pulse
    from pulse.sdk.arguments import Result

R = TypeVar("R")

CALL_SECONDS = 20.0  # the longest wait within one call
NO_TIMEOUT = 1e9  # seconds
EXPLAIN_PATIENCE = 1.0  # seconds to ask why the job is not finished, after the timeout


class JobHandle(Generic[R]):
    """A job, known by its id. Each method has a twin for coroutines, with an `a` in front."""

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
        """Return the whole job as it is now."""
        return self._app.link_thread.call(lambda link: link.get(self.id))

    async def ajob(self) -> Job:
        return await self._app.link_thread.acall(lambda link: link.get(self.id))

    def status(self) -> JobStatus:
        return self.job().status

    async def astatus(self) -> JobStatus:
        return (await self.ajob()).status

    def progress(self) -> Any:  # noqa: ANN401  any JSON value, as the handler last reported it
        return _decoded(self.job().progress)

    async def aprogress(self) -> Any:  # noqa: ANN401
        return _decoded((await self.ajob()).progress)

    def cancel(self, *, reason: str = "") -> None:
        """Cancel the job, waiting or running.

        A running handler is stopped at its worker's next heartbeat, and its result is refused.
        """
        self._app.link_thread.call(lambda link: link.cancel(self.id, reason=reason))

    async def acancel(self, *, reason: str = "") -> None:
        await self._app.link_thread.acall(lambda link: link.cancel(self.id, reason=reason))

    def explain(self) -> Explanation:
        """Explain why the job is not running and when it should; `str()` of the answer is text for people."""
        return self._app.link_thread.call(lambda link: link.explain(self.id))

    async def aexplain(self) -> Explanation:
        return await self._app.link_thread.acall(lambda link: link.explain(self.id))

    def result(self, timeout: Length | None = None) -> R:
        """Wait until the job is finished and return its result.

        Raises JobFailed for a dead letter, JobCancelled for a cancelled job, InvalidResult if the result does not fit
        the task's annotation, and ResultTimeout if the job is not finished in time.
        """
        wait = _Wait(timeout)
        while wait.continues(job := self._app.link_thread.call(lambda link: link.wait(self.id, seconds=wait.next()))):
            pass
        if job.status not in FINISHED:
            raise self._app.link_thread.call(lambda link: wait.timed_out(job, link))
        return self._outcome(job)

    async def aresult(self, timeout: Length | None = None) -> R:
        wait = _Wait(timeout)
        while wait.continues(
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
    """A wait for a job to finish, made of calls short enough for any server."""

    def __init__(self, timeout: Length | None) -> None:
        self._timeout = NO_TIMEOUT if timeout in (None, math.inf) else length("timeout", timeout).total_seconds()
        self._give_up_at = time.monotonic() + self._timeout

    def next(self) -> float:
        """Return how many seconds the next call may wait."""
        return max(0.0, min(CALL_SECONDS, self._give_up_at - time.monotonic()))

    def continues(self, job: Job) -> bool:
        return job.status not in FINISHED and time.monotonic() < self._give_up_at

    async def timed_out(self, job: Job, link: ProducerLink) -> ResultTimeout:
        """Return the error to raise, with the reason why the job waits if that can be read quickly.

        With a timeout of 0 the reason is left out: a program that polls should not pay for it at every call.
        """
        why = ""
        if job.status is not JobStatus.RUNNING and self._timeout > 0:
            with suppress(PulseError, TimeoutError):  # the token may not read, or the server does not answer
                async with asyncio.timeout(min(self._timeout, EXPLAIN_PATIENCE)):
                    why = " ".join((await link.explain(job.id)).text.split())
        return ResultTimeout(job.id, job.status, self._timeout, why=why)


def _decoded(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)
