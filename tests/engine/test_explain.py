"""Why is a job not running? One test for each reason, on a real database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs import explain as explaining
from pulse.engine.workers import NOTE_EVERY, QUIET, Workers
from pulse.model.errors import JobNotFound
from pulse.model.explain.facts import Explanation, Reason
from pulse.model.ids import Mint, fire_id
from pulse.model.jobs import JobStatus, Outcome
from pulse.model.workers import Presence
from pulse.sdk.worker.outcomes import report_unknown
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from tests.clock import FrozenClock
from tests.factories import MINUTE, a_job, a_report, claim_one, submit_one

SECOND = timedelta(seconds=1)


async def a_worker(database: Database, *topics: str, slots: int = 10, busy: int = 0, name: str = "w1") -> None:
    seen = Presence(name=name, version="1", topics=list(topics), slots=slots, busy=busy, age=timedelta())
    await Workers(database).own_duty(name, lambda _: seen)()


def assert_reason(found: Explanation, reason: Reason, *words: str) -> None:
    assert found.reason is reason, found.text
    for word in words:
        assert word in found.text


# --- it is over


async def test_it_was_completed(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.COMPLETED)
    await clock.advance(3 * MINUTE)

    found = await engine.explain(job.id)

    assert found.text == "It was completed 3m ago by w1."
    assert (found.job_id, found.status, found.reason) == (job.id, JobStatus.COMPLETED, Reason.COMPLETED)


async def test_it_was_cancelled(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await engine.jobs.cancel(job_id, reason="sent by hand")

    assert_reason(await engine.explain(job_id), Reason.CANCELLED, "cancelled just now: sent by hand.")


async def test_it_failed_for_good(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.DEAD_LETTERED)

    found = await engine.explain(job.id)

    assert_reason(found, Reason.DEAD_LETTERED, "after 1 of 3 attempts: not wanted.", f"`pulse jobs replay {job.id}`")


# --- a worker has it


async def test_it_runs(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(2 * SECOND)

    found = await engine.explain(job.id)

    assert_reason(found, Reason.RUNNING, "w1 has had it for 2s", "attempt 1 of 3", "another 28s")
    assert found.worker == "w1"


async def test_its_worker_is_not_connected_any_more(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(5 * SECOND)  # until when a new worker is noted
    assert_reason(await engine.explain(job.id), Reason.RUNNING)
    await clock.advance(2 * SECOND)

    found = await engine.explain(job.id)

    assert_reason(
        found, Reason.WORKER_GONE, "w1 has it, as attempt 1 of 3", "not connected", "ends in 23s", "tried again"
    )
    assert found.worker == "w1"


async def test_its_worker_was_not_seen_for_long(engine: Engine, database: Database, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING, max_attempts=1)
    await a_worker(database, "mail")
    await clock.advance(QUIET + NOTE_EVERY)
    assert_reason(await engine.explain(job.id), Reason.RUNNING, "last seen 20s ago")
    await clock.advance(6 * SECOND)

    assert_reason(await engine.explain(job.id), Reason.WORKER_GONE, "last seen 26s ago", "ends in 4s", "dead letter")


async def test_its_worker_is_gone(engine: Engine, clock: FrozenClock, settings: Settings) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING)
    await clock.advance(settings.lease + SECOND)

    assert_reason(await engine.explain(job.id), Reason.LEASE_EXPIRED, "ran out 1s ago", "watchdog", "tried again")


async def test_its_worker_is_gone_and_nobody_minds(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.RUNNING, max_attempts=1)
    await clock.advance(timedelta(hours=1))

    assert_reason(await engine.explain(job.id), Reason.LEASE_EXPIRED, "no worker or server seems to run", "dead letter")


# --- its time has not come


async def test_it_waits_for_its_time(engine: Engine, database: Database, clock: FrozenClock) -> None:
    await a_worker(database, "mail")
    job = await a_job(engine, clock, JobStatus.SCHEDULED)

    found = await engine.explain(job.id)

    assert_reason(found, Reason.SCHEDULED, "waits for its time", "in 1m")
    assert found.expected_at == job.run_at


async def test_it_waits_for_its_time_and_then_for_a_pause_to_end(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.SCHEDULED)
    await engine.jobs.pause("mail")

    found = await engine.explain(job.id)

    assert_reason(found, Reason.SCHEDULED, "Even then it would not run: topic 'mail' is paused")
    assert found.expected_at is None


async def test_its_deadline_comes_before_its_time(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, delay=MINUTE, deadline=clock.instant + SECOND)

    found = await engine.explain(job_id)

    assert_reason(found, Reason.SCHEDULED, "deadline is before that")
    assert found.expected_at is None


async def test_it_failed_and_waits_for_its_next_attempt(engine: Engine, database: Database, clock: FrozenClock) -> None:
    await a_worker(database, "mail")
    job = await a_job(engine, clock, JobStatus.RETRYING)

    found = await engine.explain(job.id)

    assert_reason(found, Reason.RETRYING, "Attempt 1 of 3 failed: boom.", "2 attempts are left")
    assert found.expected_at == job.run_at


async def test_its_time_has_come_and_nobody_has_made_it_ready(engine: Engine, clock: FrozenClock) -> None:
    job = await a_job(engine, clock, JobStatus.SCHEDULED)
    await clock.advance(MINUTE + SECOND)
    assert_reason(await engine.explain(job.id), Reason.OVERDUE, "came 1s ago", "about to be made ready.")

    await clock.advance(MINUTE)
    assert_reason(await engine.explain(job.id), Reason.OVERDUE, "is one running?")


async def test_its_deadline_has_passed(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, deadline=clock.instant + SECOND)
    await clock.advance(MINUTE)

    assert_reason(await engine.explain(job_id), Reason.DEADLINE_PASSED, "passed 59s ago", "is one running?")


# --- it waits in line


async def test_its_topic_is_paused(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await engine.jobs.pause("mail", reason="provider is down")
    await clock.advance(2 * MINUTE)

    found = await engine.explain(job_id)

    assert_reason(found, Reason.PAUSED, ", for 2m): provider is down.", "`pulse topics resume mail`")


async def test_all_topics_are_paused(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await engine.jobs.pause()

    assert_reason(await engine.explain(job_id), Reason.PAUSED, "All topics are paused", "resume --all`")


async def test_no_worker_takes_its_topic(engine: Engine, database: Database, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    assert_reason(await engine.explain(job_id), Reason.NO_WORKER, "topic 'mail'", "no worker is connected at all")

    await a_worker(database, "render", "thumbs")
    assert_reason(
        await engine.explain(job_id), Reason.NO_WORKER, "only w1 (render and thumbs) is connected", "or a server"
    )


async def test_all_places_are_taken(engine: Engine, database: Database, clock: FrozenClock) -> None:
    await a_worker(database, "mail", slots=2, busy=2)
    job_id = await submit_one(engine)

    found = await engine.explain(job_id)

    assert_reason(
        found, Reason.WORKERS_BUSY, "No job of its topic is before it", "2 of 2 slots busy", "cannot be estimated"
    )
    assert (found.ahead, found.expected_at) == (0, None)


async def test_others_are_before_it(engine: Engine, database: Database, clock: FrozenClock) -> None:
    """The more urgent, and those that came before it; ten ended in ten seconds, so it is the fourth after three."""
    for _ in range(10):
        await submit_one(engine)
        await engine.claims.report([a_report(await claim_one(engine))])
        await clock.advance(SECOND)
    await a_worker(database, "mail", slots=1, busy=1)
    await submit_one(engine)
    await submit_one(engine)
    await clock.advance(SECOND)
    job_id = await submit_one(engine)
    await submit_one(engine, priority=1)
    await submit_one(engine, priority=-1)
    await submit_one(engine, topic="other")

    found = await engine.explain(job_id)

    assert_reason(found, Reason.BEHIND, "3 jobs of its topic are before it", "1 of 1 slot busy", "Expected in about 4s")
    assert found.ahead == 3
    assert found.expected_at is not None
    assert timedelta(seconds=4) <= found.expected_at - clock.instant < timedelta(seconds=5)


async def test_more_are_before_it_than_are_counted(
    engine: Engine, database: Database, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is near the end is told the exact place all the same."""
    monkeypatch.setattr(explaining, "MAX_COUNTED", 3)
    await a_worker(database, "mail", slots=1, busy=1)
    ids = []
    for _ in range(12):
        ids.append(await submit_one(engine))
        await clock.advance(SECOND)

    found = [(await engine.explain(job_id)).ahead for job_id in ids]

    assert found == [0, 1, 2, 3, None, None, None, None, 8, 9, 10, 11]


