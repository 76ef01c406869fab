"""Which calls does an operator have over gRPC? They list, explain, cancel and replay jobs, and pause topics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.doors.grpc.errors import Context, handle_errors
from pulse.doors.grpc.jobs import Check, allow
from pulse.doors.page_size import how_many_fit
from pulse.engine.jobs.bulk import as_shown
from pulse.model.errors import InvalidFilter, InvalidInput, InvalidOption
from pulse.model.jobs import BATCH_LIMIT, JobFilter, JobStatus, check_size
from pulse.model.workers import WorkerSeen
from pulse.wire import convert, convert_watching
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from pulse.engine.engine import Engine
    from pulse.engine.jobs.use_cases import Outcomes

PAGE = 50
VIEW, ACT = "view", "operate"

Workers = Callable[[], Awaitable[Iterable[WorkerSeen]]]


async def no_workers() -> list[WorkerSeen]:
    return []


class OperateDoor(pb_grpc.OperateServicer):
    def __init__(self, engine: Engine, *, workers: Workers = no_workers, check: Check = allow) -> None:
        self._jobs = engine.jobs
        self._redaction = engine.settings.redaction
        self._find = as_shown(engine.jobs.list_page, self._redaction)
        self._find_heads = as_shown(engine.jobs.list_heads, self._redaction)
        self._explain = engine.explain
        self._statistics = engine.statistics
        self._page_bytes = engine.settings.message_limit // 2  # the other half is for what the sizes do not count
        self._workers = workers
        self._check = check

    @handle_errors
    async def ListJobs(self, request: pb.ListJobsRequest, _context: Context) -> pb.ListJobsResponse:
        wanted = convert.read_filter(request.filter)
        self._check(VIEW, wanted.topic or "*")
        after = request.after or None
        page = await self._find(wanted, after=after, limit=request.limit or PAGE)
        jobs = [convert.write_job(job) for job in page.jobs]
        if len(jobs) > (fitting := how_many_fit((each.ByteSize() for each in jobs), self._page_bytes)):
            page = await self._find(wanted, after=after, limit=fitting)
            jobs = [convert.write_job(job) for job in page.jobs]
        return pb.ListJobsResponse(jobs=jobs, next=page.next)

    @handle_errors
    async def ListAttempts(self, request: pb.ListAttemptsRequest, _context: Context) -> pb.ListAttemptsResponse:
        job = await self._jobs.get(convert.read_id(request.id))
        self._check(VIEW, job.topic)
        attempts = await self._jobs.attempts(job.id)
        return pb.ListAttemptsResponse(attempts=[convert.write_attempt(attempt) for attempt in attempts])

    @handle_errors
    async def ExplainJob(self, request: pb.ExplainJobRequest, _context: Context) -> pb.Explanation:
        found = await self._explain(convert.read_id(request.id))
        self._check(VIEW, found.topic)
        return convert_watching.write_explanation(found)

    @handle_errors
    async def CancelJobs(self, request: pb.CancelJobsRequest, _context: Context) -> pb.ActResponse:
        ids = await self._read_ids(request.ids)
        return _write_outcomes(await self._jobs.cancel_many(ids, reason=request.reason))

    @handle_errors
    async def ReplayJobs(self, request: pb.ReplayJobsRequest, _context: Context) -> pb.ActResponse:
        if bool(request.ids) == request.HasField("matching"):
            raise InvalidInput("give either ids or matching; an empty matching means all dead letters")
        if request.ids:
            return _write_outcomes(await self._jobs.replay_many(await self._read_ids(request.ids)))
        wanted = _read_dead_letter_filter(request.matching)
        self._check(ACT, wanted.topic or "*")
        limit = _read_limit(request.limit)
        before = convert.read_instant(request, "before")
        result = await self._jobs.replay_matching(
            wanted, after=request.after or None, limit=limit, before=before, find=self._find_heads
        )
        return pb.ActResponse(done=result.done, next=result.next)

    @handle_errors
    async def RunJobNow(self, request: pb.RunJobNowRequest, _context: Context) -> pb.Job:
        [job_id] = await self._read_ids([request.id])
        return convert.write_job(await self._jobs.run_now(job_id))

    @handle_errors
    async def PauseTopic(self, request: pb.PauseTopicRequest, _context: Context) -> pb.Pause:
        self._check(ACT, request.topic)
        return convert.write_pause(await self._jobs.pause(request.topic, reason=request.reason))

    @handle_errors
    async def ResumeTopic(self, request: pb.ResumeTopicRequest, _context: Context) -> pb.ResumeTopicResponse:
        self._check(ACT, request.topic)
        return pb.ResumeTopicResponse(was_paused=await self._jobs.resume(request.topic))

    @handle_errors
    async def ListTopics(self, _request: pb.ListTopicsRequest, _context: Context) -> pb.ListTopicsResponse:
        self._check(VIEW, "*")
        topics, pauses = await self._jobs.counts(), await self._jobs.pauses()
        return pb.ListTopicsResponse(
            topics=[convert.write_topic(topic) for topic in topics],
            pauses=[convert.write_pause(pause) for pause in pauses],
        )

    @handle_errors
    async def ListWorkers(self, _request: pb.ListWorkersRequest, _context: Context) -> pb.ListWorkersResponse:
        self._check(VIEW, "*")
        return pb.ListWorkersResponse(workers=[convert.write_worker(worker) for worker in await self._workers()])

    @handle_errors
    async def GetOverview(self, _request: pb.GetOverviewRequest, _context: Context) -> pb.Overview:
        self._check(VIEW, "*")
        return convert_watching.write_overview(await self._statistics.overview())

    async def _read_ids(self, texts: Sequence[str]) -> list[UUID]:
        """Return the ids of a call, after checking that the caller may act on every one of these jobs."""
        check_size("ids", texts)
        ids = [convert.read_id(text) for text in texts]
        for topic in set((await self._jobs.topics_of(ids)).values()):
            self._check(ACT, topic)
        return ids


def _read_dead_letter_filter(message: pb.JobFilter) -> JobFilter:
    wanted = convert.read_filter(message)
    if wanted.status not in (None, JobStatus.DEAD_LETTERED):
        raise InvalidFilter(f"only dead letters can be replayed: leave status {wanted.status} out")
    return wanted


def _read_limit(limit: int) -> int:
    if limit > BATCH_LIMIT:
        raise InvalidOption("limit", limit, f"be at most {BATCH_LIMIT} (0 means {BATCH_LIMIT})")
    return limit or BATCH_LIMIT


def _write_outcomes(outcomes: Outcomes) -> pb.ActResponse:
    refusals = [
        pb.Refusal(id=str(job_id), code=error.code, message=str(error))
        for job_id, error in outcomes.items()
        if error is not None
    ]
    return pb.ActResponse(refusals=refusals, done=len(outcomes) - len(refusals))
