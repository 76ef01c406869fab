"""Does a worker that knows nothing but the contract get its jobs and keep them, and is every mistake of it refused?"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from pulse.doors.grpc import work
from pulse.engine.engine import Engine
from pulse.engine.jobs.lost_claims import LostClaims
from pulse.engine.jobs.use_cases import Jobs
from pulse.model.jobs import Claim, Job, JobStatus, Lease, Outcome, Report
from pulse.server import Server, open_server
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.grpc_client import Client, Refused, connected, refused
from tests.factories import a_new_job, claim_one, submit_one
from tests.waiting import connected as plainly_connected
from tests.waiting import until

Status = grpc.StatusCode
PATIENCE = 10.0
QUIET = 0.3  # seconds in which nothing more comes: six ticks


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    return replace(settings, listen="127.0.0.1:0", tick=timedelta(milliseconds=50))


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    async with open_server(settings) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with connected(str(server.address)) as client:
        yield client


class Stream:
    """One stream as a worker sees it."""

    def __init__(self, client: Client, call: Any, worker: str, metadata: Any) -> None:
        self._client = client
        self.call = call
        self.worker = worker
        self.metadata = metadata
        self.name = ""
        self.received = 0
        self._reading: asyncio.Task[Any] | None = None

    async def next(self, within: float = PATIENCE) -> pb.StreamJobsResponse | None:
        """The next message that is no ping; none if none comes. A read that was begun is waited for next time."""
        while True:
            self._reading = self._reading or asyncio.create_task(self.call.read())
            done, _ = await asyncio.wait([self._reading], timeout=within)
            if not done:
                return None
            message, self._reading = self._reading.result(), None
            if message is grpc.aio.EOF:
                return None
            self.received = max(self.received, message.sequence)
            if message.WhichOneof("message") != "ping":
                return message  # type: ignore[no-any-return]

    async def jobs(self, count: int) -> list[pb.Assignment]:
        """So many, which must come."""
        found: list[pb.Assignment] = []
        while len(found) < count:
            message = await self.next()
            assert message, f"{len(found)} of {count} jobs came"
            found += message.assignments.jobs
        return found

    async def nothing(self) -> bool:
        return await self.next(within=QUIET) is None

    async def end(self) -> Refused:
        """Read until it ends, by an error."""

        async def read() -> None:
            while await self.call.read() is not grpc.aio.EOF:
                pass

        return await asyncio.wait_for(refused(read()), PATIENCE)

    def credit(self, *free: int, received: int | None = None, number: int = 0) -> pb.Credit:
        return pb.Credit(
            stream=self.name, received=self.received if received is None else received, free=free, number=number
        )

    def update(self, *free: int, **given: int) -> Any:
        request = pb.UpdateCreditRequest(credit=self.credit(*free, **given))
        return self._client.work.UpdateCredit(request, metadata=self.metadata)

    def report(self, jobs: Sequence[Any], credit: pb.Credit | None = None, **given: Any) -> Any:
        reports = [completed(job, **given) for job in jobs]
        request = pb.ReportResultsRequest(worker=self.worker, reports=reports, credit=credit)
        return self._client.work.ReportResults(request, metadata=self.metadata)

    def ask(self, method: str, leases: Sequence[pb.Lease]) -> Any:
        """Heartbeat or ReleaseJobs."""
        kind = {"Heartbeat": pb.HeartbeatRequest, "ReleaseJobs": pb.ReleaseJobsRequest}[method]
        return getattr(self._client.work, method)(kind(worker=self.worker, leases=leases), metadata=self.metadata)


def lease(job: Any) -> pb.Lease:
    return pb.Lease(job_id=job.job_id, lease_id=job.lease_id)


def completed(job: Any, **given: Any) -> pb.Report:
    return pb.Report(**{"job_id": job.job_id, "lease_id": job.lease_id, "outcome": pb.COMPLETE} | given)


def shown(claim: Claim) -> pb.Lease:
    return pb.Lease(job_id=str(claim.id), lease_id=claim.lease_id)


def a_request(worker: str = "w1", *pools: tuple[Sequence[str], int], **given: Any) -> pb.StreamJobsRequest:
    places = [pb.Pool(topics=topics, slots=slots) for topics, slots in pools or [(("mail",), 10)]]
    return pb.StreamJobsRequest(worker=worker, pools=places, **given)


def bearer(secret: str | None) -> Any:
    return (("authorization", f"Bearer {secret}"),) if secret else ()


@asynccontextmanager
async def streaming(
    client: Client, worker: str = "w1", *pools: tuple[Sequence[str], int], token: str | None = None, **given: Any
) -> AsyncIterator[Stream]:
    """A stream whose first message was read."""
    metadata = bearer(token)
    call = client.work.StreamJobs(a_request(worker, *pools, **given), metadata=metadata)
    stream = Stream(client, call, worker, metadata)
    try:
        first = await stream.next()
        assert first
        assert first.WhichOneof("message") == "hello"
        stream.name = first.hello.stream
        yield stream
    finally:
        call.cancel()
        if stream._reading is not None:
            await asyncio.wait([stream._reading])
            if not stream._reading.cancelled():
                stream._reading.exception()  # seen


async def submit(engine: Engine, count: int, **given: Any) -> list[UUID]:
    return [each.id for each in await engine.jobs.submit([a_new_job(**given) for _ in range(count)])]


async def statuses(jobs: Jobs) -> list[JobStatus]:
    return sorted(job.status for job in (await jobs.list_page(limit=500)).jobs)


async def rows(jobs: Jobs) -> list[Job]:
    return (await jobs.list_page(limit=500)).jobs


# --- what comes


async def test_the_first_message_says_who_the_worker_is(client: Client) -> None:
    call = client.work.StreamJobs(a_request("w1"))

    first = await call.read()

    assert first.WhichOneof("message") == "hello"
    assert (first.sequence, first.hello.worker) == (0, "local/w1")
    assert first.hello.stream
    call.cancel()


async def test_jobs_come_as_they_were_submitted(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine, priority=7, max_attempts=5, timeout=timedelta(seconds=9))

    async with streaming(client) as stream:
        message = await stream.next()

    assert message
    [job] = message.assignments.jobs
    assert (job.job_id, job.topic, job.task, json.loads(job.payload)) == (str(job_id), "mail", "mail", {"to": "ada"})
    assert (job.priority, job.attempt, job.max_attempts, job.timeout.seconds) == (7, 1, 5, 9)
    assert (message.sequence, message.assignments.lease.seconds) == (1, 30)
    assert job.lease_id > 0


async def test_no_more_come_than_there_is_credit_for(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 9)

    async with streaming(client, "w1", (["mail"], 3)) as stream:
        await stream.jobs(3)
        assert await stream.nothing()

        counted = await statuses(jobs)
    assert counted.count(JobStatus.RUNNING) == 3


async def test_a_worker_with_no_place_gets_nothing(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 1)

    async with streaming(client, "w1", (["mail"], 0)) as stream:
        assert await stream.nothing()
        assert await statuses(jobs) == [JobStatus.PENDING]

        await stream.update(1)
        await stream.jobs(1)


async def test_a_report_can_bring_the_next_jobs(client: Client, engine: Engine) -> None:
    await submit(engine, 3)

    async with streaming(client, "w1", (["mail"], 1)) as stream:
        first = await stream.jobs(1)
        assert await stream.nothing()
        await stream.report(first, credit=stream.credit(1))
        await stream.jobs(1)


async def test_credit_that_was_said_before_jobs_were_read_counts_them(client: Client, engine: Engine) -> None:
    """Two places, said by a worker that has not seen what is on its way: there are none."""
    await submit(engine, 5)

    async with streaming(client, "w1", (["mail"], 2)) as stream:
        await stream.jobs(2)
        await stream.update(2, received=0)
        assert await stream.nothing()
        await stream.update(2)
        await stream.jobs(2)


async def test_an_older_update_that_comes_late_is_passed_over(client: Client, engine: Engine) -> None:
    await submit(engine, 2)

    async with streaming(client, "w1", (["mail"], 0)) as stream:
        await stream.update(0, number=2)
        await stream.update(2, number=1)
        assert await stream.nothing()
        await stream.update(2, number=3)
        await stream.jobs(2)


async def test_the_answer_says_how_far_to_read(client: Client, engine: Engine) -> None:
    await submit(engine, 1)

    async with streaming(client) as stream:
        await stream.jobs(1)
        answer = await stream.update(0)

        assert answer.sent == stream.received == 1
        assert answer.server_time.seconds > 0


async def test_pools_have_places_of_their_own(client: Client, engine: Engine) -> None:
    await submit(engine, 4)
    await submit(engine, 4, topic="video")

    async with streaming(client, "w1", (["mail"], 1), (["video"], 2)) as stream:
        found = await stream.jobs(3)
        assert await stream.nothing()

        assert sorted(job.topic for job in found) == ["mail", "video", "video"]
        [mail] = [job for job in found if job.topic == "mail"]
        await stream.report([mail], credit=stream.credit(1, 0))
        assert [job.topic for job in await stream.jobs(1)] == ["mail"]


async def test_a_topic_of_two_pools_takes_a_place_in_each(client: Client, engine: Engine) -> None:
    await submit(engine, 4)
    await submit(engine, 4, topic="video")

    async with streaming(client, "w1", (["mail"], 2), (["mail", "video"], 3)) as stream:
        found = [job.topic for job in await stream.jobs(3)]
        assert await stream.nothing()

    assert len(found) == 3
    assert found.count("mail") <= 2


# --- what workers say


async def test_a_report_ends_the_job_and_a_repeated_one_changes_nothing(
    client: Client, engine: Engine, jobs: Jobs
) -> None:
    job_id = await submit_one(engine)

    async with streaming(client) as stream:
        found = await stream.jobs(1)
        first = await stream.report(found, result="1")
        second = await stream.report(found, result="2")

    job = await jobs.get(job_id)
    assert (list(first.answers), list(second.answers)) == ([pb.ACCEPTED], [pb.ALREADY])
    assert (job.status, job.result, job.locked_by) == (JobStatus.COMPLETED, "1", "local/w1")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"outcome": pb.FAIL, "error": "boom"}, JobStatus.RETRYING),
        ({"outcome": pb.SNOOZE, "delay": Duration(seconds=60)}, JobStatus.SCHEDULED),
        ({"outcome": pb.DISCARD, "error": "boom"}, JobStatus.DEAD_LETTERED),
    ],
)
async def test_each_outcome_has_its_status(
    client: Client, engine: Engine, jobs: Jobs, given: dict[str, Any], status: JobStatus
) -> None:
    job_id = await submit_one(engine)

    async with streaming(client) as stream:
        answer = await stream.report(await stream.jobs(1), **given)

    assert list(answer.answers) == [pb.ACCEPTED]
    assert (await jobs.get(job_id)).status is status


async def test_a_heartbeat_answers_for_each_lease(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 2)

    async with streaming(client) as stream:
        kept, cancelled = await stream.jobs(2)
        before = (await jobs.get(UUID(kept.job_id))).lease_until
        await jobs.cancel(UUID(cancelled.job_id))
        unknown = pb.Lease(job_id=str(uuid4()), lease_id=1)
        answer = await stream.ask("Heartbeat", [lease(kept), lease(cancelled), unknown])

    after = (await jobs.get(UUID(kept.job_id))).lease_until
    assert list(answer.answers) == [pb.ACCEPTED, pb.JOB_CANCELLED, pb.LOST]
    assert before is not None
    assert after is not None
    assert after > before


async def test_progress_is_kept(client: Client, engine: Engine, jobs: Jobs) -> None:
    job_id = await submit_one(engine)

    async with streaming(client) as stream:
        [job] = await stream.jobs(1)
        said = pb.Progress(job_id=job.job_id, lease_id=job.lease_id, value="0.5")
        answer = await client.work.ReportProgress(pb.ReportProgressRequest(worker="w1", progress=[said]))

    assert list(answer.answers) == [pb.ACCEPTED]
    assert (await jobs.get(job_id)).progress == "0.5"


async def test_what_is_given_back_is_not_charged_and_comes_again(client: Client, engine: Engine) -> None:
    await submit(engine, 1)

    async with streaming(client, "w1", (["mail"], 1)) as stream:
        [job] = await stream.jobs(1)
        answer = await stream.ask("ReleaseJobs", [lease(job)])
        await stream.update(1)
        [again] = await stream.jobs(1)

    assert list(answer.answers) == [pb.ACCEPTED]
    assert (again.job_id, again.attempt, again.refunded) == (job.job_id, 2, 1)
    assert again.lease_id > job.lease_id


@pytest.mark.parametrize("late", ["Heartbeat", "ReleaseJobs", "ReportResults"])
async def test_what_is_said_late_of_an_older_claim_leaves_the_newer_one_with_its_worker(
    server: Server, client: Client, engine: Engine, jobs: Jobs, late: str
) -> None:
    """It runs there: a server that forgot so would give it to another, as lost on the way, after a lost answer."""
    [job_id] = await submit(engine, 1)
    begun_at, lost = time.monotonic(), server._engine.claims.lost

    async with streaming(client) as stream:
        [older] = await stream.jobs(1)
        await stream.ask("ReleaseJobs", [lease(older)])
        [newer] = await stream.jobs(1)
        answer = await (stream.report([older]) if late == "ReportResults" else stream.ask(late, [lease(older)]))
        assert list(answer.answers) == [pb.LOST]

        worker = (await jobs.get(job_id)).locked_by
        assert worker is not None
        lost.note([worker], begun_at)
        await submit(engine, 1)
        await stream.jobs(1)
        await until(lambda: has_looked(lost))
        job = await jobs.get(job_id)

    assert (job.status, job.lease_id) == (JobStatus.RUNNING, newer.lease_id)


async def has_looked(lost: LostClaims) -> bool:
    return not lost.workers


async def test_a_cancellation_reaches_the_worker(client: Client, engine: Engine, jobs: Jobs) -> None:
    job_id = await submit_one(engine)

    async with streaming(client) as stream:
        [job] = await stream.jobs(1)
        await client.jobs.CancelJob(pb.CancelJobRequest(id=str(job_id)))
        message = await stream.next()
        answer = await stream.report([job])

    assert message
    assert list(message.cancelled.jobs) == [lease(job)]
    assert list(answer.answers) == [pb.JOB_CANCELLED]
    assert (await jobs.get(job_id)).status is JobStatus.CANCELLED


# --- streams that are not opened

TOO_MANY = [f"topic{number}" for number in range(1_001)]
BAD_STREAMS: list[tuple[pb.StreamJobsRequest, str]] = [
    (pb.StreamJobsRequest(worker="w1"), "invalid_option"),
    (pb.StreamJobsRequest(worker="w1", pools=[pb.Pool(topics=["mail"], slots=1)] * 17), "invalid_option"),
    (a_request("w1", ([], 1)), "invalid_option"),
    (a_request("w1", (["mail"], 10_001)), "invalid_option"),
    (a_request("w1", (["mail"], 4_294_967_295)), "invalid_option"),
    (a_request("w1", (TOO_MANY, 1)), "invalid_option"),
    (a_request("w1", (["a\nb"], 1)), "invalid_name"),
    (a_request("w1", (["*"], 1)), "invalid_name"),
    (a_request("w1", ([""], 1)), "invalid_name"),
    (a_request("", (["mail"], 1)), "invalid_name"),
    (a_request("w\n1", (["mail"], 1)), "invalid_name"),
    (a_request("w" * 500, (["mail"], 1)), "invalid_name"),
    (pb.StreamJobsRequest(worker="w1", version="v\0", pools=[pb.Pool(topics=["mail"], slots=1)]), "invalid_name"),
    (a_request("w1", resume=pb.Resume(held=[pb.Lease()] * 50_001)), "batch_too_large"),
    (a_request("w1", resume=pb.Resume(held=[pb.Lease(job_id="x", lease_id=1)])), "invalid_option"),
    (a_request("w1", resume=pb.Resume(held=[pb.Lease(job_id=str(uuid4()))])), "invalid_report"),
]


@pytest.mark.parametrize(("request_", "code"), BAD_STREAMS, ids=lambda value: str(value)[:30])
async def test_a_bad_stream_is_refused_and_claims_nothing(
    client: Client, engine: Engine, jobs: Jobs, request_: pb.StreamJobsRequest, code: str
) -> None:
    await submit(engine, 1)

    answer = await refused(client.work.StreamJobs(request_).read())

    await asyncio.sleep(0.1)  # two ticks, in which a stream would be dealt the job
    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, code)
    assert answer.message
    assert await statuses(jobs) == [JobStatus.PENDING]


async def test_a_refused_stream_does_not_end_the_one_that_is_open(client: Client, engine: Engine) -> None:
    async with streaming(client) as stream:
        await refused(client.work.StreamJobs(a_request("w1", (["mail"], 10_001))).read())
        await submit(engine, 1)

        await stream.jobs(1)


# --- calls that are refused


async def test_credit_for_a_stream_nobody_knows(client: Client) -> None:
    request = pb.UpdateCreditRequest(credit=pb.Credit(stream="nobody", free=[1]))

    answer = await refused(client.work.UpdateCredit(request))

    assert (answer.status, answer.code) == (Status.NOT_FOUND, "stream_not_found")


async def test_absurd_credit_is_refused_and_gives_nothing(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 1)

    async with streaming(client, "w1", (["mail"], 0)) as stream:
        found = [
            await refused(stream.update(1, received=7)),
            await refused(stream.update(1, 1)),
            await refused(stream.update()),
            await refused(stream.update(10_001)),
        ]

        assert {(answer.status, answer.code) for answer in found} == {(Status.INVALID_ARGUMENT, "invalid_option")}
        assert await stream.nothing()
    assert await statuses(jobs) == [JobStatus.PENDING]


async def test_a_report_with_absurd_credit_is_refused_as_a_whole(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 1)

    async with streaming(client) as stream:
        found = await stream.jobs(1)
        answer = await refused(stream.report(found, credit=stream.credit(1, 2, 3)))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_option")
    assert await statuses(jobs) == [JobStatus.RUNNING]


BAD_REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"job_id": "not-a-uuid"}, "invalid_option"),
    ({"job_id": ""}, "invalid_option"),
    ({"lease_id": 0}, "invalid_report"),
    ({"lease_id": -1}, "invalid_report"),
    ({"outcome": pb.OUTCOME_UNSPECIFIED}, "invalid_report"),
    ({"outcome": 99}, "invalid_report"),
    ({"outcome": pb.SNOOZE}, "invalid_report"),
    ({"outcome": pb.SNOOZE, "delay": Duration(seconds=-1)}, "invalid_option"),
    ({"outcome": pb.FAIL, "delay": Duration(seconds=1 << 61)}, "invalid_option"),
    ({"result": "{"}, "invalid_payload"),
    ({"result": '"' + "x" * (1 << 20) + '"'}, "invalid_payload"),
]


@pytest.mark.parametrize(("given", "code"), BAD_REPORTS, ids=lambda value: str(value)[:30])
async def test_a_bad_report_is_refused_alone(
    client: Client, engine: Engine, jobs: Jobs, given: dict[str, Any], code: str
) -> None:
    await submit(engine, 3)

    async with streaming(client) as stream:
        good, bad, other = await stream.jobs(3)
        reports = [completed(good), completed(bad, **given), completed(other)]
        answer = await client.work.ReportResults(pb.ReportResultsRequest(worker="w1", reports=reports))
        refused_job = await jobs.get(UUID(bad.job_id))

    assert list(answer.answers) == [pb.ACCEPTED, pb.REFUSED, pb.ACCEPTED]
    assert [(each.id, each.code) for each in answer.refusals] == [(reports[1].job_id, code)]
    assert answer.refusals[0].message
    assert (refused_job.status, refused_job.lease_id) == (JobStatus.RUNNING, bad.lease_id)
    assert await statuses(jobs) == [JobStatus.COMPLETED] * 2 + [JobStatus.RUNNING]


@pytest.mark.parametrize("ahead", [1, 2, 1000])
async def test_a_claim_that_is_yet_to_be_made_is_nobodys_to_show(
    client: Client, engine: Engine, jobs: Jobs, ahead: int
) -> None:
    """It might be made, for another worker, between the look and the report."""
    job = await jobs.get(await submit_one(engine, topic="other"))
    forged = pb.Report(job_id=str(job.id), lease_id=job.lease_id + ahead, outcome=pb.COMPLETE)

    answer = await client.work.ReportResults(pb.ReportResultsRequest(worker="w1", reports=[forged]))

    assert list(answer.answers) == [pb.LOST]
    assert await jobs.get(job.id) == job


@pytest.mark.parametrize("method", ["Heartbeat", "ReleaseJobs"])
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (pb.Lease(job_id="not-a-uuid", lease_id=1), "invalid_option"),
        (pb.Lease(job_id=str(uuid4()), lease_id=0), "invalid_report"),
    ],
    ids=["id", "lease"],
)
async def test_a_bad_lease_is_refused_alone(
    client: Client, engine: Engine, method: str, bad: pb.Lease, code: str
) -> None:
    await submit(engine, 1)

    async with streaming(client) as stream:
        [job] = await stream.jobs(1)
        answer = await stream.ask(method, [bad, lease(job)])

    assert list(answer.answers) == [pb.REFUSED, pb.ACCEPTED]
    assert [(each.id, each.code) for each in answer.refusals] == [(bad.job_id, code)]


async def test_progress_that_is_no_json_is_refused_alone(client: Client, engine: Engine, jobs: Jobs) -> None:
    await submit(engine, 1)

    async with streaming(client) as stream:
        [job] = await stream.jobs(1)
        notes = [pb.Progress(job_id=job.job_id, lease_id=job.lease_id, value=value) for value in ("{", "0.5")]
        answer = await client.work.ReportProgress(pb.ReportProgressRequest(worker="w1", progress=notes))

    assert list(answer.answers) == [pb.REFUSED, pb.ACCEPTED]
    assert (await jobs.get(UUID(job.job_id))).progress == "0.5"


async def test_a_batch_of_nothing_but_mistakes_is_answered(client: Client) -> None:
    bad = pb.Report(job_id="x" * 1_000, lease_id=1, outcome=pb.COMPLETE)

    answer = await client.work.ReportResults(pb.ReportResultsRequest(worker="w1", reports=[bad] * 2))

    assert list(answer.answers) == [pb.REFUSED] * 2
    assert [len(each.id) for each in answer.refusals] == [100] * 2


@pytest.mark.parametrize("method", ["Heartbeat", "ReleaseJobs", "ReportResults", "ReportProgress"])
async def test_a_batch_too_large_is_refused(client: Client, method: str) -> None:
    nobody = str(uuid4())
    many: Any = {
        "Heartbeat": pb.HeartbeatRequest(worker="w1", leases=[pb.Lease(job_id=nobody, lease_id=1)] * 10_001),
        "ReleaseJobs": pb.ReleaseJobsRequest(worker="w1", leases=[pb.Lease(job_id=nobody, lease_id=1)] * 10_001),
        "ReportResults": pb.ReportResultsRequest(
            worker="w1", reports=[pb.Report(job_id=nobody, lease_id=1, outcome=pb.COMPLETE)] * 10_001
        ),
        "ReportProgress": pb.ReportProgressRequest(
            worker="w1", progress=[pb.Progress(job_id=nobody, lease_id=1, value="1")] * 10_001
        ),
    }[method]

    answer = await refused(getattr(client.work, method)(many))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "batch_too_large")


@pytest.mark.parametrize(
    ("method", "many"),
    [
        ("Heartbeat", pb.HeartbeatRequest(worker="w1", leases=[pb.Lease()] * 10_001)),
        ("ReleaseJobs", pb.ReleaseJobsRequest(worker="w1", leases=[pb.Lease()] * 10_001)),
        ("ReportResults", pb.ReportResultsRequest(worker="w1", reports=[pb.Report()] * 10_001)),
        ("ReportProgress", pb.ReportProgressRequest(worker="w1", progress=[pb.Progress()] * 10_001)),
    ],
    ids=["Heartbeat", "ReleaseJobs", "ReportResults", "ReportProgress"],
)
async def test_a_batch_is_counted_before_its_items_are_read(client: Client, method: str, many: Any) -> None:
    assert (await refused(getattr(client.work, method)(many))).code == "batch_too_large"


# --- whose job it is


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("StreamJobs", pb.StreamJobsRequest(worker="w1", pools=[pb.Pool(slots=1, topics=[""] * 60_001)])),
        ("StreamJobs", pb.StreamJobsRequest(worker="w1", pools=[pb.Pool(slots=1, topics=[""] * 100)] * 5_000)),
        ("UpdateCredit", pb.UpdateCreditRequest(credit=pb.Credit(stream="x", free=[1] * 500_000))),
    ],
    ids=["topics of a pool", "topics of many pools", "packed numbers"],
)
async def test_a_request_of_too_many_values_is_refused_unread(client: Client, method: str, request_: Any) -> None:
    call: Any = client.channel.unary_unary(f"/pulse.v1.Work/{method}")

    answer = await refused(call(request_.SerializeToString()))

    assert answer.message == (
        "a message must have at most 60,000 values, and a request 500,000 in all: send it in parts"
    )


async def test_a_report_for_a_job_that_was_never_assigned_is_lost(client: Client, engine: Engine, jobs: Jobs) -> None:
    waiting = await submit_one(engine, topic="other")

    async with streaming(client) as stream:
        nobodys = [pb.Lease(job_id=str(waiting), lease_id=1), pb.Lease(job_id=str(uuid4()), lease_id=1)]
        answer = await stream.report(nobodys)

    assert list(answer.answers) == [pb.LOST, pb.LOST]
    assert (await jobs.get(waiting)).status is JobStatus.PENDING


async def test_nobody_speaks_for_the_claim_of_another_worker_and_the_batch_goes_on(
    client: Client, engine: Engine, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await submit(engine, 3)
    theirs = await claim_one(engine, worker="local/w2")
    foreign = shown(theirs)
    before = await jobs.get(theirs.id)

    async with streaming(client, "w1", (["mail"], 2)) as stream:
        own, released = await stream.jobs(2)
        noted = [pb.Progress(job_id=each.job_id, lease_id=each.lease_id, value="1") for each in (foreign, own)]
        found = [
            await stream.ask("Heartbeat", [foreign, lease(own)]),
            await client.work.ReportProgress(pb.ReportProgressRequest(worker="w1", progress=noted)),
            await stream.ask("ReleaseJobs", [foreign, lease(released)]),
            await stream.report([foreign, own]),
            await stream.ask("Heartbeat", [foreign]),
        ]

    answers = [list(each.answers) for each in found]
    assert answers == [[pb.LOST, pb.ACCEPTED]] * 4 + [[pb.LOST]]
    assert await jobs.get(theirs.id) == before
    assert (await jobs.get(UUID(own.job_id))).status is JobStatus.COMPLETED
    warnings = [record.getMessage() for record in caplog.records if "that it has not claimed" in record.getMessage()]
    assert len(warnings) == 1
    assert "local/w1" in warnings[0]
    assert str(theirs.id) in warnings[0]


async def test_a_claim_that_a_failover_has_lost_takes_no_other_with_it(
    client: Client, engine: Engine, jobs: Jobs, settings: Settings
) -> None:
    """The row is as a standby had it, without the claim; and the worker has turned to a server that never knew it."""
    await submit(engine, 3)
    kept, put_back, gone = [shown(await claim_one(engine, worker="local/w1")) for _ in range(3)]
    async with plainly_connected(settings.database_url) as conn:
        await conn.execute(
            "update pulse.jobs set status = 'PENDING', lease_id = lease_id - 1, attempt = 0, locked_by = null,"
            " claimed_at = null, lease_until = null where id = $1",
            UUID(put_back.job_id),
        )
        await conn.execute("delete from pulse.jobs where id = $1", UUID(gone.job_id))
    before = await jobs.get(UUID(put_back.job_id))
    held = pb.Resume(held=[put_back, gone, kept])

    async with streaming(client, "w1", (["other"], 1), resume=held) as stream:
        beat = await stream.ask("Heartbeat", [put_back, gone, kept])
        answer = await stream.report([put_back, gone, kept])

    assert list(beat.answers) == list(answer.answers) == [pb.LOST, pb.LOST, pb.ACCEPTED]
    assert await jobs.get(UUID(put_back.job_id)) == before


async def test_a_claim_that_was_lost_to_another_is_answered_so_and_the_others_stand(
    client: Client, engine: Engine, jobs: Jobs
) -> None:
    """By any server, also by one that did not hand it out: a batch must not fail for what one of its jobs has lost."""
    await submit(engine, 2)
    kept, lost = [shown(await claim_one(engine, worker="local/w1")) for _ in range(2)]
    await engine.claims.release([Lease(UUID(lost.job_id), lost.lease_id)])
    stolen = await claim_one(engine, worker="local/w2")
    stream = Stream(client, None, "w1", ())

    beat = await stream.ask("Heartbeat", [kept, lost])
    given_back = await stream.ask("ReleaseJobs", [lost])
    answer = await stream.report([kept, lost])

    assert (list(beat.answers), list(answer.answers)) == ([pb.ACCEPTED, pb.LOST], [pb.ACCEPTED, pb.LOST])
    assert list(given_back.answers) == [pb.LOST]
    job = await jobs.get(stolen.id)
    assert (job.status, job.locked_by, job.lease_id) == (JobStatus.RUNNING, "local/w2", stolen.lease_id)


@asynccontextmanager
async def guarded(
    engine: Engine, settings: Settings, **scopes: Sequence[str]
) -> AsyncIterator[tuple[Client, dict[str, str]]]:
    """A server that asks for tokens, and a secret of each."""
    secrets = {name: (await engine.tokens.create(name, wanted))[1] for name, wanted in scopes.items()}
    async with open_server(settings) as server, connected(str(server.address)) as client:
        yield client, secrets


async def test_pools_are_counted_before_their_topics_are_looked_at(engine: Engine, settings: Settings) -> None:
    many = a_request("w1", *[(["bank"], 1)] * 17)

    async with guarded(engine, settings, ours=["work:mail"]) as (client, secrets):
        answer = await refused(client.work.StreamJobs(many, metadata=bearer(secrets["ours"])).read())

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_option")


async def test_a_worker_of_another_token_is_another_worker(engine: Engine, settings: Settings, jobs: Jobs) -> None:
    """The same name said with two tokens: neither ends the other's stream, speaks for it or gives it credit."""
    async with (
        guarded(engine, settings, ours=["work"], theirs=["work"]) as (client, secrets),
        streaming(client, "w1", (["mail"], 1), token=secrets["ours"]) as one,
        streaming(client, "w1", (["mail"], 0), token=secrets["theirs"]) as two,
    ):
        await submit(engine, 1)
        [job] = await one.jobs(1)
        before = await rows(jobs)
        spoken = await two.report([job])
        two.name, own = one.name, two.name
        credited = await refused(two.update(1))
        two.name = own

        assert list(spoken.answers) == [pb.LOST]
        assert (credited.status, credited.code) == (Status.NOT_FOUND, "stream_not_found")
        assert await rows(jobs) == before
        assert before[0].locked_by == "ours/w1"
        await one.update(1)
        await two.update(1)