async def test_there_is_room_for_it(engine: Engine, database: Database, clock: FrozenClock) -> None:
    await a_worker(database, "mail", slots=2, busy=1)
    job_id = await submit_one(engine, deadline=clock.instant + MINUTE)

    found = await engine.explain(job_id)
    assert_reason(found, Reason.NEXT, "should begin within 5s", "within 1m, it becomes a dead letter")
    assert found.expected_at == clock.instant

    await clock.advance(30 * SECOND)
    assert_reason(await engine.explain(job_id), Reason.NEXT, "ready for 30s already")


async def test_another_transaction_holds_it(engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    holder: Any = await asyncpg.connect(settings.database_url, server_settings={"application_name": "long report"})
    async with holder.transaction():
        await holder.execute("select from pulse.jobs for update")
        held = await engine.explain(job_id)
        pid = holder.get_server_pid()
    await holder.close()
    free = await engine.explain(job_id)

    assert_reason(held, Reason.LOCKED, f"pid {pid} (long report, idle in transaction", "when that transaction ends")
    assert free.reason is Reason.NO_WORKER


async def test_a_handler_may_hold_the_row_of_its_own_job(
    engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    """But not for longer than its lease: the watchdog passes over it."""
    job = await a_job(engine, clock, JobStatus.RUNNING)
    holder: Any = await asyncpg.connect(settings.database_url)
    async with holder.transaction():
        await holder.execute("select pulse.fence($1, $2)", job.id, job.lease_id)
        assert (await engine.explain(job.id)).reason is Reason.RUNNING

        await clock.advance(settings.lease + SECOND)
        assert (await engine.explain(job.id)).reason is Reason.LOCKED
    await holder.close()


async def test_it_was_put_off_by_a_worker_that_does_not_know_it(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    await engine.claims.report([report_unknown(claim, 10 * SECOND)])

    found = await engine.explain(job_id)

    assert_reason(found, Reason.UNKNOWN_TASK, f"knows task {claim.task!r}: the last was w1", "app has the task")
    assert f"`pulse jobs cancel {job_id}`" in found.text
    assert (found.worker, found.expected_at) == ("w1", None)
    await clock.advance(11 * SECOND)  # due, and about to be made ready only to be put off again
    assert (await engine.explain(job_id)).reason is Reason.UNKNOWN_TASK
    await clock.advance(MINUTE)
    assert (await engine.explain(job_id)).reason is Reason.OVERDUE


async def test_it_was_put_off_by_its_handler_after_one_that_did_not_know_it(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine)
    await engine.claims.report([report_unknown(await claim_one(engine), timedelta())])
    await engine.duties.promote()
    await engine.claims.report([a_report(await claim_one(engine), Outcome.SNOOZE, delay=timedelta(hours=1))])

    assert_reason(await engine.explain(job_id), Reason.SCHEDULED, "waits for its time")


# --- what nobody is to see


async def test_what_is_marked_is_in_no_word_of_it(engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    """Neither from the job, also where it was recorded before, nor from the words of a session that holds it."""
    job_id = await submit_one(engine, payload='{"card": "4111-2222-3333"}')
    claim = await claim_one(engine)
    await engine.claims.report([a_report(claim, Outcome.FAIL, error="card 4111-2222-3333 was refused")])
    async with await Database.connect(replace(settings, redact="card")) as database:
        engine = Engine(database, buckets=settings.buckets)
        failed = await engine.explain(job_id)
        await clock.advance(MINUTE)
        holder: Any = await asyncpg.connect(settings.database_url)
        async with holder.transaction():
            await holder.execute("select '4111-2222-3333' from pulse.jobs for update")
            held = await engine.explain(job_id)
        await holder.close()

    assert_reason(failed, Reason.RETRYING, "was refused")
    assert_reason(held, Reason.LOCKED, "idle in transaction")
    assert "4111" not in failed.text + held.text


# --- it is not there


@pytest.mark.parametrize(
    ("job_id", "hint"),
    [
        (uuid4(), "version 7"),
        (Mint().ids([4095])[0], "bucket 4095, but this installation has"),
        (Mint().ids([0])[0], "retention has removed it"),
        (fire_id(uuid4(), datetime.now(UTC), 0), "retention has removed it"),
    ],
)
async def test_it_is_not_there(engine: Engine, job_id: UUID, hint: str) -> None:
    with pytest.raises(JobNotFound, match=hint):
        await engine.explain(job_id)
