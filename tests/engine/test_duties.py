"""Do the duties do what is due, no more and no less, and say how long they may sleep?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.duties import duties
from pulse.engine.duties.duties import AT_ONCE, PRUNE_EVERY, TALLY_EVERY
from pulse.engine.duties.loops import Loop
from pulse.engine.engine import Engine
from pulse.model.errors import DatabaseUnreachable, JobNotFound
from pulse.model.jobs import Job, JobStatus, Outcome, ReportStatus, RetryPolicy
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_job, a_new_job, a_report, claim_one, lease_of, submit_one

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TOPICS = [f"topic {number}" for number in range(12)]  # in different buckets, where there are several


@pytest.fixture
async def patient(settings: Settings, clock: FrozenClock) -> AsyncIterator[Engine]:
    """An engine that need not poll for a day, so that what it sleeps for is only what is due."""
    never = replace(settings, tick=DAY, schedule_tick=DAY, alarm_tick=DAY)
    async with await Database.connect(never) as database:
        yield Engine(database, buckets=settings.buckets)


async def statuses(engine: Engine, ids: list[UUID]) -> list[JobStatus]:
    return [(await engine.jobs.get(job_id)).status for job_id in ids]


async def counted(engine: Engine) -> dict[str, dict[JobStatus, int]]:
    return {topic.topic: topic.counts for topic in await engine.jobs.counts()}


async def in_truth(conn: Connection) -> dict[str, dict[JobStatus, int]]:
    rows = await conn.fetch("select topic, status, count(*) from pulse.jobs group by topic, status")
    found: dict[str, dict[JobStatus, int]] = {}
    for topic, status, count in rows:
        found.setdefault(topic, {})[JobStatus(status)] = count
    return found


# --- promote


async def test_what_is_due_is_promoted_and_nothing_else(engine: Engine, clock: FrozenClock) -> None:
    due = await submit_one(engine, delay=MINUTE)
    later = await submit_one(engine, delay=MINUTE + SECOND)
    failed = await a_job(
        engine, clock, JobStatus.RETRYING, topic="mail", retry=RetryPolicy(kind="fixed", base=60, jitter=0)
    )
    others = [
        (await a_job(engine, clock, status)).id
        for status in (JobStatus.RUNNING, JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELLED)
    ]
    before = [await engine.jobs.get(job_id) for job_id in [*others, later]]

    await clock.advance(MINUTE)
    await engine.duties.promote()

    assert await statuses(engine, [due, failed.id]) == [JobStatus.PENDING] * 2
    assert (await engine.jobs.get(due)).ready_at == clock.instant
    assert [await engine.jobs.get(job_id) for job_id in [*others, later]] == before


async def test_jobs_are_promoted_in_the_order_of_their_time(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 2)
    ids = [await submit_one(engine, delay=seconds * SECOND) for seconds in (5, 1, 4, 2, 3)]
    by_time = [ids[1], ids[3], ids[4], ids[2], ids[0]]

    await clock.advance(MINUTE)
    pauses = []
    for promoted in (2, 4, 5):
        pauses.append(await engine.duties.promote())
        ready = {job_id for job_id in ids if (await engine.jobs.get(job_id)).status is JobStatus.PENDING}
        assert ready == set(by_time[:promoted])

    assert pauses == [AT_ONCE] * 3, "whenever something was moved there may be more"
    assert await engine.duties.promote() == engine.settings.tick


@pytest.mark.parametrize("delay", [SECOND, timedelta(milliseconds=1), timedelta(hours=3, microseconds=7)])
async def test_promote_sleeps_until_the_next_instant_exactly(
    patient: Engine, clock: FrozenClock, delay: timedelta
) -> None:
    await submit_one(patient, topic="sooner", delay=delay)
    await submit_one(patient, topic="later", delay=delay + SECOND)

    assert await patient.duties.promote() == delay
    await clock.advance(delay)
    assert await patient.duties.promote() == AT_ONCE
    assert await patient.duties.promote() == SECOND


async def test_promote_sleeps_until_the_next_deadline(patient: Engine, clock: FrozenClock) -> None:
    await submit_one(patient, delay=10 * MINUTE)
    await submit_one(patient, deadline=clock.instant + MINUTE)

    assert await patient.duties.promote() == MINUTE


async def test_promote_never_sleeps_longer_than_a_tick(engine: Engine, patient: Engine, clock: FrozenClock) -> None:
    assert await engine.duties.promote() == engine.settings.tick
    assert await patient.duties.promote() == DAY
    await submit_one(engine, delay=HOUR)
    assert await engine.duties.promote() == engine.settings.tick


async def test_a_due_job_that_somebody_holds_is_left_until_the_next_tick(
    patient: Engine, settings: Settings, clock: FrozenClock
) -> None:
    held = await submit_one(patient, delay=SECOND)
    await clock.advance(SECOND)
    async with open_connection(settings) as other, other.transaction():
        await other.fetch("select from pulse.jobs where id = $1 for update", held)

        async with asyncio.timeout(2):
            assert await patient.duties.promote() == DAY, "not at once: it would spin"

    assert await patient.duties.promote() == AT_ONCE
    assert (await patient.jobs.get(held)).status is JobStatus.PENDING


async def test_every_bucket_is_looked_after(engine: Engine, clock: FrozenClock) -> None:
    ids = [await submit_one(engine, topic=topic, delay=MINUTE) for topic in TOPICS]
    late = [await submit_one(engine, topic=topic, deadline=clock.instant + MINUTE) for topic in TOPICS]

    await clock.advance(MINUTE)
    await engine.duties.promote()

    assert await statuses(engine, ids) == [JobStatus.PENDING] * len(ids)
    assert await statuses(engine, late) == [JobStatus.DEAD_LETTERED] * len(ids)


async def test_promoting_wakes_the_topics(engine: Engine, clock: FrozenClock) -> None:
    woken: set[tuple[str, int]] = set()
    await submit_one(engine, topic="a", delay=MINUTE, priority=3)
    await submit_one(engine, topic="a", delay=MINUTE, priority=5)
    await submit_one(engine, topic="b", delay=MINUTE)
    await submit_one(engine, topic="c", delay=HOUR)
    engine.notifications.on_ready(lambda item: woken.add(tuple(item)))  # type: ignore[arg-type]

    await clock.advance(MINUTE)
    await engine.duties.promote()

    assert woken == {("a", 5), ("b", 0)}


async def test_several_processes_promote_each_job_once(
    settings: Settings, engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    await engine.jobs.submit([a_new_job(topic=topic, delay=MINUTE) for topic in TOPICS * 25])
    await clock.advance(MINUTE)

    async with await Database.connect(settings) as database:
        other = Engine(database, buckets=settings.buckets)
        await asyncio.gather(*[each.duties.promote() for each in (engine, other) * 4])

    assert await in_truth(conn) == await counted(engine) == {topic: {JobStatus.PENDING: 25} for topic in TOPICS}


# --- deadlines


@pytest.mark.parametrize("status", [JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RETRYING])
async def test_a_waiting_job_past_its_deadline_is_dead_lettered_with_the_reason(
    engine: Engine, clock: FrozenClock, status: JobStatus
) -> None:
    job = await a_job(engine, clock, status, deadline=clock.instant + timedelta(seconds=30))
    await clock.advance(timedelta(seconds=29) if status is JobStatus.PENDING else timedelta())
    await engine.duties.promote()
    assert (await engine.jobs.get(job.id)).status is status

    await clock.advance(timedelta(seconds=30))
    await engine.duties.promote()

    found = await engine.jobs.get(job.id)
    assert (found.status, found.finished_at) == (JobStatus.DEAD_LETTERED, clock.instant)
    before = "; before that: boom" if status is JobStatus.RETRYING else ""
    assert found.last_error == f"deadline passed before it could run{before}"


async def test_a_running_job_is_not_expired(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING, deadline=clock.instant + SECOND)

    await clock.advance(MINUTE)
    await engine.duties.promote()

    assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING


async def test_a_job_is_not_claimed_past_its_deadline_even_before_anybody_looked(
    engine: Engine, clock: FrozenClock
) -> None:
    await submit_one(engine, deadline=clock.instant + SECOND)

    await clock.advance(SECOND)

    assert await engine.claims.claim("mail", worker="w1", slots=1) == []


async def test_many_late_jobs_are_expired_in_batches(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 2)
    await engine.jobs.submit([a_new_job(deadline=clock.instant + SECOND) for _ in range(5)])
    await clock.advance(SECOND)

    pauses = [await engine.duties.promote() for _ in range(4)]

    assert pauses == [AT_ONCE] * 3 + [engine.settings.tick]
    assert await counted(engine) == {"mail": {JobStatus.DEAD_LETTERED: 5}}


# --- how long a failed job waits


async def delays_of(engine: Engine, clock: FrozenClock, failures: int, **given: Any) -> list[float]:
    """Seconds between each failure and the time of the next attempt, as the row has them."""
    job_id = await submit_one(engine, max_attempts=1_000, **given)
    delays = []
    for _ in range(failures):
        await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])
        job = await engine.jobs.get(job_id)
        assert job.status is JobStatus.RETRYING
        delays.append((job.run_at - clock.instant).total_seconds())
        await clock.advance(job.run_at - clock.instant)
        await engine.duties.promote()
    return delays


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (RetryPolicy(jitter=0), [1, 4, 9, 16]),
        (RetryPolicy(base=10, jitter=0), [10, 40, 90, 160]),
        (RetryPolicy(base=10, max_delay=50, jitter=0), [10, 40, 50, 50]),
        (RetryPolicy(kind="exponential", jitter=0), [1, 2, 4, 8, 16]),
        (RetryPolicy(kind="exponential", base=3, factor=10, max_delay=1000, jitter=0), [3, 30, 300, 1000, 1000]),
        (RetryPolicy(kind="fixed", base=7, jitter=0), [7, 7, 7]),
        (RetryPolicy(kind="fixed", base=0.25, jitter=0), [0.25, 0.25]),
        (RetryPolicy(kind="fixed", base=0, jitter=0), [0, 0]),
        (RetryPolicy(kind="list", delays=(1, 60, 5), jitter=0), [1, 60, 5, 5, 5]),
        (RetryPolicy(kind="list", delays=(100, 200), max_delay=150, jitter=0), [100, 150]),
    ],
)
async def test_a_policy_decides_how_long_a_failed_job_waits(
    engine: Engine, clock: FrozenClock, retry: RetryPolicy, expected: list[float]
) -> None:
    assert await delays_of(engine, clock, len(expected), retry=retry) == expected


async def test_by_default_it_waits_the_square_of_its_failures_give_or_take_a_tenth(
    engine: Engine, clock: FrozenClock
) -> None:
    delays = await delays_of(engine, clock, 3)

    for delay, expected in zip(delays, (1, 4, 9), strict=True):
        assert expected * 0.9 <= delay <= expected * 1.1
    assert delays != [1, 4, 9]


async def test_jitter_spreads_a_burst_of_failures(engine: Engine, clock: FrozenClock) -> None:
    await engine.jobs.submit([a_new_job(retry=RetryPolicy(kind="fixed", base=100, jitter=0.5)) for _ in range(200)])
    claims = await engine.claims.claim("mail", worker="w1", slots=200)
    await engine.claims.report([a_report(claim, Outcome.FAIL) for claim in claims])

    waits = [((await engine.jobs.get(claim.id)).run_at - clock.instant).total_seconds() for claim in claims]

    assert 50 <= min(waits) < 60
    assert 140 < max(waits) <= 150
    assert len(set(waits)) > 190
    assert 90 < sum(waits) / len(waits) < 110


async def test_what_was_not_charged_does_not_make_it_wait_longer(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, retry=RetryPolicy(jitter=0), max_attempts=2)
    for _ in range(3):
        await engine.claims.release([lease_of(await claim_one(engine))])

    await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])

    assert (await engine.jobs.get(job_id)).run_at - clock.instant == SECOND


async def test_a_reaped_job_waits_as_a_failed_one(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, retry=RetryPolicy(kind="fixed", base=5, jitter=0))
    await claim_one(engine)
    await clock.advance(LEASE + SECOND)

    assert await engine.duties.reap() == 1

    assert (await engine.jobs.get(job_id)).run_at - clock.instant == 5 * SECOND


# --- reap


async def test_only_expired_leases_are_taken_away(engine: Engine, clock: FrozenClock) -> None:
    old = await a_job(engine, clock, JobStatus.RUNNING, topic="mail")
    await clock.advance(SECOND)
    young = await a_job(engine, clock, JobStatus.RUNNING, topic="mail")
    renewed = await a_job(engine, clock, JobStatus.RUNNING, topic="mail")
    await clock.advance(LEASE - SECOND)
    await engine.claims.heartbeat([lease_of_job(renewed)])
    assert await engine.duties.reap() == 0, "a lease that ends now has not ended"

    await clock.advance(timedelta(milliseconds=1))
    assert await engine.duties.reap() == 1
    assert await statuses(engine, [old.id, young.id, renewed.id]) == [
        JobStatus.RETRYING,
        JobStatus.RUNNING,
        JobStatus.RUNNING,
    ]

    await clock.advance(SECOND)
    assert await engine.duties.reap() == 1
    assert (await engine.jobs.get(renewed.id)).status is JobStatus.RUNNING


def lease_of_job(job: Job) -> Any:
    from pulse.model.jobs import Lease

    return Lease(job.id, job.lease_id)


async def test_a_lost_worker_is_charged_and_the_last_attempt_is_dead_lettered(
    engine: Engine, clock: FrozenClock
) -> None:
    job_id = await submit_one(engine, max_attempts=2, retry=RetryPolicy(kind="fixed", base=1, jitter=0))
    claimed_at = []
    for worker in ("w1", "w2"):
        claimed_at.append((await claim_one(engine, worker=worker)).claimed_at)
        await clock.advance(LEASE + SECOND)
        assert await engine.duties.reap() == 1
        await clock.advance(SECOND)
        await engine.duties.promote()

    job = await engine.jobs.get(job_id)
    assert (job.status, job.attempt, job.last_error) == (JobStatus.DEAD_LETTERED, 2, "worker lease expired")
    assert job.finished_at == clock.instant - SECOND
    attempts = await engine.jobs.attempts(job_id)
    assert [(each.attempt, each.worker, each.error, each.started_at) for each in attempts] == [
        (1, "w1", "worker lease expired", claimed_at[0]),
        (2, "w2", "worker lease expired", claimed_at[1]),
    ]
    assert [each.ended_at for each in attempts] == [at + LEASE + SECOND for at in claimed_at]


async def test_expired_leases_in_every_bucket_are_found(engine: Engine, clock: FrozenClock) -> None:
    await engine.jobs.submit([a_new_job(topic=topic) for topic in TOPICS])
    for topic in TOPICS:
        await claim_one(engine, topic)

    await clock.advance(LEASE + SECOND)

    assert await engine.duties.reap() == len(TOPICS)
    assert await engine.duties.reap() == 0


# --- when leases are judged


HEARTBEAT, WATCHDOG = LEASE / 3, LEASE / 3  # the defaults
GAP = LEASE - HEARTBEAT  # the longest absence that ends no renewed lease


def a_process(database: Database) -> duties.Duties:
    """The duties of a process that was just started."""
    return Engine(database, buckets=database.settings.buckets).duties


async def watch_for(watching: duties.Duties, clock: FrozenClock, length: timedelta) -> None:
    """The watchdog's steps over so long, each a little late, as steps are."""
    ends_at = clock.instant + length
    while clock.instant < ends_at:
        pause = await watching.watch()
        assert timedelta() < pause <= WATCHDOG
        await clock.advance(min(pause + timedelta(milliseconds=1), ends_at - clock.instant))


