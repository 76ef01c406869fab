"""How does the SDK use an engine behind a server? By gRPC calls, each of which is repeated until it is answered."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pulse.links.remote.alarms import RemoteAlarms
from pulse.links.remote.errors import KINDS, make_error
from pulse.links.remote.job_stream import JobStream
from pulse.links.remote.schedules import RemoteSchedules
from pulse.links.remote.servers import Servers
from pulse.model.errors import BatchTooLarge, InvalidInput, ServerUnreachable
from pulse.model.ids import Mint, bucket_of_topic
from pulse.model.jobs import FINISHED, Submitted
from pulse.model.text import check_text
from pulse.wire import convert, convert_watching
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from uuid import UUID

    from pulse.links.link import Batch, WorkerState
    from pulse.model.explain.facts import Explanation
    from pulse.model.jobs import Claim, Job, Lease, NewJob, Progress, Report, ReportStatus
    from pulse.settings import Settings

T = TypeVar("T")

MAX_WAIT = 20.0  # seconds that a server waits for a job within one call
WORK_TIMEOUT = 4.0  # seconds for one try, so that a worker which stops has time to try a second server
PART_SIZE = 1 << 20  # bytes of results or progress in one call; a single item may be larger


@asynccontextmanager
async def open_remote(settings: Settings) -> AsyncIterator[RemoteLink]:
    async with Servers(settings) as servers:
        info = await servers.call(lambda server: server.info.GetServerInfo, pb.GetServerInfoRequest())
        link = RemoteLink(servers, settings, info)
        try:
            yield link
        finally:
            await link.close()


class RemoteLink:
    """A link to the servers of a URL."""

    def __init__(self, servers: Servers, settings: Settings, info: pb.ServerInfo) -> None:
        self._servers = servers
        self._settings = settings
        self._buckets = info.buckets
        self.lease = convert.read_clock(info.lease)
        self.heartbeat = convert.read_clock(info.heartbeat)
        self._silence = convert.read_clock(info.silence)
        self._message_limit = min(settings.message_limit, info.message_limit or settings.message_limit)
        self._mint = Mint()
        self._listener: Callable[[str], None] = lambda _: None
        self._on_dead_letter: Callable[[UUID], None] | None = None
        self._stream: JobStream | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._worker = ""
        self._schedules = RemoteSchedules(servers)
        self._alarms = RemoteAlarms(servers)

    # --- for programs that enqueue

    @property
    def schedules(self) -> RemoteSchedules:
        return self._schedules

    @property
    def alarms(self) -> RemoteAlarms:
        return self._alarms

    def start_notifying(self) -> None:
        """Do nothing: the server notifies others of the jobs that are enqueued."""

    async def submit(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Submit jobs. Their ids are minted here, so that a call whose answer was lost can be repeated."""
        minted = self._mint.ids([bucket_of_topic(job.routed_topic, self._buckets) for job in jobs])
        with_ids = [
            job if job.id else msgspec.structs.replace(job, id=own_id) for job, own_id in zip(jobs, minted, strict=True)
        ]
        request = pb.SubmitJobsRequest(jobs=[convert.write_new_job(job) for job in with_ids])
        # The jobs must fit into one message, because one transaction enqueues all of them or none.
        if len(with_ids) > 1 and (size := request.ByteSize()) > self._message_limit:
            raise BatchTooLarge("bytes of jobs", size, self._message_limit)
        answer = await self._servers.call(lambda server: server.jobs.SubmitJobs, request)
        return [Submitted(convert.read_id(job.id), job.created) for job in answer.jobs]

    async def get(self, job_id: UUID) -> Job:
        request = pb.GetJobRequest(id=str(job_id))
        return convert.read_job(await self._servers.call(lambda server: server.jobs.GetJob, request))

    async def wait(self, job_id: UUID, *, seconds: float) -> Job:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + seconds
        while True:
            patience = max(0.0, min(MAX_WAIT, give_up_at - loop.time()))
            request = pb.WaitJobRequest(id=str(job_id), patience=convert.write_length(timedelta(seconds=patience)))
            answer = await self._servers.call(lambda server: server.jobs.WaitJob, request, timeout=patience + 10)
            job = convert.read_job(answer)
            if job.status in FINISHED or loop.time() >= give_up_at:
                return job

    async def cancel(self, job_id: UUID, *, reason: str) -> Job:
        request = pb.CancelJobRequest(id=str(job_id), reason=check_text("reason", reason, 2_000) if reason else "")
        return convert.read_job(await self._servers.call(lambda server: server.jobs.CancelJob, request))

    async def explain(self, job_id: UUID) -> Explanation:
        request = pb.ExplainJobRequest(id=str(job_id))
        answer = await self._servers.call(lambda server: server.operate.ExplainJob, request)
        return convert_watching.read_explanation(answer)

    # --- for workers

    @property
    def metrics(self) -> None:
        """Return None: the servers have the metrics."""

    def start(self, state: WorkerState) -> None:
        self._worker = state.name
        self._stream = JobStream(self._servers, state, self._listener, self._on_dead_letter, silence=self._silence)
        self._streaming = asyncio.create_task(self._stream.run(), name="pulse stream")

    async def check(self) -> None:
        """Raise unless a stream is open. That a server answers is not enough: without a stream it sends no jobs."""
        if self._stream is None or not self._stream.is_open:
            raise ServerUnreachable("no stream of jobs is open")

    async def check_access(self, worker: str, topics: Sequence[str]) -> None:
        """Send a heartbeat without leases. It requires the right to work on these topics, and changes nothing.

        Servers of an older release require only the right to work on any topic.
        """
        request = pb.HeartbeatRequest(worker=worker, topics=topics)
        await self._servers.call(lambda server: server.work.Heartbeat, request)

    def on_ready(self, listener: Callable[[str], None]) -> None:
        self._listener = listener

    def on_dead_letter(self, listener: Callable[[UUID], None]) -> None:
        """Call `listener` with dead letters. The servers find them, and notify one worker of each."""
        self._on_dead_letter = listener

    async def get_dead_letter(self, job_id: UUID) -> Job | None:
        request = pb.GetDeadLetterRequest(id=str(job_id))
        answer = await self._servers.call(lambda server: server.work.GetDeadLetter, request)
        return convert.read_job(answer.job) if answer.HasField("job") else None

    async def ready_topics(self, topics: Sequence[str]) -> list[str]:
        """Return nothing: the server sends jobs by itself."""
        return []

    async def claim(self, topic: str, *, worker: str, slots: int) -> Batch:
        assert self._stream is not None
        return self._stream.take(topic, slots)

    async def stop_claiming(self) -> Sequence[Claim]:
        if self._stream is None or self._streaming is None:
            return []
        await self._stream.close()
        self._streaming.cancel()
        await asyncio.gather(self._streaming, return_exceptions=True)
        await self._stream.settle()
        return self._stream.take_all()

    async def report(self, reports: Sequence[Report]) -> list[ReportStatus]:
        answers: list[ReportStatus] = []
        for part in _by_size(reports, _size_of_report):
            answers += await self._report(part)
        return answers

    async def _report(self, reports: Sequence[Report]) -> list[ReportStatus]:
        credit = self._stream.credit() if self._stream else None
        request = pb.ReportResultsRequest(
            worker=self._worker, reports=[convert.write_report(report) for report in reports], credit=credit
        )
        # The server that holds the stream is asked first, because only it uses the credit.
        first = self._stream.server if self._stream else None
        answer = await self._servers.call(
            lambda server: server.work.ReportResults, request, timeout=WORK_TIMEOUT, first=first
        )
        return _read_answers(answer)

    async def progress(self, progress: Sequence[Progress]) -> list[ReportStatus]:
        answers: list[ReportStatus] = []
        for part in _by_size(progress, lambda each: _size(each.value)):
            answers += await self._progress(part)
        return answers

    async def _progress(self, progress: Sequence[Progress]) -> list[ReportStatus]:
        request = pb.ReportProgressRequest(
            worker=self._worker, progress=[convert.write_progress(item) for item in progress]
        )
        answer = await self._servers.call(lambda server: server.work.ReportProgress, request, timeout=WORK_TIMEOUT)
        return _read_answers(answer)

    async def release(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        request = pb.ReleaseJobsRequest(worker=self._worker, leases=[convert.write_lease(lease) for lease in leases])
        first = self._stream.server if self._stream else None
        answer = await self._servers.call(
            lambda server: server.work.ReleaseJobs, request, timeout=WORK_TIMEOUT, first=first
        )
        if self._stream is not None:
            self._stream.send_credit()
        return _read_answers(answer)

    @asynccontextmanager
    async def open_heartbeats(self) -> AsyncIterator[RemoteHeartbeats]:
        async with Servers(self._settings) as servers:
            yield RemoteHeartbeats(servers, self)

    @property
    def worker(self) -> str:
        return self._worker

    async def close(self) -> None:
        if self._streaming is not None:
            self._streaming.cancel()
            with suppress(asyncio.CancelledError):
                await self._streaming


def _read_answers(response: Any) -> list[ReportStatus]:  # noqa: ANN401  four responses have answers and refusals
    """Return the answers, or raise the first refusal: the caller halves the batch until only that item is left."""
    for refusal in response.refusals:
        raise make_error(KINDS.get(refusal.code, InvalidInput), refusal.message)
    return convert.read_answers(response.answers)


def _by_size(items: Sequence[T], size_of: Callable[[T], int]) -> list[list[T]]:
    """Split items into parts small enough for any server."""
    parts: list[list[T]] = [[]]
    size = 0
    for item in items:
        item_size = size_of(item)
        size += item_size
        if size > PART_SIZE and parts[-1]:
            parts.append([])
            size = item_size
        parts[-1].append(item)
    return parts


def _size_of_report(report: Report) -> int:
    return _size(report.result or "") + _size(report.error) + _size(report.traceback or "")


def _size(text: str) -> int:
    """Return the number of bytes of a text, or more: counting them exactly costs as much as writing them."""
    return len(text) if text.isascii() else 4 * len(text)


class RemoteHeartbeats:
    """Heartbeats over channels of their own."""

    def __init__(self, servers: Servers, link: RemoteLink) -> None:
        self._servers = servers
        self._link = link
        self._timeout = min(5.0, link.lease / 6)  # so that two servers can be tried in the time for one heartbeat

    async def heartbeat(self, leases: Sequence[Lease]) -> list[ReportStatus]:
        request = pb.HeartbeatRequest(worker=self._link.worker, leases=[convert.write_lease(lease) for lease in leases])
        answer = await self._servers.call(lambda server: server.work.Heartbeat, request, timeout=self._timeout)
        return _read_answers(answer)

    async def rest(self) -> None:
        """Keep the channels open: an idle one costs a server next to nothing."""
