"""Which calls does a producer have over gRPC? They submit, read, await and cancel jobs.

Each method first finds out which topics a call is about, then checks that the caller may use them, and only then
answers or changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.doors.grpc.errors import Context, handle_errors
from pulse.model.errors import InvalidOption
from pulse.model.jobs import FINISHED, check_size
from pulse.wire import convert
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from pulse.engine.engine import Engine
    from pulse.engine.jobs.waiters import Waiters
    from pulse.model.jobs import NewJob, Submitted

LONGEST_WAIT = timedelta(seconds=20)

Submit = Callable[["Sequence[NewJob]"], Awaitable["list[Submitted]"]]
Check = Callable[[str, str], None]  # raises if the caller of this call lacks the right for the topic ("*": all topics)


def allow(_right: str, _topic: str) -> None:
    """Allow everything: the check of a server without tokens."""


class JobsDoor(pb_grpc.JobsServicer):
    def __init__(self, engine: Engine, waiters: Waiters, *, check: Check = allow, submit: Submit | None = None) -> None:
        self._jobs = engine.jobs
        self._submit = submit or engine.jobs.submit
        self._waiters = waiters
        self._check = check

    @handle_errors
    async def SubmitJobs(self, request: pb.SubmitJobsRequest, _context: Context) -> pb.SubmitJobsResponse:
        check_size("jobs", request.jobs)
        new = self._read_new(request.jobs)
        submitted = await self._submit(new)
        await asyncio.sleep(
            0
        )  # a worker may be waiting: send the jobs, or their claim, before this response is written
        return pb.SubmitJobsResponse(jobs=[pb.Submitted(id=str(each.id), created=each.created) for each in submitted])

    def _read_new(self, messages: Iterable[pb.NewJob]) -> list[NewJob]:
        """Return the jobs of a request, or raise at the first that is invalid or that the caller may not submit."""
        new: list[NewJob] = []
        allowed: set[str] = set()
        for message in messages:
            job = convert.read_new_job(message)
            if job.routed_topic not in allowed:
                self._check("submit", job.routed_topic)
                allowed.add(job.routed_topic)
            new.append(job)
        return new

    @handle_errors
    async def GetJob(self, request: pb.GetJobRequest, _context: Context) -> pb.Job:
        job = await self._jobs.get(convert.read_id(request.id))
        self._check("follow", job.topic)
        return convert.write_job(job)

    @handle_errors
    async def WaitJob(self, request: pb.WaitJobRequest, _context: Context) -> pb.Job:
        job_id, patience = convert.read_id(request.id), _read_patience(request)
        with self._waiters.enter(job_id) as waiter:
            job = await self._jobs.get(job_id)
            self._check("follow", job.topic)
            if job.status not in FINISHED and patience:
                job = await waiter.wait(patience) or await self._jobs.get(job_id)
        return convert.write_job(job)

    @handle_errors
    async def CancelJob(self, request: pb.CancelJobRequest, _context: Context) -> pb.Job:
        job_id = convert.read_id(request.id)
        job = await self._jobs.get(job_id)
        self._check("manage", job.topic)
        return convert.write_job(await self._jobs.cancel(job_id, reason=request.reason))


def _read_patience(request: pb.WaitJobRequest) -> timedelta:
    patience = convert.read_length(request, "patience")
    if patience is None:
        return LONGEST_WAIT
    if not timedelta() <= patience <= LONGEST_WAIT:
        raise InvalidOption("patience", str(patience), "be from 0 to 20 seconds (ask again to wait longer)")
    return patience
