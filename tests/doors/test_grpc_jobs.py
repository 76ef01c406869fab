"""Does every call of producers and operators do what it says, and refuse the rest with a code and no change?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import pulse
from pulse.doors.grpc.errors import handle_errors
from pulse.engine.engine import Engine
from pulse.engine.jobs.use_cases import Jobs
from pulse.model.errors import InvalidInput, JobBusy
from pulse.model.jobs import JobStatus, Outcome
from pulse.model.workers import WorkerSeen
from pulse.server import Dispatch, Guard, Server
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from pulse.wire.v1 import pulse_pb2_grpc as pb_grpc
from tests.doors.grpc_client import Client, refused, served
from tests.factories import a_new_job, a_report, claim_one, submit_one

Status = grpc.StatusCode
NOBODY = str(uuid4())


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    return replace(settings, listen="127.0.0.1:0")


@pytest.fixture
async def server(engine: Engine) -> Server:
    return Server(engine)


@pytest.fixture
async def client(server: Server, engine: Engine) -> AsyncIterator[Client]:
    async with served(server, engine) as client:
        yield client


async def dead_letter(engine: Engine, **given: Any) -> UUID:
    job_id = await submit_one(engine, **given)
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])
    return job_id


# --- producers


async def test_what_is_submitted_is_what_runs(client: Client, jobs: Jobs) -> None:
    new = pb.NewJob(task="mail", topic="outbox", payload='{"to": "ada"}', priority=7, max_attempts=5, tags=["x"])

    answer = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[new, pb.NewJob(task="mail")]))

    assert [each.created for each in answer.jobs] == [True, True]
    first, second = [await jobs.get(UUID(each.id)) for each in answer.jobs]
    assert (first.topic, first.priority, first.max_attempts) == ("outbox", 7, 5)
    assert (second.topic, second.payload, second.max_attempts) == ("mail", "{}", 3)


async def test_a_repeated_submit_changes_nothing(client: Client) -> None:
    first = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail")]))
    again = pb.NewJob(task="mail", id=first.jobs[0].id)

    second = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[again]))

    assert second.jobs[0].id == first.jobs[0].id
    assert not second.jobs[0].created


async def test_nothing_submitted_is_nothing_done(client: Client) -> None:
    assert not (await client.jobs.SubmitJobs(pb.SubmitJobsRequest())).jobs


BAD_JOBS = [
    ({"task": ""}, "invalid_name"),
    ({"task": "a\nb"}, "invalid_name"),
    ({"topic": "*"}, "invalid_name"),
    ({"topic": "x" * 201}, "invalid_name"),
    ({"payload": "{"}, "invalid_payload"),
    ({"payload": '"\\u0000"'}, "invalid_payload"),
    ({"payload": '"' + "x" * (1 << 20) + '"'}, "invalid_payload"),
    ({"id": "not-a-uuid"}, "invalid_option"),
    ({"priority": 101}, "invalid_option"),
    ({"max_attempts": 4_000_000_000}, "invalid_option"),
    ({"delay": Duration(seconds=-1)}, "invalid_option"),
    ({"delay": Duration(seconds=1 << 62)}, "invalid_option"),
    ({"delay": Duration(seconds=1), "run_at": Timestamp(seconds=1_900_000_000)}, "invalid_option"),
    ({"run_at": Timestamp(seconds=-(1 << 61))}, "invalid_option"),
    ({"deadline": Timestamp(seconds=1 << 61)}, "invalid_option"),
    ({"retry": "{"}, "invalid_option"),
    ({"retry": '{"kind": "cubic"}'}, "invalid_option"),
    ({"timeout": Duration()}, "invalid_option"),
    ({"unique_window": Duration(seconds=1)}, "invalid_option"),
    ({"unique_key": "x" * 501}, "invalid_option"),
    ({"tags": [""]}, "invalid_name"),
    ({"tags": [f"t{number}" for number in range(33)]}, "invalid_option"),
]


@pytest.mark.parametrize(("given", "code"), BAD_JOBS, ids=lambda value: str(value)[:40])
async def test_a_bad_job_is_refused_with_the_whole_batch(
    client: Client, jobs: Jobs, given: dict[str, Any], code: str
) -> None:
    bad = pb.NewJob(**{"task": "mail"} | given)

    answer = await refused(client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail"), bad])))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, code)
    assert answer.message
    assert not (await jobs.list_page()).jobs


async def test_a_batch_too_large_is_refused(client: Client, jobs: Jobs) -> None:
    many = pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail")] * 10_001)

    answer = await refused(client.jobs.SubmitJobs(many))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "batch_too_large")
    assert not (await jobs.list_page()).jobs


async def test_a_batch_is_counted_before_its_items_are_read(client: Client) -> None:
    nonsense = ["nonsense"] * 10_001

    answers = [
        await refused(client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob()] * 10_001))),
        await refused(client.operate.CancelJobs(pb.CancelJobsRequest(ids=nonsense))),
        await refused(client.operate.ReplayJobs(pb.ReplayJobsRequest(ids=nonsense))),
    ]

    assert [answer.code for answer in answers] == ["batch_too_large"] * 3


async def test_a_job_as_it_stands(client: Client, engine: Engine) -> None:
    job_id = await dead_letter(engine, priority=3)

    job = await client.jobs.GetJob(pb.GetJobRequest(id=str(job_id)))

    assert (job.id, job.status, job.priority) == (str(job_id), pb.DEAD_LETTERED, 3)
    assert job.last_error == "not wanted"


@pytest.mark.parametrize(
    ("job_id", "status", "code"),
    [
        ("", Status.INVALID_ARGUMENT, "invalid_option"),
        ("nonsense", Status.INVALID_ARGUMENT, "invalid_option"),
        ("é" * 5_000, Status.INVALID_ARGUMENT, "invalid_option"),
        (NOBODY, Status.NOT_FOUND, "job_not_found"),
    ],
    ids=["empty", "nonsense", "long", "nobody's"],
)
async def test_an_id_that_leads_nowhere(client: Client, job_id: str, status: Status, code: str) -> None:
    calls = [
        client.jobs.GetJob(pb.GetJobRequest(id=job_id)),
        client.jobs.WaitJob(pb.WaitJobRequest(id=job_id)),
        client.jobs.CancelJob(pb.CancelJobRequest(id=job_id)),
        client.operate.ListAttempts(pb.ListAttemptsRequest(id=job_id)),
        client.operate.ExplainJob(pb.ExplainJobRequest(id=job_id)),
    ]

    for call in calls:
        answer = await refused(call)
        assert (answer.status, answer.code) == (status, code)


async def test_cancel(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine)

    job = await client.jobs.CancelJob(pb.CancelJobRequest(id=str(job_id), reason="sent by hand"))

    assert job.status == pb.CANCELLED
    assert job.last_error == "cancelled: sent by hand"


async def test_what_is_over_cannot_be_cancelled(client: Client, engine: Engine) -> None:
    job_id = await dead_letter(engine)

    answer = await refused(client.jobs.CancelJob(pb.CancelJobRequest(id=str(job_id))))

    assert (answer.status, answer.code) == (Status.FAILED_PRECONDITION, "illegal_transition")
    assert (await engine.jobs.get(job_id)).status is JobStatus.DEAD_LETTERED


async def test_a_reason_that_cannot_be_stored_is_refused(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine)

    answer = await refused(client.jobs.CancelJob(pb.CancelJobRequest(id=str(job_id), reason="\0")))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_option")
    assert (await engine.jobs.get(job_id)).status is JobStatus.PENDING


# --- waiting


async def wait(client: Client, job_id: UUID, seconds: float = 20) -> pb.Job:
    patience = Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    job: pb.Job = await client.jobs.WaitJob(pb.WaitJobRequest(id=str(job_id), patience=patience))
    return job


async def test_a_finished_job_is_answered_at_once(client: Client, engine: Engine) -> None:
    assert (await wait(client, await dead_letter(engine))).status == pb.DEAD_LETTERED


async def test_impatience_gets_the_job_as_it_stands(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine)

    assert (await wait(client, job_id, 0)).status == pb.PENDING
    assert (await wait(client, job_id, 0.05)).status == pb.PENDING


@pytest.mark.parametrize("seconds", [-1, 21, 1 << 61])
async def test_patience_has_limits(client: Client, engine: Engine, seconds: int) -> None:
    request = pb.WaitJobRequest(id=str(await submit_one(engine)), patience=Duration(seconds=seconds))

    answer = await refused(client.jobs.WaitJob(request))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_option")


async def test_an_end_in_this_process_is_heard_of(client: Client, engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr("pulse.engine.jobs.waiters.LOOK_EVERY", 60.0)
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    waiting = [asyncio.create_task(wait(client, job_id)) for _ in range(3)]
    await asyncio.sleep(0.2)
    started = time.monotonic()

    await engine.claims.report([a_report(claim)])

    assert [(await each).status for each in waiting] == [pb.COMPLETED] * 3
    assert time.monotonic() - started < 1  # a few milliseconds, on a machine with nothing else to do


async def test_a_cancel_is_heard_of(client: Client, engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr("pulse.engine.jobs.waiters.LOOK_EVERY", 60.0)
    job_id = await submit_one(engine)
    waiting = asyncio.create_task(wait(client, job_id))
    await asyncio.sleep(0.2)

    await client.jobs.CancelJob(pb.CancelJobRequest(id=str(job_id)))

    assert (await asyncio.wait_for(waiting, 5)).status == pb.CANCELLED


async def test_an_end_elsewhere_is_found(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine)
    waiting = asyncio.create_task(wait(client, job_id))
    await asyncio.sleep(0.2)
    conn = await asyncpg.connect(engine.settings.database_url)

    await conn.execute("update pulse.jobs set status = 'CANCELLED', finished_at = now()")
    await conn.close()

    assert (await asyncio.wait_for(waiting, 5)).status == pb.CANCELLED


async def test_a_dead_letter_of_the_duties_is_heard_of(client: Client, engine: Engine, monkeypatch: Any) -> None:
    monkeypatch.setattr("pulse.engine.jobs.waiters.LOOK_EVERY", 60.0)
    soon = datetime.now(UTC) + timedelta(seconds=0.7)
    job_id = await submit_one(engine, delay=timedelta(hours=1), deadline=soon)

    assert (await asyncio.wait_for(wait(client, job_id, 10), 10)).status == pb.DEAD_LETTERED


async def test_many_who_wait_are_one_question(client: Client, engine: Engine, monkeypatch: Any) -> None:
    asked: list[int] = []
    ask = engine.jobs.get_finished

    async def count(job_ids: Any) -> Any:
        asked.append(len(job_ids))
        return await ask(job_ids)

    monkeypatch.setattr(engine.jobs, "get_finished", count)
    submitted = await engine.jobs.submit([a_new_job()] * 50)

    await asyncio.gather(*(wait(client, each.id, 1) for each in submitted))
    asked_meanwhile = len(asked)
    await asyncio.sleep(0.3)

    assert max(asked) == 50
    assert asked_meanwhile < 20
    assert len(asked) <= asked_meanwhile + 1, "nobody waits, and still it asks"


async def test_only_so_many_may_wait(client: Client, server: Server, engine: Engine) -> None:
    server._waiters._limit = 1
    job_id = await submit_one(engine)
    waiting = asyncio.create_task(wait(client, job_id, 1))
    await asyncio.sleep(0.2)

    answer = await refused(wait(client, job_id))

    assert (answer.status, answer.code) == (Status.RESOURCE_EXHAUSTED, "limit_reached")
    assert (await waiting).status == pb.PENDING
    assert (await wait(client, job_id, 0)).status == pb.PENDING


async def test_a_caller_who_left_no_longer_waits(client: Client, server: Server, engine: Engine) -> None:
    call = client.jobs.WaitJob(pb.WaitJobRequest(id=str(await submit_one(engine))))
    await asyncio.sleep(0.2)

    call.cancel()
    await asyncio.sleep(0.2)

    assert not server._waiters._waiting
    assert server._waiters._count == 0


async def test_a_draining_server_lets_those_who_wait_go(client: Client, server: Server, engine: Engine) -> None:
    waiting = asyncio.create_task(wait(client, await submit_one(engine)))
    await asyncio.sleep(0.2)

    await asyncio.wait_for(server.drain(), 5)

    assert (await waiting).status == pb.PENDING


# --- operators


async def test_lists_go_page_by_page(client: Client, engine: Engine) -> None:
    submitted = await engine.jobs.submit([a_new_job()] * 5 + [a_new_job(topic="other")])
    wanted = pb.JobFilter(topic="mail", status=pb.PENDING)

    first = await client.operate.ListJobs(pb.ListJobsRequest(filter=wanted, limit=3))
    second = await client.operate.ListJobs(pb.ListJobsRequest(filter=wanted, limit=3, after=first.next))

    assert [job.id for job in (*first.jobs, *second.jobs)] == [str(each.id) for each in submitted[:5]]
    assert first.HasField("next")
    assert not second.HasField("next")


async def test_a_page_fits_into_a_message(engine: Engine) -> None:
    object.__setattr__(engine.settings, "message_limit", 4 << 20)
    payload = '"' + "x" * 900_000 + '"'
    await engine.jobs.submit([a_new_job(payload=payload)] * 7)
    seen: list[str] = []
    request = pb.ListJobsRequest(limit=500)

    async with served(Server(engine), engine) as client:
        while True:
            page = await client.operate.ListJobs(request)
            seen += [job.id for job in page.jobs]
            if not page.HasField("next"):
                break
            request.after = page.next

    assert len(seen) == len(set(seen)) == 7


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.ListJobsRequest(limit=501), "invalid_option"),
        (pb.ListJobsRequest(after="nonsense"), "invalid_filter"),
        (pb.ListJobsRequest(filter=pb.JobFilter(topic="\0")), "invalid_name"),
        (pb.ListJobsRequest(filter=pb.JobFilter(error="\0")), "invalid_option"),
        (pb.ListJobsRequest(filter=pb.JobFilter(status=99)), "invalid_input"),  # type: ignore[arg-type]
        (pb.ListJobsRequest(filter=pb.JobFilter(schedule_id="nightly")), "invalid_option"),
        (pb.ListJobsRequest(filter=pb.JobFilter(submitted_after=Timestamp(seconds=1 << 61))), "invalid_option"),
    ],
)
async def test_a_list_that_makes_no_sense(client: Client, request_: pb.ListJobsRequest, code: str) -> None:
    answer = await refused(client.operate.ListJobs(request_))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, code)


async def test_the_attempts_of_a_job(client: Client, engine: Engine) -> None:
    job_id = await dead_letter(engine)

    answer = await client.operate.ListAttempts(pb.ListAttemptsRequest(id=str(job_id)))

    assert [(each.attempt, each.error, each.worker) for each in answer.attempts] == [(1, "not wanted", "w1")]


async def test_several_are_cancelled_and_each_refusal_is_named(client: Client, engine: Engine) -> None:
    dead, waiting = await dead_letter(engine), await submit_one(engine)

    answer = await client.operate.CancelJobs(pb.CancelJobsRequest(ids=[str(waiting), str(dead), NOBODY]))

    assert answer.done == 1
    assert {each.id: each.code for each in answer.refusals} == {
        str(dead): "illegal_transition",
        NOBODY: "job_not_found",
    }
    assert (await engine.jobs.get(waiting)).status is JobStatus.CANCELLED


async def test_dead_letters_are_replayed_by_id_and_by_filter(client: Client, engine: Engine) -> None:
    first, second = await dead_letter(engine), await dead_letter(engine)

    by_id = await client.operate.ReplayJobs(pb.ReplayJobsRequest(ids=[str(first)]))
    by_filter = await client.operate.ReplayJobs(pb.ReplayJobsRequest(matching=pb.JobFilter(topic="mail")))

    assert (by_id.done, by_filter.done) == (1, 1)
    assert (await engine.jobs.get(second)).status is JobStatus.PENDING


async def test_a_job_is_run_before_its_time(client: Client, engine: Engine) -> None:
    later = await submit_one(engine, delay=timedelta(hours=1))
    request = pb.RunJobNowRequest(id=str(later))

    job = await client.operate.RunJobNow(request)
    again = await refused(client.operate.RunJobNow(request))

    assert (job.id, job.status) == (str(later), pb.PENDING)
    assert (again.status, again.code) == (Status.FAILED_PRECONDITION, "illegal_transition")
    assert (await refused(client.operate.RunJobNow(pb.RunJobNowRequest(id=NOBODY)))).code == "job_not_found"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.ReplayJobsRequest(), "invalid_input"),
        (pb.ReplayJobsRequest(ids=[NOBODY], matching=pb.JobFilter()), "invalid_input"),
        (pb.ReplayJobsRequest(ids=["nonsense"]), "invalid_option"),
        (pb.ReplayJobsRequest(ids=[NOBODY] * 10_001), "batch_too_large"),
        (pb.ReplayJobsRequest(matching=pb.JobFilter(status=pb.COMPLETED)), "invalid_filter"),
        (pb.ReplayJobsRequest(matching=pb.JobFilter(), limit=10_001), "invalid_option"),
    ],
    ids=range(6),
)
async def test_a_replay_that_makes_no_sense(
    client: Client, engine: Engine, request_: pb.ReplayJobsRequest, code: str
) -> None:
    job_id = await dead_letter(engine)

    answer = await refused(client.operate.ReplayJobs(request_))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, code)
    assert (await engine.jobs.get(job_id)).status is JobStatus.DEAD_LETTERED


async def test_topics_are_paused_and_resumed(client: Client, engine: Engine) -> None:
    await submit_one(engine)

    pause = await client.operate.PauseTopic(pb.PauseTopicRequest(topic="mail", reason="deploy"))
    during = await client.operate.ListTopics(pb.ListTopicsRequest())
    resumed = [await client.operate.ResumeTopic(pb.ResumeTopicRequest(topic="mail")) for _ in range(2)]
    after = await client.operate.ListTopics(pb.ListTopicsRequest())

    assert (pause.topic, pause.reason) == ("mail", "deploy")
    assert [(each.topic, dict(each.counts), each.paused) for each in during.topics] == [("mail", {"PENDING": 1}, True)]
    assert [each.topic for each in during.pauses] == ["mail"]
    assert [each.was_paused for each in resumed] == [True, False]
    assert not after.topics[0].paused


@pytest.mark.parametrize("topic", ["", "a\0b", "x" * 201])
async def test_a_topic_that_cannot_be(client: Client, jobs: Jobs, topic: str) -> None:
    for call in (
        client.operate.PauseTopic(pb.PauseTopicRequest(topic=topic)),
        client.operate.ResumeTopic(pb.ResumeTopicRequest(topic=topic)),
    ):
        answer = await refused(call)
        assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_name")
    assert not await jobs.pauses()


async def test_the_workers_are_those_of_the_dispatcher(engine: Engine) -> None:
    now = datetime.now(UTC)

    async def workers() -> list[WorkerSeen]:
        return [WorkerSeen("shop/w1", "here", "1", ["mail"], 20, 3, now, now)]

    async with served(Server(engine, dispatch=Dispatch(workers=workers)), engine) as client:
        answer = await client.operate.ListWorkers(pb.ListWorkersRequest())

    assert [(each.name, each.slots, each.busy) for each in answer.workers] == [("shop/w1", 20, 3)]


# --- who may


class NotYours(InvalidInput):
    code = "not_yours"


async def test_every_call_is_checked_for_the_topic_it_leads_to_before_it_does_anything(engine: Engine) -> None:
    asked: list[tuple[str, str]] = []

    def check(scope: str, topic: str) -> None:
        asked.append((scope, topic))
        raise NotYours(f"no {scope} for {topic}")

    dead, waiting = str(await dead_letter(engine)), str(await submit_one(engine))
    submit, follow, manage, view, operate = (
        [(right, "mail")] for right in ("submit", "follow", "manage", "view", "operate")
    )
    async with served(Server(engine, guard=Guard(check=check)), engine) as client:
        calls: list[tuple[Any, Any, list[tuple[str, str]]]] = [
            (client.jobs.SubmitJobs, pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail")]), submit),
            (client.jobs.GetJob, pb.GetJobRequest(id=waiting), follow),
            (client.jobs.WaitJob, pb.WaitJobRequest(id=waiting), follow),
            (client.jobs.CancelJob, pb.CancelJobRequest(id=waiting), manage),
            (client.operate.ListJobs, pb.ListJobsRequest(filter=pb.JobFilter(topic="mail")), view),
            (client.operate.ListJobs, pb.ListJobsRequest(), [("view", "*")]),
            (client.operate.ListJobs, pb.ListJobsRequest(filter=pb.JobFilter(schedule_id=NOBODY)), [("view", "*")]),
            (client.operate.ListAttempts, pb.ListAttemptsRequest(id=dead), view),
            (client.operate.ExplainJob, pb.ExplainJobRequest(id=waiting), view),
            (client.operate.CancelJobs, pb.CancelJobsRequest(ids=[NOBODY, waiting]), operate),
            (client.operate.ReplayJobs, pb.ReplayJobsRequest(ids=[dead]), operate),
            (client.operate.ReplayJobs, pb.ReplayJobsRequest(matching=pb.JobFilter(topic="mail")), operate),
            (client.operate.PauseTopic, pb.PauseTopicRequest(topic="mail"), operate),
            (client.operate.ResumeTopic, pb.ResumeTopicRequest(topic="mail"), operate),
            (client.operate.ListTopics, pb.ListTopicsRequest(), [("view", "*")]),
            (client.operate.ListWorkers, pb.ListWorkersRequest(), [("view", "*")]),
            (client.operate.GetOverview, pb.GetOverviewRequest(), [("view", "*")]),
        ]
        for method, request, expected in calls:
            asked.clear()
            assert (await refused(method(request))).code == "not_yours"
            assert asked == expected

    found = {str(job.id): job.status for job in (await engine.jobs.list_page()).jobs}
    assert found == {dead: JobStatus.DEAD_LETTERED, waiting: JobStatus.PENDING}
    assert not await engine.jobs.pauses()


async def test_a_batch_is_read_up_to_the_first_job_that_may_not_be_submitted(engine: Engine) -> None:
    def check(scope: str, topic: str) -> None:
        if topic == "bank":
            raise NotYours(f"no {scope} for {topic}")

    batch = [pb.NewJob(task="mail"), pb.NewJob(task="bank"), pb.NewJob(task="")]
    async with served(Server(engine, guard=Guard(check=check)), engine) as client:
        answer = await refused(client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=batch)))

    assert answer.code == "not_yours"


# --- the port


async def test_a_client_learns_the_limits(client: Client, server: Server, engine: Engine) -> None:
    info = await client.info.GetServerInfo(pb.GetServerInfoRequest())

    assert (info.version, info.server, info.contract) == (pulse.__version__, server.name, 6)
    assert (info.buckets, info.batch_limit, info.message_limit) == (engine.jobs.buckets, 10_000, 16 << 20)
    assert (info.lease.seconds, info.heartbeat.seconds) == (30, 10)


async def test_health_says_when_a_server_is_about_to_go(client: Client, server: Server) -> None:
    health: Any = health_pb2_grpc.HealthStub(client.channel)
    services = ["", "pulse.v1.Jobs", "pulse.v1.Operate", "pulse.v1.Info"]
    serving = [await health.Check(health_pb2.HealthCheckRequest(service=each)) for each in services]

    await server._port.drain()

    draining = [await health.Check(health_pb2.HealthCheckRequest(service=each)) for each in services]
    assert [each.status for each in serving] == [health_pb2.HealthCheckResponse.SERVING] * 4
    assert [each.status for each in draining] == [health_pb2.HealthCheckResponse.NOT_SERVING] * 4


async def test_reflection_lists_the_services(client: Client) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(client.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))

    answers = [answer async for answer in call]

    names = {each.name for each in answers[0].list_services_response.service}
    assert names >= {"pulse.v1.Jobs", "pulse.v1.Operate", "pulse.v1.Info", "grpc.health.v1.Health"}


async def test_a_message_over_the_limit_is_refused(client: Client, jobs: Jobs) -> None:
    large = pb.NewJob(task="mail", payload='"' + "x" * 1_000_000 + '"')

    answer = await refused(client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[large] * 17)))

    assert answer.status is Status.RESOURCE_EXHAUSTED
    assert not (await jobs.list_page()).jobs


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5_000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 99]
)
async def test_garbage_on_the_port_harms_nobody(client: Client, server: Server, garbage: bytes) -> None:
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(garbage)
    await asyncio.wait_for(reader.read(), 10)
    writer.close()

    assert (await client.info.GetServerInfo(pb.GetServerInfoRequest())).version


async def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    call: Any = client.channel.unary_unary("/pulse.v1.Jobs/GetJob")

    for garbage in (b"\xff\xff\xff\xff", b"\n\x01\xff"):  # no message at all; a text that is not UTF-8
        answer = await refused(call(garbage))
        assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_input")


async def test_a_method_nobody_knows_is_unimplemented(client: Client) -> None:
    call: Any = client.channel.unary_unary("/pulse.v1.Jobs/Dance")

    assert (await refused(call(b""))).status is Status.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (JobBusy(UUID(NOBODY)), Status.ABORTED, "job_busy"),
        (InvalidInput("é" * 20_000), Status.INVALID_ARGUMENT, "invalid_input"),
        (RuntimeError("the password is hunter2"), Status.INTERNAL, "internal"),
    ],
    ids=["ours", "a long one", "a mistake"],
)
async def test_an_error_within_is_answered_and_a_mistake_is_kept_to_ourselves(
    client: Client, engine: Engine, monkeypatch: Any, caplog: Any, error: Exception, status: Status, code: str
) -> None:
    async def fail(_job_id: UUID) -> None:
        raise error

    monkeypatch.setattr(engine.jobs, "get", fail)

    answer = await refused(client.jobs.GetJob(pb.GetJobRequest(id=NOBODY)))

    assert (answer.status, answer.code) == (status, code)
    assert "hunter2" not in answer.message
    assert ("hunter2" in caplog.text) is (code == "internal")


# --- streams


class Streaming(pb_grpc.WorkServicer):
    """As a dispatcher's service will be."""

    @handle_errors
    async def StreamJobs(  # noqa: N802  the proto names it
        self, request: pb.StreamJobsRequest, _context: Any
    ) -> AsyncIterator[pb.StreamJobsResponse]:
        yield pb.StreamJobsResponse(sequence=1, hello=pb.Hello(worker=request.worker))
        raise JobBusy(UUID(NOBODY))


