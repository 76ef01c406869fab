"""Document 002, about the streaming dispatch of jobs: each worker holds a stream, jobs are claimed in batches with
SKIP LOCKED before they are sent, and what happens when a claim or a send fails."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse.engine import workers
from pulse.engine.dispatch.dispatcher import Dispatcher
from pulse.engine.dispatch.worker_stream import Pool, WorkerStream
from pulse.engine.engine import Engine
from pulse.engine.jobs.claims import Claims
from pulse.model.errors import DatabaseUnreachable
from pulse.model.jobs import CLAIM_LIMIT, JobStatus
from pulse.server import Server, open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.statements import load_statements
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.doors.grpc_client import Client, connected
from tests.doors.test_grpc_work import Stream, completed, lease, shown, statuses, streaming, submit
from tests.factories import a_new_job, claim_one, submit_one
from tests.seeds.conftest import Another
from tests.seeds.helpers import HOUR, SECOND
from tests.seeds.sayings import says
from tests.store.test_plans import calls, explain, nodes
from tests.waiting import until

DEFAULTS = Settings()
PATIENCE = 60.0  # seconds for what takes a moment, on a machine that has much else to do
A_TICK = timedelta(milliseconds=50)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, listen="127.0.0.1:0", tick=A_TICK)


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    async with open_server(settings) as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with connected(str(server.address)) as client:
        yield client


@asynccontextmanager
async def dispatching(engine: Engine, *streams: WorkerStream, tick: timedelta = A_TICK) -> AsyncIterator[Dispatcher]:
    """A dispatcher at work, as a server has one, with these workers."""
    dispatcher = Dispatcher(engine.jobs, engine.claims, replace(engine.settings, tick=tick))
    for stream in streams:
        dispatcher.connect(stream)
    life = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.drain()
        await asyncio.wait_for(life, PATIENCE)


def a_stream(worker: str = "w1", slots: int = 10, topic: str = "mail") -> WorkerStream:
    return WorkerStream(worker, [Pool((topic,), slots)])


# --- the stream


@says("002", 70, "A worker calls StreamJobs with its topics and its name, and holds the stream open.")
async def test_a_worker_is_sent_the_jobs_of_its_topics(client: Client, engine: Engine) -> None:
    async with streaming(client, "w1", (["mail", "post"], 10)) as stream:
        for topic in ("mail", "other", "post"):
            await submit_one(engine, topic=topic)

        found = await stream.jobs(2)

        assert sorted(job.topic for job in found) == ["mail", "post"]
        assert {job.locked_by for job in (await engine.jobs.list_page()).jobs if job.topic != "other"} == {"local/w1"}


@says("002", 71, "The dispatcher looks every 500 ms.")
async def test_what_nobody_told_of_is_found_at_the_next_tick(settings: Settings, another: Another) -> None:
    quiet = await another(notify=False)
    async with (
        open_server(replace(settings, notify=False)) as server,
        connected(str(server.address)) as client,
        streaming(client) as stream,
    ):
        job_id = await submit_one(quiet)
        [job] = await stream.jobs(1)

    assert job.job_id == str(job_id)
    assert DEFAULTS.tick == timedelta(milliseconds=500)


@says("002", 72, "A pause is looked at before each claim.")
async def test_nothing_is_claimed_while_its_topic_is_paused(client: Client, engine: Engine) -> None:
    async with streaming(client) as stream:
        await engine.jobs.pause("mail")
        await submit(engine, 5)
        assert await engine.claims.claim("mail", worker="w2", slots=5) == []
        assert await stream.nothing()
        assert set(await statuses(engine.jobs)) == {JobStatus.PENDING}

        await engine.jobs.resume("mail")
        await stream.jobs(5)


@says(
    "002",
    73,
    "A connected stream is the presence of its worker: there is no table of them.",
    verdict="deviates",
    decision="0023",
    because="rows say who is connected, for people to look at; nothing is decided by them.",
)
async def test_who_is_connected_is_written_down_and_nothing_depends_on_it(
    settings: Settings, engine: Engine, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "NOTE_EVERY", A_TICK)  # and not every five seconds

    async with open_server(settings) as server, connected(str(server.address)) as client, streaming(client) as stream:

        async def is_listed() -> bool:
            found = (await client.operate.ListWorkers(pb.ListWorkersRequest())).workers
            return [worker.name for worker in found] == ["local/w1"]

        await until(is_listed, PATIENCE)
        await conn.execute("delete from pulse.workers")
        await submit(engine, 1)
        job = await stream.jobs(1)
        assert list((await stream.report(job)).answers) == [pb.ACCEPTED]


# --- the claim


@says("002", 74, "A batch is claimed by one UPDATE over a FOR UPDATE SKIP LOCKED subselect.")
async def test_a_claim_is_one_statement_that_passes_over_locked_rows(engine: Engine, settings: Settings) -> None:
    held, *others = await submit(engine, 4)
    async with open_connection(settings) as other, other.transaction():
        await other.fetch("select from pulse.jobs where id = $1 for update", held)
        claims = await engine.claims.claim("mail", worker="w1", slots=4)
        plan = nodes(await explain(other._raw, "claim_jobs", calls(settings)["claim_jobs"][0]))

    assert sorted(claim.id for claim in claims) == sorted(others)
    updates = [node for node in plan if (node.get("Operation"), node.get("Relation Name")) == ("Update", "jobs")]
    assert len(updates) == 1
    assert "LockRows" in {node["Node Type"] for node in plan}


@says(
    "002",
    75,
    "A claim takes 100 jobs.",
    verdict="deviates",
    decision="0023",
    because="as many as the worker has room for, and 500 at most.",
)
async def test_a_claim_takes_what_there_is_room_for(client: Client, engine: Engine) -> None:
    await submit(engine, 50)

    async with streaming(client, "w1", (["mail"], 7)) as stream:
        await stream.jobs(7)
        assert await stream.nothing()
        assert (await statuses(engine.jobs)).count(JobStatus.RUNNING) == 7
    assert CLAIM_LIMIT == 500


@says("002", 76, "Jobs are claimed by priority, and then first in, first out.")
async def test_jobs_are_claimed_by_priority_and_then_first_in_first_out(engine: Engine, noon: FrozenClock) -> None:
    ids: dict[tuple[int, int], Any] = {}
    for turn in range(3):
        for priority in (0, 5, -5):
            ids[turn, priority] = await submit_one(engine, priority=priority)
        await noon.advance(SECOND)

    claimed = [(await claim_one(engine)).id for _ in ids]

    assert claimed == [ids[turn, priority] for priority in (5, 0, -5) for turn in range(3)]


@says("002", 77, "The claim reads a partial index, so it costs the same whatever waits behind it.")
async def test_a_claim_reads_no_more_than_it_takes(engine: Engine, settings: Settings) -> None:
    for _ in range(4):
        await engine.jobs.submit([a_new_job() for _ in range(1_000)])
    statement = load_statements("pulse")["claim_jobs"].sql.rstrip().rstrip(";")
    async with open_connection(settings) as conn, conn.transaction():
        [[definition]] = await conn.fetch("select indexdef from pg_indexes where indexname = 'jobs_claim'")
        hundred = calls(settings)["claim_jobs"][0]
        [[text]] = await conn.fetch(f"explain (analyze, format json, timing off) {statement}", *hundred)

    assert "WHERE (status = 'PENDING'" in definition
    plan = nodes(json.loads(text)[0]["Plan"])
    [scan] = [node for node in plan if node.get("Index Name") == "jobs_claim"]
    assert (scan["Node Type"], scan["Actual Rows"]) == ("Index Scan", 100)
    assert "Seq Scan" not in {node["Node Type"] for node in plan if node.get("Relation Name") == "jobs"}


@says("002", 78, "State, owner, lease and attempt are set by the one UPDATE that claims.")
async def test_a_claim_sets_state_owner_lease_and_attempt(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)

    await claim_one(engine, worker="w7")

    job = await engine.jobs.get(job_id)
    assert (job.status, job.locked_by, job.attempt) == (JobStatus.RUNNING, "w7", 1)
    assert job.lease_until == noon.instant + DEFAULTS.lease


@says("002", 79, "Concurrent workers get disjoint batches, without conflicts.")
async def test_concurrent_workers_get_disjoint_batches(engine: Engine, another: Another) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(600)])
    engines = [engine, *[await another() for _ in range(3)]]
    found: Counter[Any] = Counter()

    async def work(number: int) -> None:
        claims = engines[number % 4].claims
        while batch := await claims.claim("mail", worker=f"w{number}", slots=10):
            found.update(claim.id for claim in batch)

    await asyncio.gather(*(work(number) for number in range(20)))  # where a conflict would raise

    left = await engine.claims.claim("mail", worker="w", slots=500)
    assert (len(found) + len(left), set(found.values())) == (600, {1})
    assert not found.keys() & {claim.id for claim in left}


# --- between the claim and the worker


@says("002", 80, "A job is claimed before it is sent.")
async def test_a_job_is_its_workers_before_it_is_sent(client: Client, engine: Engine) -> None:
    await submit(engine, 1)

    async with streaming(client, "w9") as stream:
        [job] = await stream.jobs(1)
        [row] = (await engine.jobs.list_page()).jobs

    assert (row.status, row.locked_by, row.lease_id) == (JobStatus.RUNNING, "local/w9", job.lease_id)


@says("002", 81, "What was claimed and not sent is covered by its lease.")
async def test_what_was_not_sent_is_given_back_or_comes_back_by_its_lease(engine: Engine, noon: FrozenClock) -> None:
    lost, unsent = await submit(engine, 2)
    await engine.claims.claim("mail", worker="dead", slots=1)  # its server died before it could send
    stream = a_stream()
    async with dispatching(engine, stream) as dispatcher:
        await until(lambda: _holds(stream, 1), PATIENCE)
        await dispatcher.disconnect(stream)  # and this one knows that it did not

    given_back = await engine.jobs.get(unsent)
    assert (given_back.status, given_back.attempt - given_back.refunded) == (JobStatus.PENDING, 0), "at no charge"
    assert (await engine.jobs.get(lost)).status is JobStatus.RUNNING
    await noon.advance(DEFAULTS.lease + SECOND)
    await engine.duties.reap()
    reaped = await engine.jobs.get(lost)
    assert (reaped.status, reaped.last_error) == (JobStatus.RETRYING, "worker lease expired")


async def _holds(stream: WorkerStream, jobs: int) -> bool:
    return len(stream.held) == jobs


@says("002", 82, "An error of the claim keeps the stream: the next tick tries again.")
async def test_an_error_of_the_claim_keeps_the_stream(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_for, failures = Claims.claim_for, 0

    async def away(self: Claims, *given: Any, **more: Any) -> Any:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise DatabaseUnreachable("gone for a moment")
        return await claim_for(self, *given, **more)

    monkeypatch.setattr(Claims, "claim_for", away)
    await submit(engine, 1)

    async with streaming(client) as stream:
        [job] = await stream.jobs(1)

    assert (failures, job.attempt) == (3, 1)


@says("002", 83, "An error of the sending ends the stream.")
async def test_a_stream_that_cannot_be_sent_to_ends(client: Client, engine: Engine) -> None:
    async with streaming(client, "w1", (["mail"], 100)) as gone:
        gone.call.cancel()
        async with asyncio.timeout(PATIENCE):  # until the server has seen it: then what it had room for goes to others
            while not await _refuses_credit(gone):
                await asyncio.sleep(0.01)

        async with streaming(client, "w2", (["mail"], 10)) as stream:
            await submit(engine, 10)
            await stream.jobs(10)


async def _refuses_credit(stream: Stream) -> bool:
    try:
        await stream.update(100)
    except Exception as error:
        return "has ended" in str(error)
    return False


# --- heartbeats and reports


@says("002", 84, "Heartbeats and reports are unary calls of their own, beside the stream.")
async def test_heartbeats_and_reports_need_no_stream(client: Client, engine: Engine) -> None:
    await submit(engine, 1)
    held = shown(await claim_one(engine, worker="local/w1"))

    beat = await client.work.Heartbeat(pb.HeartbeatRequest(worker="w1", leases=[held]))
    report = await client.work.ReportResults(pb.ReportResultsRequest(worker="w1", reports=[completed(held)]))

    assert (list(beat.answers), list(report.answers)) == ([pb.ACCEPTED], [pb.ACCEPTED])


@says(
    "002",
    85,
    "ReportResult reports one result.",
    verdict="deviates",
    decision="0017",
    because="ReportResults takes a batch, answers for each, and a repeated report is known as such.",
)
async def test_reports_go_in_batches_and_can_be_repeated(client: Client, engine: Engine) -> None:
    await submit(engine, 5)

    async with streaming(client) as stream:
        jobs = await stream.jobs(5)
        first = await stream.report(jobs)
        again = await stream.report(jobs)

    assert (list(first.answers), list(again.answers)) == ([pb.ACCEPTED] * 5, [pb.ALREADY] * 5)
    assert set(await statuses(engine.jobs)) == {JobStatus.COMPLETED}


@says("002", 86, "An assignment carries the job's id and its attempt, which tell a repetition.")
async def test_an_assignment_carries_id_and_attempt(client: Client, engine: Engine) -> None:
    job_id = await submit_one(engine, retry=None)

    async with streaming(client) as stream:
        [first] = await stream.jobs(1)
        await client.work.ReleaseJobs(pb.ReleaseJobsRequest(worker="w1", leases=[lease(first)]))
        await stream.update(10)
        [again] = await stream.jobs(1)

    assert [(job.job_id, job.attempt) for job in (first, again)] == [(str(job_id), 1), (str(job_id), 2)]


# --- what it costs


@says("002", 87, "2000 jobs over 8 workers: no rollbacks, and 1.6 transactions for a job.")
async def test_two_thousand_jobs_over_eight_workers(client: Client, server: Server, engine: Engine) -> None:
    for _ in range(2):
        await engine.jobs.submit([a_new_job() for _ in range(1_000)])
    done: Counter[str] = Counter()
    reports = 0

    async def work(stream: Stream) -> None:
        nonlocal reports
        while done.total() < 2_000:
            if (message := await stream.next(within=0.1)) is None:
                continue
            jobs = message.assignments.jobs
            done.update(job.job_id for job in jobs)
            reports += 1
            answer = await stream.report(jobs, credit=stream.credit(50))
            assert set(answer.answers) == {pb.ACCEPTED}

    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(streaming(client, f"w{n}", (["mail"], 50))) for n in range(8)]
        async with asyncio.timeout(2 * PATIENCE):
            await asyncio.gather(*(work(stream) for stream in streams))

    claims = sum(server._engine.instruments.claims.counts)
    assert (len(done), set(done.values())) == (2_000, {1})
    assert (claims + reports) / 2_000 < 1.6
    assert {topic.topic: topic.counts for topic in await engine.jobs.counts()} == {"mail": {JobStatus.COMPLETED: 2_000}}


@says(
    "002",
    88,
    "A job waits up to one tick of 500 ms: a floor that polling cannot go below.",
    verdict="deviates",
    decision="0010",
    because="a hint wakes whoever waits, in this process and in others; polling is the guarantee behind it.",
)
async def test_a_job_need_not_wait_for_a_tick(settings: Settings, another: Another) -> None:
    async with (
        open_server(replace(settings, tick=HOUR)) as server,
        connected(str(server.address)) as client,
        streaming(client) as stream,
    ):
        here = await client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail", payload="{}")]))
        [job] = await stream.jobs(1)
        assert job.job_id == here.jobs[0].id
        other = await another()
        other.notifications.start(listen=False)
        elsewhere = await submit_one(other)
        [job] = await stream.jobs(1)
        await other.notifications.stop()

    assert job.job_id == str(elsewhere)


@says(
    "002",
    89,
    "The load of the database grows with the connected workers: a query for each and tick.",
    verdict="deviates",
    decision="0023",
    because="one claimer asks once for all of them.",
)
async def test_a_tick_costs_the_same_with_thirty_workers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for name in ("claim_for", "ready_topics"):
        original = getattr(Claims, name)

        async def counted(self: Claims, *given: Any, _name: str = name, _call: Any = original, **more: Any) -> Any:
            asked.append(_name)
            return await _call(self, *given, **more)

        monkeypatch.setattr(Claims, name, counted)

    async def ticks(workers: int) -> list[str]:
        asked.clear()
        streams = [a_stream(f"w{number}") for number in range(workers)]
        async with dispatching(engine, *streams, tick=timedelta(milliseconds=5)):
            await until(lambda: _asked(asked, 6), PATIENCE)
        return asked[:6]

    assert await ticks(30) == await ticks(1) == ["claim_for", *["ready_topics"] * 5]


async def _asked(asked: list[str], times: int) -> bool:
    return len(asked) >= times
