"""What can an operator ask over gRPC?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.doors.grpc.errors import Context, answering
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


async def nobody() -> list[WorkerSeen]:
    return []


class OperateDoor(pb_grpc.OperateServicer):
    def __init__(self, engine: Engine, *, workers: Workers = nobody, check: Check = allow) -> None:
        self._jobs = engine.jobs
        self._redaction = engine.settings.redaction
        self._find = as_shown(engine.jobs.list_page, self._redaction)
        self._find_heads = as_shown(engine.jobs.list_heads, self._redaction)
        self._explain = engine.explain
        self._statistics = engine.statistics
        self._page_bytes = engine.settings.message_limit // 2  # the rest of a message is room for what we did not count
        self._workers = workers
        self._check = check

    @answering
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

    @answering
    async def ListAttempts(self, request: pb.ListAttemptsRequest, _context: Context) -> pb.ListAttemptsResponse:
        job = await self._jobs.get(convert.read_id(request.id))
        self._check(VIEW, job.topic)
        attempts = await self._jobs.attempts(job.id)
        return pb.ListAttemptsResponse(attempts=[convert.write_attempt(attempt) for attempt in attempts])

    @answering
    async def ExplainJob(self, request: pb.ExplainJobRequest, _context: Context) -> pb.Explanation:
        found = await self._explain(convert.read_id(request.id))
        self._check(VIEW, found.topic)
        return convert_watching.write_explanation(found)

    @answering
    async def CancelJobs(self, request: pb.CancelJobsRequest, _context: Context) -> pb.ActResponse:
        ids = await self._read_ids(request.ids)
        return _answer(await self._jobs.cancel_many(ids, reason=request.reason))

    @answering
    async def ReplayJobs(self, request: pb.ReplayJobsRequest, _context: Context) -> pb.ActResponse:
        if bool(request.ids) == request.HasField("matching"):
            raise InvalidInput("give either ids or matching; an empty matching stands for all dead letters")
        if request.ids:
            return _answer(await self._jobs.replay_many(await self._read_ids(request.ids)))
        wanted = _read_dead(request.matching)
        self._check(ACT, wanted.topic or "*")
        limit = _read_limit(request.limit)
        before = convert.read_instant(request, "before")
        swept = await self._jobs.replay_matching(
            wanted, after=request.after or None, limit=limit, before=before, find=self._find_heads
        )
        return pb.ActResponse(done=swept.done, next=swept.next)

    @answering
    async def RunJobNow(self, request: pb.RunJobNowRequest, _context: Context) -> pb.Job:
        [job_id] = await self._read_ids([request.id])
        return convert.write_job(await self._jobs.run_now(job_id))

    @answering
    async def PauseTopic(self, request: pb.PauseTopicRequest, _context: Context) -> pb.Pause:
        self._check(ACT, request.topic)
        return convert.write_pause(await self._jobs.pause(request.topic, reason=request.reason))

    @answering
    async def ResumeTopic(self, request: pb.ResumeTopicRequest, _context: Context) -> pb.ResumeTopicResponse:
        self._check(ACT, request.topic)
        return pb.ResumeTopicResponse(was_paused=await self._jobs.resume(request.topic))

    @answering
    async def ListTopics(self, _request: pb.ListTopicsRequest, _context: Context) -> pb.ListTopicsResponse:
        self._check(VIEW, "*")
        topics, pauses = await self._jobs.counts(), await self._jobs.pauses()
        return pb.ListTopicsResponse(
            topics=[convert.write_topic(topic) for topic in topics],
            pauses=[convert.write_pause(pause) for pause in pauses],
        )

    @answering
    async def ListWorkers(self, _request: pb.ListWorkersRequest, _context: Context) -> pb.ListWorkersResponse:
        self._check(VIEW, "*")
        return pb.ListWorkersResponse(workers=[convert.write_worker(worker) for worker in await self._workers()])

    @answering
    async def GetOverview(self, _request: pb.GetOverviewRequest, _context: Context) -> pb.Overview:
        self._check(VIEW, "*")
        return convert_watching.write_overview(await self._statistics.overview())

    async def _read_ids(self, texts: Sequence[str]) -> list[UUID]:
        """The jobs of a call, once the caller may act on every one of them."""
        check_size("ids", texts)
        ids = [convert.read_id(text) for text in texts]
        for topic in set((await self._jobs.topics_of(ids)).values()):
            self._check(ACT, topic)
        return ids


def _read_dead(message: pb.JobFilter) -> JobFilter:
    wanted = convert.read_filter(message)
    if wanted.status not in (None, JobStatus.DEAD_LETTERED):
        raise InvalidFilter(f"only dead letters can be replayed: leave status {wanted.status} out")
    return wanted


def _read_limit(limit: int) -> int:
    if limit > BATCH_LIMIT:
        raise InvalidOption("limit", limit, f"be at most {BATCH_LIMIT} (0 stands for {BATCH_LIMIT})")
    return limit or BATCH_LIMIT


def _answer(outcomes: Outcomes) -> pb.ActResponse:
    refusals = [
        pb.Refusal(id=str(job_id), code=error.code, message=str(error))
        for job_id, error in outcomes.items()
        if error is not None
    ]
    return pb.ActResponse(refusals=refusals, done=len(outcomes) - len(refusals))
