"""Document 004, about leases, heartbeats, the watchdog and fencing: how a job outlives its worker, and how a worker
that was given up is kept from doing harm."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.engine.jobs.claims import Claims
from pulse.model.errors import InvalidSettings
from pulse.model.jobs import JobStatus, Outcome, ReportStatus
from pulse.server import open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.jobs import duties
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.doors.grpc_client import Client, connected
from tests.doors.test_grpc_work import completed, shown, streaming, submit
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one
from tests.sdk.apps_here import working
from tests.seeds.conftest import Another
from tests.seeds.helpers import HOUR, MINUTE, SECOND
from tests.seeds.sayings import says
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEFAULTS = Settings()
PATIENCE = 60.0  # seconds for what takes a moment, on a machine that has much else to do
LEASE, BEAT, WATCH = DEFAULTS.lease, DEFAULTS.heartbeat, DEFAULTS.watchdog


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[Client]:
    async with open_server(replace(settings, listen="127.0.0.1:0")) as server, connected(str(server.address)) as client:
        yield client


async def reap_and_promote(engine: Engine, clock: FrozenClock) -> None:
    """Its lease ends, it is taken away, and its back-off passes."""
    await clock.advance(LEASE + SECOND)
    assert await engine.duties.reap() == 1
    await clock.advance(MINUTE)
    await engine.duties.promote()


def count_beats(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many leases each heartbeat renews, from now on."""
    sizes: list[int] = []
    heartbeat = Claims.heartbeat

    async def counted(self: Claims, leases: Any) -> list[ReportStatus]:
        sizes.append(len(leases))
        return await heartbeat(self, leases)

    monkeypatch.setattr(Claims, "heartbeat", counted)
    return sizes


# --- the lease


@says("004", 90, "The lease is on the job's row: there is no RUNNING job without one.")
async def test_a_running_job_without_a_lease_cannot_be(engine: Engine, conn: Connection) -> None:
    job_id = await submit_one(engine)
    await claim_one(engine)

    with pytest.raises(asyncpg.CheckViolationError):
        await conn.fetch("update pulse.jobs set lease_until = null where id = $1", job_id)
    other = await submit_one(engine)
    with pytest.raises(asyncpg.CheckViolationError):
        await conn.fetch("update pulse.jobs set status = 'RUNNING' where id = $1", other)


@says("004", 91, "A lease lasts 30 s, and a heartbeat makes it last 30 s from then on.")
async def test_a_lease_lasts_thirty_seconds(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    assert (await engine.jobs.get(job_id)).lease_until == noon.instant + timedelta(seconds=30)

    await noon.advance(BEAT)
    assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]

    assert (await engine.jobs.get(job_id)).lease_until == noon.instant + timedelta(seconds=30)


@says("004", 92, "The SDK renews the lease of a running job every 10 s.")
async def test_the_sdk_renews_the_lease_of_a_running_job(settings: Settings, engine: Engine) -> None:
    app, may_end = Pulse(settings=settings), asyncio.Event()

    @app.task
    async def wait() -> None:
        await may_end.wait()

    seen: set[object] = set()

    async def renewed_twice() -> bool:
        seen.add((await engine.jobs.get(job.id)).lease_until)
        return len(seen - {None}) >= 3

    job = await wait.aenqueue()
    async with working(app, lease=timedelta(seconds=30), heartbeat=timedelta(milliseconds=100)):
        await until(renewed_twice, PATIENCE)
        may_end.set()
        await job.aresult(PATIENCE)

    assert timedelta(seconds=10) == BEAT


@says("004", 93, "A lease outlasts three heartbeats, so a pause of a worker takes nothing away.")
async def test_two_missed_heartbeats_take_nothing_away(engine: Engine, noon: FrozenClock) -> None:
    claim_id = await submit_one(engine)
    claim = await claim_one(engine)
    with pytest.raises(InvalidSettings, match="three heartbeats"):
        Settings(lease=timedelta(seconds=29), heartbeat=timedelta(seconds=10))

    await noon.advance(3 * BEAT)  # it stood still, and is about to send its third
    assert await engine.duties.reap() == 0
    assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
    await engine.claims.report([a_report(claim)])

    job = await engine.jobs.get(claim_id)
    assert (job.status, job.attempt) == (JobStatus.COMPLETED, 1)


# --- the fence