async def reaped_after(watching: duties.Duties, engine: Engine, clock: FrozenClock, job_id: UUID) -> timedelta:
    """How long from now until the watchdog takes the lease away."""
    began = clock.instant
    while True:
        pause = await watching.watch()
        if (await engine.jobs.get(job_id)).status is not JobStatus.RUNNING:
            return clock.instant - began
        await clock.advance(pause + timedelta(milliseconds=1))
        assert clock.instant - began < 10 * LEASE, "it never reaps"


@pytest.fixture
async def steady(engine: Engine, clock: FrozenClock) -> None:
    """Somebody has watched for as long as it takes."""
    await watch_for(engine.duties, clock, LEASE + WATCHDOG)
    await engine.duties.watch()


async def test_where_nobody_ever_watched_the_watchdog_waits_one_lease(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(LEASE + SECOND)

    assert LEASE <= await reaped_after(engine.duties, engine, clock, job.id) <= LEASE + SECOND


@pytest.mark.usefixtures("steady")
async def test_a_steady_watchdog_reaps_at_every_step(engine: Engine, clock: FrozenClock) -> None:
    for _ in range(5):
        job = await a_job(engine, clock, JobStatus.RUNNING, topic="mail")
        await clock.advance(LEASE / 2)
        await engine.duties.watch()
        await clock.advance(LEASE / 2 + SECOND)
        assert await engine.duties.watch() == WATCHDOG
        assert (await engine.jobs.get(job.id)).status is JobStatus.RETRYING


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("alive", [2, 7, 18])
async def test_processes_that_are_started_again_and_again_reap_in_time(
    engine: Engine, database: Database, clock: FrozenClock, alive: int
) -> None:
    """Whatever the age of whoever watches: only how long nobody did counts."""
    job = await a_job(engine, clock, JobStatus.RUNNING, retry=RetryPolicy(kind="fixed", base=0, jitter=0))
    killed_at = clock.instant
    while (await engine.jobs.get(job.id)).status is JobStatus.RUNNING:
        await watch_for(a_process(database), clock, alive * SECOND)
        await clock.advance(2 * SECOND)  # nobody is there
        assert clock.instant - killed_at <= LEASE + WATCHDOG + 5 * SECOND


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("away", [GAP + SECOND, 10 * MINUTE])
async def test_after_an_absence_of_everybody_leases_get_their_time(
    engine: Engine, database: Database, clock: FrozenClock, away: timedelta
) -> None:
    """The database was away, or nobody watched: an old process and one that was just started agree."""
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(max(away, LEASE + SECOND))

    await engine.duties.watch()
    await a_process(database).watch()
    assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING
    assert LEASE <= await reaped_after(a_process(database), engine, clock, job.id) <= LEASE + SECOND


@pytest.mark.usefixtures("steady")
async def test_what_had_expired_before_an_absence_is_reaped_at_once(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(LEASE / 2)
    await engine.duties.watch()
    await clock.advance(LEASE / 2 + SECOND)
    with_somebody_there = clock.instant
    await engine.duties._database.run(engine.duties._look)  # it looked, and was killed before it could reap

    await clock.advance(MINUTE)
    await engine.duties.watch()

    assert clock.instant > with_somebody_there
    assert (await engine.jobs.get(job.id)).status is JobStatus.RETRYING


async def test_lives_shorter_than_a_lease_between_long_absences_reap_as_well(
    engine: Engine, database: Database, clock: FrozenClock
) -> None:
    """Twenty seconds of each minute, for ever: who is well renews in each of them, and who does not is gone."""
    well = await a_job(engine, clock, JobStatus.RUNNING, max_attempts=9)
    gone = await a_job(engine, clock, JobStatus.RUNNING, max_attempts=9)

    for _ in range(5):
        process = a_process(database)
        await watch_for(process, clock, HEARTBEAT)
        assert await engine.claims.heartbeat([lease_of_job(well)]) == [ReportStatus.ACCEPTED], (
            "before anybody judges it"
        )
        await watch_for(process, clock, HEARTBEAT)
        await clock.advance(40 * SECOND)

    assert await statuses(engine, [well.id, gone.id]) == [JobStatus.RUNNING, JobStatus.RETRYING]


@pytest.mark.usefixtures("steady")
async def test_a_clock_that_is_set_does_not_expire_the_living(engine: Engine, clock: FrozenClock) -> None:
    for jump in (10 * MINUTE, -10 * MINUTE):
        job = await a_job(engine, clock, JobStatus.RUNNING)
        await clock.advance(jump)
        await engine.duties.watch()
        assert await engine.claims.heartbeat([lease_of_job(job)]) == [ReportStatus.ACCEPTED]
        await watch_for(engine.duties, clock, LEASE - SECOND)
        assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING
        assert await reaped_after(engine.duties, engine, clock, job.id) <= LEASE


@pytest.mark.usefixtures("steady")
async def test_a_statement_that_was_held_up_judges_by_the_time_it_was_sent(engine: Engine, clock: FrozenClock) -> None:
    """A server that stands still for a minute in the middle of a look answers in the end as if nothing had been."""
    job = await a_job(engine, clock, JobStatus.RUNNING)

    look = await engine.duties._database.run(engine.duties._look)
    await clock.advance(MINUTE)

    assert await engine.duties.reap(look) == 0
    await engine.duties.watch()
    assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("mode", ["share", "access exclusive"])
async def test_a_look_does_not_count_while_nobody_can_renew(
    engine: Engine, settings: Settings, clock: FrozenClock, mode: str
) -> None:
    """While somebody has locked the table, heartbeats wait; when it is free, they must not come too late."""
    job = await a_job(engine, clock, JobStatus.RUNNING)
    for _ in range(4):
        async with open_connection(settings) as other, other.transaction():
            await other.execute(f"lock table pulse.jobs in {mode} mode")
            looking = asyncio.create_task(engine.duties.watch())
            await until_waiting(other, "jobs")
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        await clock.advance(WATCHDOG)

    await engine.duties.watch()

    assert (await engine.jobs.get(job.id)).status is JobStatus.RUNNING


async def until_waiting(conn: Connection, table: str) -> None:
    """Until a session waits for a lock on the table."""
    waiting = "select 1 from pg_locks where not granted and relation = $1::regclass"
    async with asyncio.timeout(5):
        while not await conn.fetch(waiting, f"pulse.{table}"):
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("steady")
async def test_a_process_that_was_cut_off_judges_from_its_second_look(
    engine: Engine, database: Database, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others were perhaps cut off with it. Those who were not judge as ever."""

    async def away(*_: object, **__: object) -> int:
        raise DatabaseUnreachable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(engine.duties._database, "run_duty", away)
        with pytest.raises(DatabaseUnreachable):
            await engine.duties.watch()
    mine, others = [await a_job(engine, clock, JobStatus.RUNNING, topic="mail") for _ in range(2)]
    await watch_for(a_process(database), clock, LEASE + timedelta(milliseconds=1))

    await engine.duties.watch()
    assert await statuses(engine, [mine.id, others.id]) == [JobStatus.RUNNING] * 2
    await engine.duties.watch()
    assert await statuses(engine, [mine.id, others.id]) == [JobStatus.RETRYING] * 2


async def test_however_many_look_the_row_is_written_once_in_a_while(
    engine: Engine, database: Database, clock: FrozenClock, conn: Connection
) -> None:
    async def version() -> Any:
        return (await conn.fetch("select xmin, ctid from pulse.watch"))[0]

    await engine.duties.watch()
    written = await version()

    await clock.advance(WATCHDOG / 5)
    await asyncio.gather(*[a_process(database).watch() for _ in range(10)])
    assert await version() == written
    await clock.advance(WATCHDOG / 5)
    await engine.duties.watch()
    assert await version() != written


@pytest.mark.usefixtures("steady")
async def test_a_full_batch_is_followed_by_the_next_at_once(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 2)
    await engine.jobs.submit([a_new_job() for _ in range(5)])
    await engine.claims.claim("mail", worker="w1", slots=5)
    await clock.advance(LEASE / 2)
    await engine.duties.watch()
    await clock.advance(LEASE / 2 + SECOND)

    pauses = [await engine.duties.watch() for _ in range(3)]

    assert pauses == [AT_ONCE, AT_ONCE, WATCHDOG]


@pytest.mark.parametrize("watchdog", [SECOND, LEASE - SECOND, LEASE, LEASE + SECOND, 10 * LEASE])
async def test_a_watchdog_of_any_length_gets_to_judge(
    settings: Settings, engine: Engine, clock: FrozenClock, watchdog: timedelta
) -> None:
    async with await Database.connect(replace(settings, watchdog=watchdog)) as database:
        watching = a_process(database)
        for _ in range(100):
            pause = await watching.watch()
            await clock.advance(pause + timedelta(milliseconds=10))
            if pause == watchdog:
                break
        job = await a_job(engine, clock, JobStatus.RUNNING)
        for _ in range(LEASE // watchdog + 2):
            await clock.advance(await watching.watch() + timedelta(milliseconds=10))
        await watching.watch()

    assert (await engine.jobs.get(job.id)).status is JobStatus.RETRYING


async def test_a_real_watchdog_reaps_within_two_leases(settings: Settings) -> None:
    """Nothing is imitated here: a worker is gone, and its job is run by another."""
    quick = replace(
        settings,
        lease=timedelta(milliseconds=300),
        heartbeat=timedelta(milliseconds=100),
        watchdog=timedelta(milliseconds=50),
    )
    async with await Database.connect(quick) as database:
        engine = Engine(database, buckets=settings.buckets)
        job_id = await submit_one(engine, retry=RetryPolicy(kind="fixed", base=0, jitter=0))
        await claim_one(engine)
        engine.start()
        try:
            async with asyncio.timeout(3):
                while not (again := await engine.claims.claim("mail", worker="w2", slots=1)):
                    await asyncio.sleep(0.02)
        finally:
            await engine.stop()

    assert [(claim.id, claim.attempt) for claim in again] == [(job_id, 2)]


# --- prune


RETENTION = [
    (JobStatus.COMPLETED, timedelta(days=7)),
    (JobStatus.CANCELLED, timedelta(days=7)),
    (JobStatus.DEAD_LETTERED, timedelta(days=30)),
]


async def prune(engine: Engine) -> timedelta:
    """Retention goes by topics, and the counts say which there are."""
    await engine.duties.tally()
    return await engine.duties.prune()


@pytest.mark.parametrize(("status", "keep"), RETENTION)
async def test_a_finished_job_is_kept_for_as_long_as_its_state_says(
    engine: Engine, clock: FrozenClock, status: JobStatus, keep: timedelta
) -> None:
    job = await a_job(engine, clock, status)

    await clock.advance(keep)
    await prune(engine)
    assert (await engine.jobs.get(job.id)).status is status

    await clock.advance(timedelta(milliseconds=1))
    assert await prune(engine) == PRUNE_EVERY
    with pytest.raises(JobNotFound):
        await engine.jobs.get(job.id)


async def test_each_state_has_its_own_retention(settings: Settings, clock: FrozenClock) -> None:
    kept = replace(settings, keep_completed=HOUR, keep_cancelled=2 * HOUR, keep_dead_lettered=3 * HOUR)
    async with await Database.connect(kept) as database:
        engine = Engine(database, buckets=settings.buckets)
        for status, _ in RETENTION:
            await a_job(engine, clock, status)

        left = []
        for _ in range(4):
            await prune(engine)
            left.append(sum(sum(counts.values()) for counts in (await counted(engine)).values()))
            await clock.advance(HOUR + SECOND)

    assert left == [3, 2, 1, 0]


@pytest.mark.parametrize("status", [JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RUNNING, JobStatus.RETRYING])
async def test_an_unfinished_job_is_kept_for_ever(engine: Engine, clock: FrozenClock, status: JobStatus) -> None:
    job = await a_job(engine, clock, status)

    await clock.advance(timedelta(days=3_000))
    await prune(engine)

    assert (await engine.jobs.get(job.id)).status is status


async def test_the_log_of_attempts_goes_with_its_job(engine: Engine, clock: FrozenClock, conn: Connection) -> None:
    gone = await a_job(engine, clock, JobStatus.DEAD_LETTERED)
    stays = await a_job(engine, clock, JobStatus.RETRYING)
    assert len(await engine.jobs.attempts(gone.id)) == 1

    await clock.advance(timedelta(days=31))
    await prune(engine)

    rows = await conn.fetch("select job_id from pulse.attempts")
    assert [row["job_id"] for row in rows] == [stays.id]


async def test_a_key_whose_window_is_open_keeps_its_job(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, unique_key="k", unique_window=timedelta(days=20))
    await engine.claims.report([a_report(await claim_one(engine))])

    await clock.advance(timedelta(days=19))
    await prune(engine)
    assert await submit_one(engine, unique_key="k") == job_id, "the key still stands for it"

    await clock.advance(timedelta(days=1))
    await prune(engine)
    with pytest.raises(JobNotFound):
        await engine.jobs.get(job_id)
    assert await submit_one(engine, unique_key="k") != job_id


async def test_a_key_that_was_held_while_unfinished_does_not_keep_a_finished_job(
    engine: Engine, clock: FrozenClock
) -> None:
    job_id = await submit_one(engine, unique_key="k")
    await engine.claims.report([a_report(await claim_one(engine))])

    await clock.advance(timedelta(days=8))
    await prune(engine)

    with pytest.raises(JobNotFound):
        await engine.jobs.get(job_id)


async def test_pruning_goes_on_at_once_while_batches_are_full(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 2)
    await engine.jobs.submit([a_new_job() for _ in range(5)])
    claims = await engine.claims.claim("mail", worker="w1", slots=5)
    for claim in claims:
        await clock.advance(SECOND)
        await engine.claims.report([a_report(claim)])
    await clock.advance(timedelta(days=8))

    assert await prune(engine) == AT_ONCE
    left = [claim.id for claim in claims[2:]]
    assert await statuses(engine, left) == [JobStatus.COMPLETED] * 3, "the oldest go first"
    assert [await prune(engine) for _ in range(2)] == [AT_ONCE, PRUNE_EVERY]
    assert await counted(engine) == {}


async def test_every_topic_is_pruned(engine: Engine, clock: FrozenClock, conn: Connection) -> None:
    await engine.jobs.submit([a_new_job(topic=topic) for topic in TOPICS])
    for topic in TOPICS:
        await engine.claims.report([a_report(await claim_one(engine, topic))])

    await clock.advance(timedelta(days=8))
    await prune(engine)

    assert await in_truth(conn) == {}


async def test_a_result_is_hidden_when_its_time_is_over_and_cleared_soon_after(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    job_id = await submit_one(engine, result_ttl=HOUR)
    await engine.claims.report([a_report(await claim_one(engine), result='{"rows": 3}')])
    stored = "select result from pulse.jobs where id = $1"

    await clock.advance(HOUR - SECOND)
    await prune(engine)
    assert json.loads(str((await engine.jobs.get(job_id)).result)) == {"rows": 3}

    await clock.advance(SECOND)
    assert (await engine.jobs.get(job_id)).result is None
    assert (await conn.fetch(stored, job_id))[0]["result"] is not None, "hidden, though not yet cleared"

    await prune(engine)
    assert (await conn.fetch(stored, job_id))[0]["result"] is None
    assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED


async def test_a_result_without_a_time_to_live_stays_with_its_job(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.COMPLETED)

    await clock.advance(timedelta(days=6))
    await prune(engine)

    assert (await engine.jobs.get(job.id)).result == "true"


async def test_clearing_results_goes_on_at_once_while_batches_are_full(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 2)
    await engine.jobs.submit([a_new_job(result_ttl=SECOND) for _ in range(3)])
    await engine.claims.report([a_report(claim) for claim in await engine.claims.claim("mail", worker="w1", slots=3)])
    await clock.advance(SECOND)

    assert [await prune(engine) for _ in range(2)] == [AT_ONCE, PRUNE_EVERY]


# --- tally


async def _some_of_everything(engine: Engine, clock: FrozenClock) -> None:
    for topic in TOPICS:
        await engine.jobs.submit([a_new_job(topic=topic) for _ in range(4)])
        await submit_one(engine, topic=topic, delay=MINUTE)
        first, second, third = await engine.claims.claim(topic, worker="w1", slots=3)
        await engine.claims.report([a_report(first), a_report(second, Outcome.FAIL)])
        await engine.jobs.cancel(third.id)


EACH = {
    JobStatus.PENDING: 1,
    JobStatus.SCHEDULED: 1,
    JobStatus.COMPLETED: 1,
    JobStatus.RETRYING: 1,
    JobStatus.CANCELLED: 1,
}


async def test_counts_are_exact_before_and_after_rolling(engine: Engine, clock: FrozenClock, conn: Connection) -> None:
    await _some_of_everything(engine, clock)
    expected = dict.fromkeys(TOPICS, EACH)
    assert await counted(engine) == await in_truth(conn) == expected

    assert await engine.duties.tally() == TALLY_EVERY

    assert await counted(engine) == expected
    assert (await conn.fetch("select count(*) from pulse.tallies"))[0][0] == 0
    assert (await conn.fetch("select count(*) from pulse.counts where jobs > 0"))[0][0] == len(TOPICS) * len(EACH)


async def test_rolling_goes_on_at_once_while_batches_are_full(
    engine: Engine, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "TALLY_BATCH", 2)
    for _ in range(5):
        await submit_one(engine)

    assert [await engine.duties.tally() for _ in range(3)] == [AT_ONCE, AT_ONCE, TALLY_EVERY]
    assert await counted(engine) == {"mail": {JobStatus.PENDING: 5}}


async def test_several_rollers_at_once_count_nothing_twice(
    engine: Engine, settings: Settings, clock: FrozenClock, conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "TALLY_BATCH", 7)
    await _some_of_everything(engine, clock)
    async with await Database.connect(settings) as database:
        other = Engine(database, buckets=settings.buckets)

        async def roll(each: Engine) -> None:
            while await each.duties.tally() == AT_ONCE:
                assert await counted(each) == dict.fromkeys(TOPICS, EACH), "exact at every instant"

        async with asyncio.timeout(20):
            await asyncio.gather(*[roll(each) for each in (engine, other) * 3])
            await engine.duties.tally()

    assert await counted(engine) == await in_truth(conn) == dict.fromkeys(TOPICS, EACH)


async def test_a_roller_does_not_wait_for_another(engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    for _ in range(3):
        await submit_one(engine)
    async with open_connection(settings) as other, other.transaction():
        await other.fetch("select from pulse.tallies limit 1 for update")

        async with asyncio.timeout(2):
            await engine.duties.tally()

        assert await counted(engine) == {"mail": {JobStatus.PENDING: 3}}
        assert (await other.fetch("select count(*) from pulse.tallies"))[0][0] == 1


async def test_a_topic_that_has_no_jobs_any_more_is_forgotten(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    await a_job(engine, clock, JobStatus.COMPLETED)
    await submit_one(engine, topic="stays")
    await clock.advance(timedelta(days=8))
    await prune(engine)
    await prune(engine)

    rows = await conn.fetch("select topic, status, jobs from pulse.counts")

    assert [tuple(row) for row in rows] == [("stays", "PENDING", 1)]


async def test_forgetting_a_count_of_zero_loses_nothing_that_is_not_rolled_yet(
    engine: Engine, clock: FrozenClock
) -> None:
    job_id = await submit_one(engine)
    await engine.jobs.cancel(job_id)
    await engine.duties.tally()
    await submit_one(engine)  # tallied, not rolled

    await engine.duties.prune()

    assert await counted(engine) == {"mail": {JobStatus.PENDING: 1, JobStatus.CANCELLED: 1}}
    await engine.duties.tally()
    assert await counted(engine) == {"mail": {JobStatus.PENDING: 1, JobStatus.CANCELLED: 1}}


# --- all of them


def test_every_duty_has_its_loop(engine: Engine) -> None:
    loops = engine.duties.loops()

    assert [loop.name for loop in loops] == [
        "promote",
        "fire",
        "wake",
        "ready alarms",
        "record wakes",
        "reap",
        "prune",
        "tally",
    ]
    assert all(isinstance(loop, Loop) for loop in loops)


async def test_a_job_due_soon_shortens_the_sleep_of_promote(patient: Engine) -> None:
    promote = patient.duties.loops()[0]
    stop = asyncio.Event()
    running = asyncio.create_task(promote.run(stop))
    async with asyncio.timeout(5):
        while promote._sleeps_until == 0 or promote._sleeps_until == float("inf"):
            await asyncio.sleep(0.001)
        asleep_until = promote._sleeps_until

        await submit_one(patient, delay=timedelta(milliseconds=900))  # frozen, so it is never due

        while promote._sleeps_until > asleep_until - 1_000:
            await asyncio.sleep(0.001)
        stop.set()
        await running


async def test_a_retry_that_is_due_soon_is_announced(engine: Engine, clock: FrozenClock) -> None:
    """Whoever promotes may be asleep for a second: a report says when to look again, and so does the watchdog."""
    later: list[timedelta] = []
    engine.notifications.on_due_soon(later.append)
    retry = RetryPolicy(kind="fixed", base=0.25, jitter=0)
    await submit_one(engine, retry=retry, max_attempts=3)

    await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])
    assert later == [timedelta(milliseconds=250)]

    await clock.advance(timedelta(seconds=1))
    await engine.duties.promote()
    await claim_one(engine)
    await clock.advance(timedelta(minutes=1))
    await engine.duties.reap()
    assert later == [timedelta(milliseconds=250)] * 2