async def test_a_stream_ends_with_its_error_as_any_call_does(engine: Engine) -> None:
    streaming = Streaming()  # type: ignore[abstract]  # the other methods are not called
    async with served(Server(engine, dispatch=Dispatch(servicers=[streaming])), engine) as client:
        call: Any = client.channel.unary_stream(
            "/pulse.v1.Work/StreamJobs", response_deserializer=pb.StreamJobsResponse.FromString
        )
        stream = call(pb.StreamJobsRequest(worker="w1").SerializeToString())

        assert (await stream.read()).hello.worker == "w1"
        ended = await refused(stream.read())
        garbage = await refused(call(b"\xff\xff").read())

    assert (ended.status, ended.code) == (Status.ABORTED, "job_busy")
    assert (garbage.status, garbage.code) == (Status.INVALID_ARGUMENT, "invalid_input")


# --- going


@pytest.fixture
def slow(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set it, and calls of GetJob go on."""
    is_to_go_on, get = asyncio.Event(), engine.jobs.get

    async def get_slowly(job_id: UUID) -> Any:
        await is_to_go_on.wait()
        return await get(job_id)

    monkeypatch.setattr(engine.jobs, "get", get_slowly)
    return is_to_go_on


async def test_a_drain_finishes_calls_under_way_and_takes_no_more(
    client: Client, server: Server, engine: Engine, slow: asyncio.Event
) -> None:
    under_way = client.jobs.GetJob(pb.GetJobRequest(id=str(await submit_one(engine))))
    await asyncio.sleep(0.2)
    draining = asyncio.create_task(server.drain())
    await asyncio.sleep(0.2)

    assert not server.is_ready
    assert (await refused(client.info.GetServerInfo(pb.GetServerInfoRequest()))).status is Status.UNAVAILABLE
    slow.set()

    assert (await under_way).status == pb.PENDING
    await asyncio.wait_for(draining, 5)


async def test_a_drain_waits_for_the_dispatcher_while_calls_are_still_taken(engine: Engine) -> None:
    is_drained = asyncio.Event()

    async def drain() -> None:
        await is_drained.wait()

    server = Server(engine, dispatch=Dispatch(drain=drain))
    async with served(server, engine) as client:
        draining = asyncio.create_task(server.drain())
        await asyncio.sleep(0.1)

        assert (await client.info.GetServerInfo(pb.GetServerInfoRequest())).version
        is_drained.set()
        await asyncio.wait_for(draining, 5)


@pytest.mark.usefixtures("slow")
async def test_a_drain_that_is_cut_short_ends_calls_at_once(client: Client, server: Server) -> None:
    under_way = client.jobs.GetJob(pb.GetJobRequest(id=NOBODY))
    await asyncio.sleep(0.2)
    draining = asyncio.create_task(server.drain())
    await asyncio.sleep(0.2)

    draining.cancel()
    await asyncio.wait_for(server.close(), 5)

    assert (await refused(under_way)).status in (Status.UNAVAILABLE, Status.CANCELLED)


TAGGED = pb.SubmitJobsRequest(jobs=[pb.NewJob(task="t", tags=[""] * 8_000)] * 63)
NAMED = pb.SyncSchedulesRequest(schedules=[pb.DeclaredSchedule(aliases=[""] * 8_000)] * 63)


@pytest.mark.parametrize(
    ("method", "request_bytes"),
    [
        pytest.param("Jobs/SubmitJobs", b"\x0a\x00" * 60_001, id="empty jobs"),
        pytest.param("Jobs/SubmitJobs", b"\xf8\x07\x01" * 60_001, id="unknown fields"),
        pytest.param("Jobs/SubmitJobs", TAGGED.SerializeToString(), id="tags of many jobs"),
        pytest.param("Schedules/SyncSchedules", NAMED.SerializeToString(), id="aliases of many schedules"),
    ],
)
async def test_a_request_of_too_many_values_is_refused_unread(
    client: Client, method: str, request_bytes: bytes
) -> None:
    """An empty job is two bytes there, and hundreds once it is read."""
    call: Any = client.channel.unary_unary(f"/pulse.v1.{method}")

    answer = await refused(call(request_bytes))

    assert (answer.status, answer.code) == (Status.INVALID_ARGUMENT, "invalid_input")
    assert answer.message == (
        "a message must have at most 60,000 values, and a request 500,000 in all: send it in parts"
    )


async def test_the_largest_batch_with_all_that_a_job_usually_has_is_taken(client: Client) -> None:
    job = pb.NewJob(task="shop.send", topic="mail", payload="{}", max_attempts=5, retry='{"kind": "fixed"}')
    job.tags.extend(["a", "b", "c"])
    job.trace.update({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
    for length in (job.timeout, job.delay, job.result_ttl):
        length.FromSeconds(60)

    answer = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[job] * 10_000))

    assert len(answer.jobs) == 10_000


async def test_a_retry_policy_is_measured_before_it_is_read(client: Client) -> None:
    policy = '{"kind": "fixed"}' + " " * (64 << 10)

    answer = await refused(client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="t", retry=policy)])))

    assert (answer.code, "at most 65536 characters" in answer.message) == ("invalid_option", True)