async def test_a_topic_the_token_does_not_name_is_refused(engine: Engine, settings: Settings, jobs: Jobs) -> None:
    await submit(engine, 1, topic="bank")
    async with guarded(engine, settings, ours=["work:mail"]) as (client, secrets):
        request = a_request("w1", (["mail", "bank"], 1))

        answer = await refused(client.work.StreamJobs(request, metadata=bearer(secrets["ours"])).read())

    assert (answer.status, answer.code) == (Status.PERMISSION_DENIED, "forbidden")
    assert await statuses(jobs) == [JobStatus.PENDING]


async def test_a_revoked_token_ends_its_stream(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "PING_EVERY", 0.1)
    async with (
        guarded(engine, settings, ours=["work"], boss=["admin"]) as (client, secrets),
        streaming(client, token=secrets["ours"]) as stream,
    ):
        await client.admin.RevokeToken(pb.RevokeTokenRequest(name="ours"), metadata=bearer(secrets["boss"]))

        ended = await stream.end()

    assert (ended.status, ended.code) == (Status.UNAUTHENTICATED, "unauthenticated")


# --- dead letters


async def a_dead_letter(engine: Engine, topic: str = "mail") -> UUID:
    job_id = await submit_one(engine, topic=topic, max_attempts=1)
    [claim] = await engine.claims.claim(topic, worker="w9", slots=1)
    await engine.claims.report([Report(id=claim.id, lease_id=claim.lease_id, outcome=Outcome.DISCARD, error="no use")])
    return job_id


