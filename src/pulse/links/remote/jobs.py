"""How do operators read and change jobs through a server? With the methods of engine.jobs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from pulse.engine.jobs.bulk import BulkResult
from pulse.links.remote.alarms import RemoteAlarms
from pulse.links.remote.errors import KINDS, make_error
from pulse.links.remote.schedules import RemoteSchedules
from pulse.links.remote.servers import Servers
from pulse.model.errors import Conflict
from pulse.model.jobs import BATCH_LIMIT, JobFilter, Page
from pulse.wire import convert, convert_watching
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime
    from uuid import UUID

    from pulse.engine.jobs.use_cases import Outcomes
    from pulse.model.explain.facts import Explanation
    from pulse.model.jobs import Attempt, Job, Pause, TopicCount
    from pulse.model.statistics import Overview
    from pulse.model.workers import WorkerSeen
    from pulse.settings import Settings

SLOW = 60.0  # seconds for calls that may touch ten thousand rows


class RemoteEngine:
    """The part of a server's engine that operators use."""

    def __init__(self, servers: Servers) -> None:
        self.jobs = RemoteJobs(servers)
        self.schedules = RemoteSchedules(servers)
        self.alarms = RemoteAlarms(servers)
        self.workers = RemoteWorkers(servers)
        self.statistics = RemoteStatistics(servers)
        self._servers = servers

    async def explain(self, job_id: UUID) -> Explanation:
        request = pb.ExplainJobRequest(id=str(job_id))
        answer = await self._servers.call(lambda server: server.operate.ExplainJob, request)
        return convert_watching.read_explanation(answer)


@asynccontextmanager
async def open_remote_engine(settings: Settings) -> AsyncIterator[RemoteEngine]:
    async with Servers(settings) as servers:
        yield RemoteEngine(servers)


class RemoteJobs:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def get(self, job_id: UUID) -> Job:
        request = pb.GetJobRequest(id=str(job_id))
        return convert.read_job(await self._servers.call(lambda server: server.jobs.GetJob, request))

    async def attempts(self, job_id: UUID) -> list[Attempt]:
        request = pb.ListAttemptsRequest(id=str(job_id))
        answer = await self._servers.call(lambda server: server.operate.ListAttempts, request)
        return [convert.read_attempt(attempt) for attempt in answer.attempts]

    async def list_page(self, wanted: JobFilter | None = None, *, after: str | None = None, limit: int = 50) -> Page:
        request = pb.ListJobsRequest(filter=convert.write_filter(wanted or JobFilter()), after=after or "", limit=limit)
        answer = await self._servers.call(lambda server: server.operate.ListJobs, request, timeout=SLOW)
        jobs = [convert.read_job(job) for job in answer.jobs]
        return Page(jobs, answer.next if answer.HasField("next") else None)

    async def cancel_many(self, job_ids: Sequence[UUID], *, reason: str = "") -> Outcomes:
        request = pb.CancelJobsRequest(ids=[str(job_id) for job_id in job_ids], reason=reason)
        answer = await self._servers.call(lambda server: server.operate.CancelJobs, request, timeout=SLOW)
        return _read_outcomes(job_ids, answer)

    async def replay_many(self, job_ids: Sequence[UUID]) -> Outcomes:
        request = pb.ReplayJobsRequest(ids=[str(job_id) for job_id in job_ids])
        answer = await self._servers.call(lambda server: server.operate.ReplayJobs, request, timeout=SLOW)
        return _read_outcomes(job_ids, answer)

    async def run_now(self, job_id: UUID) -> Job:
        request = pb.RunJobNowRequest(id=str(job_id))
        return convert.read_job(await self._servers.call(lambda server: server.operate.RunJobNow, request))

    async def replay_matching(
        self, wanted: JobFilter, *, after: str | None = None, limit: int = BATCH_LIMIT, before: datetime | None = None
    ) -> BulkResult:
        request = pb.ReplayJobsRequest(
            matching=convert.write_filter(wanted), limit=limit, after=after or "", before=convert.write_instant(before)
        )
        answer = await self._servers.call(lambda server: server.operate.ReplayJobs, request, timeout=SLOW)
        return BulkResult(answer.done, 0, answer.next if answer.HasField("next") else None)

    async def pause(self, topic: str = "*", *, reason: str = "") -> Pause:
        request = pb.PauseTopicRequest(topic=topic, reason=reason)
        return convert.read_pause(await self._servers.call(lambda server: server.operate.PauseTopic, request))

    async def resume(self, topic: str = "*") -> bool:
        request = pb.ResumeTopicRequest(topic=topic)
        return bool((await self._servers.call(lambda server: server.operate.ResumeTopic, request)).was_paused)

    async def pauses(self) -> list[Pause]:
        return [convert.read_pause(pause) for pause in (await self._list_topics()).pauses]

    async def counts(self) -> list[TopicCount]:
        return [convert.read_topic(topic) for topic in (await self._list_topics()).topics]

    async def _list_topics(self) -> pb.ListTopicsResponse:
        found: pb.ListTopicsResponse = await self._servers.call(
            lambda server: server.operate.ListTopics, pb.ListTopicsRequest()
        )
        return found


class RemoteWorkers:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def list(self) -> list[WorkerSeen]:
        answer = await self._servers.call(lambda server: server.operate.ListWorkers, pb.ListWorkersRequest())
        return [convert.read_worker(worker) for worker in answer.workers]


class RemoteStatistics:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def overview(self) -> Overview:
        answer = await self._servers.call(lambda server: server.operate.GetOverview, pb.GetOverviewRequest())
        return convert_watching.read_overview(answer)


def _read_outcomes(job_ids: Sequence[UUID], answer: pb.ActResponse) -> Outcomes:
    refused = {
        refusal.id: make_error(KINDS.get(refusal.code, Conflict), refusal.message) for refusal in answer.refusals
    }
    return {job_id: refused.get(str(job_id)) for job_id in job_ids}
