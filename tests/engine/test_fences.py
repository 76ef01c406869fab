"""A stale lease_id changes nothing: in every statement a worker can cause, after every way to lose a claim."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import msgspec
import pytest

from pulse.engine.engine import Engine
from pulse.model.alarms import NewAlarm
from pulse.model.jobs import Claim, JobStatus, Lease, Outcome, Progress, ReportStatus
from pulse.store.alarms import deliveries
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.factories import MINUTE, a_new_job, a_report, claim_one, lease_of, submit_one

LEASE = timedelta(seconds=30)


# --- every statement a worker can cause


async def _heartbeat(engine: Engine, claim: Claim) -> list[ReportStatus]:
    return await engine.claims.heartbeat([lease_of(claim)])


async def _progress(engine: Engine, claim: Claim) -> list[ReportStatus]:
    return await engine.claims.progress([Progress(id=claim.id, lease_id=claim.lease_id, value="0.5")])


async def _release(engine: Engine, claim: Claim) -> list[ReportStatus]:
    return await engine.claims.release([lease_of(claim)])


def _report(outcome: Outcome) -> Callable[[Engine, Claim], Awaitable[list[ReportStatus]]]:
    async def report(engine: Engine, claim: Claim) -> list[ReportStatus]:
        return await engine.claims.report([a_report(claim, outcome)])

    return report


STATEMENTS = {
    "heartbeat": _heartbeat,
    "progress": _progress,
    "release": _release,
    "complete": _report(Outcome.COMPLETE),
    "fail": _report(Outcome.FAIL),
    "snooze": _report(Outcome.SNOOZE),
    "discard": _report(Outcome.DISCARD),
}


# --- every way to lose a claim, and who has the job afterwards


async def _reaped_and_claimed_again(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await clock.advance(LEASE + timedelta(seconds=1))
    assert await engine.duties.reap() == 1
    await clock.advance(timedelta(hours=1))
    await engine.duties.promote()
    await claim_one(engine, worker=claim.worker)  # the same worker: locked_by alone would not tell them apart


async def _reaped(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await clock.advance(LEASE + timedelta(seconds=1))
    assert await engine.duties.reap() == 1


async def _released_and_claimed_again(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    """A refund: where the attempt is given back, a fence made of the attempt would match again."""
    assert await engine.claims.release([lease_of(claim)]) == [ReportStatus.ACCEPTED]
    await claim_one(engine, worker=claim.worker)


async def _snoozed_and_claimed_again(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await engine.claims.report([a_report(claim, Outcome.SNOOZE)])
    await clock.advance(2 * MINUTE)
    await engine.duties.promote()
    await claim_one(engine, worker=claim.worker)


async def _replayed(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await engine.claims.report([a_report(claim, Outcome.DISCARD)])
    await engine.jobs.replay(claim.id)


async def _replayed_and_claimed_again(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await _replayed(engine, clock, claim)
    await claim_one(engine, worker=claim.worker)


async def _cancelled(engine: Engine, clock: FrozenClock, claim: Claim) -> None:
    await engine.jobs.cancel(claim.id)


LOSSES = {
    "reaped": _reaped,
    "reaped and claimed again": _reaped_and_claimed_again,
    "released and claimed again": _released_and_claimed_again,
    "snoozed and claimed again": _snoozed_and_claimed_again,
    "replayed": _replayed,
    "replayed and claimed again": _replayed_and_claimed_again,
    "cancelled": _cancelled,
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_stale_lease_changes_nothing(engine: Engine, clock: FrozenClock, statement: str, loss: str) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    await LOSSES[loss](engine, clock, claim)
    before = await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id), await engine.jobs.counts()

    answers = await STATEMENTS[statement](engine, claim)

    assert answers == [ReportStatus.CANCELLED if loss == "cancelled" else ReportStatus.LOST]
    after = await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id), await engine.jobs.counts()
    assert after == before


@pytest.mark.parametrize("statement", ["complete", "fail", "snooze", "discard"])
@pytest.mark.parametrize("repeated", ["complete", "fail", "snooze", "discard"])
async def test_a_report_repeated_is_answered_and_changes_nothing(
    engine: Engine, clock: FrozenClock, statement: str, repeated: str
) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    assert await STATEMENTS[statement](engine, claim) == [ReportStatus.ACCEPTED]
    before = await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id)

    assert await STATEMENTS[repeated](engine, claim) == [ReportStatus.ALREADY]

    assert (await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id)) == before


async def test_the_fence_grows_with_each_claim_and_each_loss(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(engine, max_attempts=10)
    claim = await claim_one(engine)
    seen = [claim.lease_id]
    for lose in (_reaped, _released_and_claimed_again, _replayed_and_claimed_again, _cancelled):
        await lose(engine, clock, claim)
        seen.append((await engine.jobs.get(job_id)).lease_id)
        if lose is _reaped:
            await clock.advance(timedelta(hours=1))
            await engine.duties.promote()
            claim = await claim_one(engine)
        else:
            claim = msgspec.structs.replace(claim, lease_id=seen[-1])

    assert seen == sorted(set(seen)), "never lowered, never the same twice"


async def test_one_batch_tells_live_leases_from_lost_ones(engine: Engine, clock: FrozenClock) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(3)])
    first, second, third = await engine.claims.claim("mail", worker="w1", slots=3)
    await engine.jobs.cancel(second.id)
    await engine.claims.report([a_report(third)])

    answers = await engine.claims.heartbeat([lease_of(claim) for claim in (first, second, third)])

    assert answers == [ReportStatus.ACCEPTED, ReportStatus.CANCELLED, ReportStatus.ALREADY]


@pytest.mark.parametrize("first", Outcome)
@pytest.mark.parametrize("second", Outcome)
async def test_of_two_reports_of_one_claim_in_one_batch_the_first_stands(
    engine: Engine, first: Outcome, second: Outcome
) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(2)])
    twice, once = await engine.claims.claim("mail", worker="w1", slots=2)

    answers = await engine.claims.report([a_report(twice, first), a_report(once), a_report(twice, second)])

    ends = {
        Outcome.COMPLETE: JobStatus.COMPLETED,
        Outcome.FAIL: JobStatus.RETRYING,
        Outcome.DISCARD: JobStatus.DEAD_LETTERED,
        Outcome.SNOOZE: JobStatus.SCHEDULED,
    }
    assert answers == [ReportStatus.ACCEPTED, ReportStatus.ACCEPTED, ReportStatus.ALREADY]
    assert (await engine.jobs.get(twice.id)).status is ends[first]


async def test_of_two_reports_of_a_lost_claim_both_are_lost(engine: Engine) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    await engine.claims.release([lease_of(claim)])

    assert await engine.claims.report([a_report(claim)] * 2) == [ReportStatus.LOST] * 2


async def test_two_claims_of_one_job_in_one_batch_are_told_apart(engine: Engine) -> None:
    await submit_one(engine)
    old = await claim_one(engine)
    await engine.claims.release([lease_of(old)])
    new = await claim_one(engine)

    answers = await engine.claims.report([a_report(old), a_report(new)])

    assert answers == [ReportStatus.LOST, ReportStatus.ACCEPTED]


async def test_the_same_report_twice_in_one_batch_is_one_report(engine: Engine) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)

    answers = await engine.claims.report([a_report(claim, Outcome.FAIL)] * 2)

    assert answers == [ReportStatus.ACCEPTED, ReportStatus.ACCEPTED]
    assert len(await engine.jobs.attempts(claim.id)) == 1


async def test_a_report_for_a_job_that_never_was_is_lost(engine: Engine) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    unknown = Lease(UUID(int=claim.id.int ^ (1 << 64)), 1)

    assert await engine.claims.heartbeat([unknown]) == [ReportStatus.LOST]


# --- a standby takes over that has not got the last claims

FORGET_CLAIM = """
update pulse.jobs
set status = 'PENDING', attempt = 0, lease_id = $2, locked_by = null, claimed_at = null, lease_until = null
where id = $1
"""


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_a_claim_that_a_failover_lost_does_not_share_its_fence_with_the_next(
    engine: Engine, clock: FrozenClock, conn: Connection, statement: str
) -> None:
    job_id = await submit_one(engine)
    standby = (await engine.jobs.get(job_id)).lease_id
    await clock.advance(timedelta(milliseconds=1))
    lost = await claim_one(engine, worker="a")

    await conn.fetch(FORGET_CLAIM, job_id, standby)
    await clock.advance(timedelta(milliseconds=1))
    newer = await claim_one(engine, worker="b")

    assert newer.lease_id > lost.lease_id
    before = await engine.jobs.get(job_id)
    assert await STATEMENTS[statement](engine, lost) == [ReportStatus.LOST]
    assert await engine.jobs.get(job_id) == before
    for call in ("fence($1, $2)", "complete($1, $2)"):
        [row] = await conn.fetch(f"select pulse.{call}", job_id, lost.lease_id)
        assert row[0] is False
    assert await STATEMENTS[statement](engine, newer) == [ReportStatus.ACCEPTED]


async def test_a_claim_that_a_failover_lost_is_lost_also_before_the_next(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    job_id = await submit_one(engine)
    standby = (await engine.jobs.get(job_id)).lease_id
    await clock.advance(timedelta(milliseconds=1))
    lost = await claim_one(engine)
    await conn.fetch(FORGET_CLAIM, job_id, standby)

    assert await engine.claims.report([a_report(lost)]) == [ReportStatus.LOST]

    await engine.jobs.cancel(job_id)
    assert await engine.claims.report([a_report(lost)]) == [ReportStatus.LOST], "the cancellation was not of this claim"


async def test_two_claims_at_one_instant_have_two_fences(engine: Engine, clock: FrozenClock) -> None:
    """Where the clock stands, or was set back, the next fence is one more."""
    await submit_one(engine)
    first = await claim_one(engine)
    await engine.claims.release([lease_of(first)])
    await clock.advance(-timedelta(hours=1))

    second = await claim_one(engine)

    assert second.lease_id > first.lease_id


async def test_a_delivery_that_a_failover_lost_does_not_share_its_fence_with_the_next(
    engine: Engine, clock: FrozenClock, conn: Connection
) -> None:
    alarm = (await engine.alarms.set(NewAlarm(owner="ada", url="https://example.com", delay=MINUTE))).alarm
    await clock.advance(MINUTE)
    await conn.rows("ready_alarms", limit=10)
    [turn] = await deliveries.ready_turns(conn, {"ada": ""}, limit=10)

    [lost] = await deliveries.claim_alarms(conn, {turn: 1}, lease=LEASE)
    await conn.fetch("update pulse.alarms set lease_id = 0, lease_until = null, attempt = 0 where id = $1", alarm.id)
    await clock.advance(timedelta(milliseconds=1))
    [newer] = await deliveries.claim_alarms(conn, {turn: 1}, lease=LEASE)

    assert newer.lease_id > lost.lease_id
    assert await deliveries.held_wakes(conn, [lost]) == set()
    assert await deliveries.held_wakes(conn, [newer]) == {newer.key}