def dead_letter(client: Client, job_id: UUID, secret: str) -> Any:
    return client.work.GetDeadLetter(pb.GetDeadLetterRequest(id=str(job_id)), metadata=bearer(secret))


async def test_who_may_work_on_a_topic_may_read_its_dead_letters_and_nothing_else(
    engine: Engine, settings: Settings
) -> None:
    dead, others = await a_dead_letter(engine), await a_dead_letter(engine, topic="bank")
    waiting = await submit_one(engine)
    async with guarded(engine, settings, ours=["work:mail"], web=["submit"]) as (client, secrets):
        own = await dead_letter(client, dead, secrets["ours"])
        alive = await dead_letter(client, waiting, secrets["ours"])
        foreign = await refused(dead_letter(client, others, secrets["ours"]))
        unable = await refused(dead_letter(client, dead, secrets["web"]))
        unknown = await refused(dead_letter(client, uuid4(), secrets["ours"]))

    assert (own.job.id, own.job.last_error) == (str(dead), "no use")
    assert not alive.HasField("job")
    assert [each.status for each in (foreign, unable)] == [Status.PERMISSION_DENIED] * 2
    assert unknown.status is Status.NOT_FOUND


async def test_of_dead_letters_one_is_told_who_takes_their_topic_and_wants_to_know(
    server: Server, client: Client, engine: Engine
) -> None:
    dead = await a_dead_letter(engine)

    async with (
        streaming(client, "w1", (["mail"], 1), wants_dead_letters=True) as willing,
        streaming(client, "w2", (["mail"], 1)) as unwilling,
        streaming(client, "w3", (["bank"], 1), wants_dead_letters=True) as elsewhere,
    ):
        server._engine.duties._notify_dead_letters([dead])
        message = await willing.next()

        assert message
        assert list(message.dead_letters.job_ids) == [str(dead)]
        assert await unwilling.nothing()
        assert await elsewhere.nothing()
        await willing.update(1)  # it counts as a message like any other