@says(
    "004",
    95,
    "A stale heartbeat matches no row, and nobody is told.",
    verdict="deviates",
    decision="0002",
    because="it is answered LOST, so that the handler can end; the lease does not move.",
)
async def test_a_stale_heartbeat_is_answered_as_lost(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    old = await claim_one(engine, worker="w1")
    await reap_and_promote(engine, noon)
    await claim_one(engine, worker="w2")
    before = await engine.jobs.get(job_id)
    await noon.advance(SECOND)

    assert await engine.claims.heartbeat([lease_of(old)]) == [ReportStatus.LOST]
    assert await engine.jobs.get(job_id) == before


@says(
    "004",
    101,
    "A worker that claims its own lost job again is told from itself by the attempt.",
    verdict="deviates",
    decision="0002",
    because="by `lease_id`, which every claim and every loss of one raises, and nothing lowers.",
)
async def test_a_worker_is_told_from_its_own_older_claim(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    old = await claim_one(engine, worker="w1")
    await reap_and_promote(engine, noon)
    new = await claim_one(engine, worker="w1")
    before = await engine.jobs.get(job_id)

    assert await engine.claims.heartbeat([lease_of(old)]) == [ReportStatus.LOST]
    assert await engine.claims.report([a_report(old, result='"old"')]) == [ReportStatus.LOST]
    assert await engine.jobs.get(job_id) == before
    assert new.lease_id > old.lease_id
    assert await engine.claims.report([a_report(new, result='"new"')]) == [ReportStatus.ACCEPTED]
    assert (await engine.jobs.get(job_id)).result == '"new"'


@says(
    "004",
    102,
    "A fence of 0 is not checked, for callers of before.",
    verdict="deviates",
    decision="0002",
    because="it is required: 0 is refused.",
)
async def test_a_fence_of_zero_is_refused(settings: Settings, engine: Engine) -> None:
    job_id = await submit_one(engine)
    await claim_one(engine, worker="local/w1")
    before = await engine.jobs.get(job_id)

    async with served(settings) as client:
        without = pb.Lease(job_id=str(job_id), lease_id=0)
        beat = await client.work.Heartbeat(pb.HeartbeatRequest(worker="w1", leases=[without]))
        reports = pb.ReportResultsRequest(worker="w1", reports=[completed(without)])
        report = await client.work.ReportResults(reports)

    assert [*beat.answers, *report.answers] == [pb.REFUSED] * 2
    assert "lease_id" in beat.refusals[0].message
    assert await engine.jobs.get(job_id) == before


# --- the watchdog


@says("004", 96, "Every 10 s one set-based statement moves expired jobs as a failure does: “worker lease expired”.")
async def test_expired_jobs_are_moved_by_one_statement_as_a_failure_moves_them(
    engine: Engine, noon: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.jobs.submit([a_new_job(max_attempts=1 + number % 3) for number in range(300)])
    assert len(await engine.claims.claim("mail", worker="w1", slots=300)) == 300
    statements, reap_jobs = [], duties.reap_jobs

    async def counted(*given: Any, **more: Any) -> Any:
        moved = await reap_jobs(*given, **more)
        statements.extend([len(moved)] * bool(moved))
        return moved

    monkeypatch.setattr(duties, "reap_jobs", counted)
    await noon.advance(LEASE + SECOND)

    assert await engine.duties.reap() == 300
    assert statements == [300]
    assert timedelta(seconds=10) == WATCH
    jobs = (await engine.jobs.list_page(limit=500)).jobs
    states = Counter((job.max_attempts == 1, job.status, job.last_error) for job in jobs)
    assert states == {
        (True, JobStatus.DEAD_LETTERED, "worker lease expired"): 100,
        (False, JobStatus.RETRYING, "worker lease expired"): 200,
    }


@says("004", 97, "Several watchdogs at once do no harm: a row is taken away once.")
async def test_several_watchdogs_take_a_lease_away_once(engine: Engine, another: Another, noon: FrozenClock) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(200)])
    await engine.claims.claim("mail", worker="w1", slots=200)
    await noon.advance(LEASE + SECOND)
    watchdogs = [engine, await another(), await another()]

    reaped = await asyncio.gather(*(each.duties.reap() for each in watchdogs * 2))

    jobs = (await engine.jobs.list_page(limit=500)).jobs
    lines = [len(await engine.jobs.attempts(job.id)) for job in jobs]
    assert (sum(reaped), {job.status for job in jobs}) == (200, {JobStatus.RETRYING})
    assert (len(lines), set(lines)) == (200, {1})


@says("004", 98, "A job is recovered within a lease and one look of the watchdog: some 40 s.")
async def test_a_job_is_recovered_within_a_lease_and_one_look(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await claim_one(engine)
    recovered_after = None

    for looks in range(1, 7):
        await noon.advance(WATCH)
        await engine.duties.reap()
        if recovered_after is None and (await engine.jobs.get(job_id)).status is JobStatus.RETRYING:
            recovered_after = looks * WATCH

    assert recovered_after == LEASE + WATCH == timedelta(seconds=40)


@says("004", 99, "The contract is at least once, and is said where people meet it.")
def test_at_least_once_is_said_where_people_meet_it() -> None:
    readme = (ROOT / "README.md").read_text()
    proto = (ROOT / "proto" / "pulse" / "v1" / "pulse.proto").read_text()
    [assignment] = re.findall(r"^message Assignment \{.*?^\}", proto, re.MULTILINE | re.DOTALL)

    assert re.search(r"Delivery is \*\*at least once\*\*.*\bidempotent", readme, re.DOTALL)
    assert re.search(r"at least once", (ROOT / "docs" / "how-to" / "receive-wakes.md").read_text())
    assert {"job_id", "attempt"} <= set(re.findall(r"(\w+) = \d+;", assignment)), "the key to deduplicate by"


@says("004", 103, "A worker that was cut off may still run its job: it is run again, and the first one is fenced out.")
async def test_a_job_of_a_worker_that_was_cut_off_runs_again(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    cut_off = await claim_one(engine, worker="w1")
    await reap_and_promote(engine, noon)
    other = await claim_one(engine, worker="w2")

    assert await engine.claims.report([a_report(other, result='"w2"')]) == [ReportStatus.ACCEPTED]
    late = [a_report(cut_off, result='"w1"'), a_report(cut_off, Outcome.FAIL)]
    for report in late:
        assert await engine.claims.report([report]) == [ReportStatus.LOST]

    job = await engine.jobs.get(job_id)
    assert (job.status, job.result, job.attempt) == (JobStatus.COMPLETED, '"w2"', 2)


# --- what liveness is not


@says("004", 104, "The death of a stream is not the death of its worker.")
async def test_a_stream_may_die_under_a_running_job(settings: Settings, engine: Engine) -> None:
    job_id = await submit_one(engine)
    async with served(settings) as client:
        async with streaming(client, "w1") as stream:
            [job] = await stream.jobs(1)
            stream.call.cancel()
        async with streaming(client, "w2") as other:
            held = [pb.Lease(job_id=job.job_id, lease_id=job.lease_id)]
            beat = await client.work.Heartbeat(pb.HeartbeatRequest(worker="w1", leases=held))
            assert await other.nothing()
            reports = pb.ReportResultsRequest(worker="w1", reports=[completed(job)])
            report = await client.work.ReportResults(reports)

    ended = await engine.jobs.get(job_id)
    assert (list(beat.answers), list(report.answers)) == ([pb.ACCEPTED], [pb.ACCEPTED])
    assert (ended.status, ended.attempt) == (JobStatus.COMPLETED, 1)


@says("004", 105, "A job may run for as long as it likes: no time limit has to be guessed.")
async def test_a_job_may_run_for_as_long_as_it_likes(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)

    for _ in range(HOUR // BEAT // 3):
        await noon.advance(BEAT)
        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        assert await engine.duties.reap() == 0

    assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
    job = await engine.jobs.get(job_id)
    assert (job.attempt, job.timeout, job.finished_at) == (1, None, claim.claimed_at + HOUR / 3)


# --- what it costs


@says(
    "004",
    106,
    "Liveness costs one call for each running job every 10 s.",
    verdict="deviates",
    decision="0017",
    because="one batch for each worker, however much it runs.",
)
async def test_a_worker_renews_all_its_leases_together(
    settings: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = count_beats(monkeypatch)
    app, may_end, running = Pulse(settings=settings), asyncio.Event(), 0

    @app.task
    async def wait() -> None:
        nonlocal running
        running += 1
        await may_end.wait()

    async def is_beaten_twice() -> bool:
        return sizes[-2:] == [5, 5]

    jobs = await app.aenqueue_many([wait.call()] * 5)
    async with working(app, lease=timedelta(seconds=30), heartbeat=timedelta(milliseconds=100)):
        await until(is_beaten_twice, PATIENCE)
        may_end.set()
        for job in jobs:
            await job.aresult(PATIENCE)

    assert running == 5


@says("004", 107, "An idle fleet sends no heartbeat.")
async def test_an_idle_worker_sends_no_heartbeat(
    settings: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = count_beats(monkeypatch)
    app = Pulse(settings=settings)

    async def is_beating() -> bool:
        return bool(sizes)

    @app.task
    async def wait() -> None:
        await until(is_beating, PATIENCE)

    async with working(app, lease=timedelta(seconds=30), heartbeat=timedelta(milliseconds=20)):
        await until(engine.workers.list, PATIENCE)  # it is there
        for _ in range(10):  # as many heartbeats, or fewer where the machine is busy
            await asyncio.sleep(0.02)
        assert sizes == []
        await (await wait.aenqueue()).aresult(PATIENCE)

    assert sizes[0] == 1


@says("004", 108, "The length of a lease is one for the whole fleet.")
async def test_the_length_of_a_lease_is_a_setting(another: Another, noon: FrozenClock) -> None:
    given = Settings.from_env({"PULSE_LEASE": "45s"})
    fleet = [await another(lease=given.lease) for _ in range(2)]
    for engine in fleet:
        await submit_one(engine)

    leases = [(await claim_one(engine)).lease_until - noon.instant for engine in fleet]

    assert leases == [timedelta(seconds=45)] * 2


@says("004", 109, "A failed job waits for the square of its failures in seconds; the third failure is a dead letter.")
async def test_failures_wait_for_their_square_and_the_third_is_a_dead_letter(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    waits = []
    for _ in range(2):
        await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])
        job = await engine.jobs.get(job_id)
        assert job.status is JobStatus.RETRYING
        waits.append((job.run_at - noon.instant).total_seconds())
        await noon.advance(job.run_at - noon.instant)
        await engine.duties.promote()
    await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])

    assert waits == [pytest.approx(1, rel=0.1), pytest.approx(4, rel=0.1)]
    assert (await engine.jobs.get(job_id)).status is JobStatus.DEAD_LETTERED
    assert [line.error for line in await engine.jobs.attempts(job_id)] == ["boom"] * 3


@says(
    "004",
    110,
    "An outage of the database makes every lease look expired.",
    verdict="better",
    because="after an absence the watchdog waits, so that whoever lives can renew.",
)
async def test_an_outage_expires_nobody_who_lives(engine: Engine, noon: FrozenClock) -> None:
    job_id = await submit_one(engine)
    for _ in range(6):
        await engine.duties.watch()
        await noon.advance(WATCH)
    claim = await claim_one(engine)
    await noon.advance(LEASE + BEAT)  # nobody could say or see anything

    await engine.duties.watch()

    assert (await engine.jobs.get(job_id)).status is JobStatus.RUNNING
    assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
    assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
    assert (await engine.jobs.get(job_id)).attempt == 1


@says(
    "004",
    100,
    "A late ReportResult fails with FailedPrecondition.",
    verdict="deviates",
    decision="0002",
    because="the call succeeds and answers LOST for that item, so that its neighbours are not thrown away with it.",
)
async def test_a_late_report_is_answered_lost_and_its_neighbours_stand(
    settings: Settings, engine: Engine, noon: FrozenClock
) -> None:
    late = await submit_one(engine)
    old = await claim_one(engine, worker="local/w1")
    await reap_and_promote(engine, noon)
    await claim_one(engine, worker="local/w2")
    before = await engine.jobs.get(late)
    other = await submit_one(engine)
    own = await claim_one(engine, worker="local/w1")

    async with served(settings) as client:
        reports = [completed(shown(claim)) for claim in (old, own)]
        answer = await client.work.ReportResults(pb.ReportResultsRequest(worker="w1", reports=reports))

    assert list(answer.answers) == [pb.LOST, pb.ACCEPTED]
    assert await engine.jobs.get(late) == before
    assert (await engine.jobs.get(other)).status is JobStatus.COMPLETED


# --- as it is from this release on


@says(
    "004",
    94,
    "Owned by another worker, a job is untouched by a heartbeat or a report.",
    verdict="deviates",
    decision="0023",
    because="so it is, and whoever speaks for another's claim is answered LOST, item by item.",
)
async def test_who_speaks_for_anothers_claim_is_answered_lost(settings: Settings, engine: Engine) -> None:
    theirs, own = await submit(engine, 2)
    claims = {claim.id: claim for claim in await engine.claims.claim("mail", worker="local/w1", slots=1)}
    claims |= {claim.id: claim for claim in await engine.claims.claim("mail", worker="local/w2", slots=1)}
    before = await engine.jobs.get(theirs)
    leases = [shown(claims[theirs]), shown(claims[own])]

    async with served(settings) as client:
        beat = await client.work.Heartbeat(pb.HeartbeatRequest(worker="w2", leases=leases))
        reports = [completed(each) for each in leases]
        report = await client.work.ReportResults(pb.ReportResultsRequest(worker="w2", reports=reports))

    assert list(beat.answers) == list(report.answers) == [pb.LOST, pb.ACCEPTED]
    assert await engine.jobs.get(theirs) == before
    assert (await engine.jobs.get(own)).status is JobStatus.COMPLETED


@says("004", "98b", "… whatever has killed the worker, and whoever watches.")
async def test_a_fresh_process_reaps_at_its_first_look(engine: Engine, another: Another, noon: FrozenClock) -> None:
    """A server that is started again and again recovers jobs as well as one that lives."""
    job_id = await submit_one(engine)
    for _ in range(6):
        await (await another()).duties.watch()  # each is killed before its next look
        await noon.advance(WATCH)
    await claim_one(engine)
    recovered_after = None

    for looks in range(1, 7):
        await noon.advance(WATCH)
        await (await another()).duties.watch()
        if recovered_after is None and (await engine.jobs.get(job_id)).status is JobStatus.RETRYING:
            recovered_after = looks * WATCH

    assert recovered_after == LEASE + WATCH