# --- one name, two streams


async def test_the_newer_stream_of_a_name_wins_and_the_older_is_told(client: Client, engine: Engine) -> None:
    async with streaming(client) as older, streaming(client) as newer:
        last = await older.next()
        assert await older.next() is None
        assert await older.call.code() is Status.OK
        await submit(engine, 1)

        assert last
        assert last.WhichOneof("message") == "replaced"
        await newer.jobs(1)


async def test_a_stream_at_another_server_ends_the_older_one(
    client: Client, settings: Settings, engine: Engine
) -> None:
    async with (
        open_server(settings) as other,
        connected(str(other.address)) as elsewhere,
        streaming(client) as older,
        streaming(elsewhere, resume=pb.Resume()),
    ):
        last = await older.next()

        assert last
        assert last.WhichOneof("message") == "replaced"


async def test_who_comes_back_keeps_what_it_holds_and_gives_back_the_rest(
    client: Client, engine: Engine, jobs: Jobs
) -> None:
    await submit(engine, 2)
    async with streaming(client, "w1", (["mail"], 2)) as stream:
        held, lost = await stream.jobs(2)

    async with streaming(client, "w1", (["mail"], 0), resume=pb.Resume(held=[lease(held)])) as stream:
        kept, given_back = await jobs.get(UUID(held.job_id)), await jobs.get(UUID(lost.job_id))
        answer = await stream.report([held])

    assert (kept.status, kept.lease_id) == (JobStatus.RUNNING, held.lease_id)
    assert (given_back.status, given_back.attempt, given_back.refunded) == (JobStatus.PENDING, 1, 1)
    assert list(answer.answers) == [pb.ACCEPTED]


async def test_who_was_started_again_gives_nothing_back(client: Client, engine: Engine, jobs: Jobs) -> None:
    """What it held may have been begun: the lease decides."""
    await submit(engine, 1)
    async with streaming(client) as stream:
        await stream.jobs(1)

    async with streaming(client):
        assert await statuses(jobs) == [JobStatus.RUNNING]


async def test_held_by_another_is_not_held(client: Client, engine: Engine, jobs: Jobs) -> None:
    """Naming somebody's claim as one's own does not make it so."""
    await submit(engine, 1)
    theirs = shown(await claim_one(engine, worker="local/w2"))

    async with streaming(client, "w1", (["mail"], 0), resume=pb.Resume(held=[theirs])) as stream:
        answer = await stream.report([theirs])

    assert list(answer.answers) == [pb.LOST]
    assert await statuses(jobs) == [JobStatus.RUNNING]


# --- ends


async def test_drain_is_the_last_message(server: Server, client: Client, engine: Engine, jobs: Jobs) -> None:
    async with streaming(client) as stream:
        draining = asyncio.create_task(server.drain())
        last = await stream.next()
        assert await stream.next() is None
        await draining
        await submit(engine, 1)

    assert last
    assert last.WhichOneof("message") == "drain"
    assert await statuses(jobs) == [JobStatus.PENDING]


async def test_a_silent_stream_is_ended(client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads, and says nothing: it may be a connection that nobody holds at the other end."""
    monkeypatch.setattr(work, "PING_EVERY", 0.1)
    monkeypatch.setattr(work, "SILENCE", 2.0)
    async with streaming(client) as stream:
        for _ in range(4):  # while it says something, it stays
            await asyncio.sleep(0.7)
            await stream.update(10)

        ended = await stream.end()

    assert (ended.status, ended.code) == (Status.UNAVAILABLE, "stream_silent")


LARGE = json.dumps("x" * 200_000)


async def test_who_never_reads_gets_no_more_than_its_credit_and_is_ended(
    client: Client, engine: Engine, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages fill what lies between, so the server cannot write: it must notice all the same."""
    monkeypatch.setattr(work, "PING_EVERY", 0.1)
    monkeypatch.setattr(work, "SILENCE", 1.0)
    await submit(engine, 40, payload=LARGE)
    call = client.work.StreamJobs(a_request("w1", (["mail"], 30)))

    async def counted() -> tuple[int, int]:
        found = await statuses(jobs)
        return found.count(JobStatus.RUNNING), found.count(JobStatus.PENDING)

    async def are_claimed() -> bool:
        return await counted() == (30, 10)

    await until(are_claimed)
    await asyncio.sleep(QUIET)
    assert await are_claimed()  # nothing beyond its credit, however many wait

    async def are_given_back() -> bool:
        gc.collect()
        return (await counted())[1] > 10

    await until(are_given_back)
    found = await rows(jobs)
    assert all(job.attempt - job.refunded == (job.status is JobStatus.RUNNING) for job in found)  # nobody is charged
    async with streaming(client, "w2", (["mail"], 40)) as stream:
        waiting = (await counted())[1]
        await stream.jobs(waiting)  # others have them
    ended = await Stream(client, call, "w1", ()).end()
    assert (ended.status, ended.code) == (Status.UNAVAILABLE, "stream_silent")
