"""The statements against TRANSITIONS: every state, every event, on a real row."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import IllegalTransition
from pulse.model.jobs import TRANSITIONS, Job, JobEvent, JobStatus, Lease, Outcome, Report, ReportStatus
from tests.clock import FrozenClock
from tests.factories import MINUTE, a_job

LEASE = timedelta(seconds=30)


def _report(outcome: Outcome) -> Callable[[Engine, FrozenClock, Job], Awaitable[object]]:
    async def apply(engine: Engine, clock: FrozenClock, job: Job) -> object:
        delay = MINUTE if outcome is Outcome.SNOOZE else None
        lease_id = max(job.lease_id, 1)
        return await engine.claims.report(
            [Report(id=job.id, lease_id=lease_id, outcome=outcome, error="e", delay=delay)]
        )

    return apply


async def _promote(engine: Engine, clock: FrozenClock, job: Job) -> object:
    await clock.advance(timedelta(days=1))
    return await engine.duties.promote()


async def _claim(engine: Engine, clock: FrozenClock, job: Job) -> object:
    return await engine.claims.claim(job.topic, worker="w2", slots=5)


async def _heartbeat(engine: Engine, clock: FrozenClock, job: Job) -> object:
    return await engine.claims.heartbeat([Lease(job.id, max(job.lease_id, 1))])


async def _release(engine: Engine, clock: FrozenClock, job: Job) -> object:
    return await engine.claims.release([Lease(job.id, max(job.lease_id, 1))])


async def _reap(engine: Engine, clock: FrozenClock, job: Job) -> object:
    await clock.advance(LEASE + timedelta(seconds=1))
    return await engine.duties.reap()


async def _cancel(engine: Engine, clock: FrozenClock, job: Job) -> object:
    return await engine.jobs.cancel_many([job.id])


async def _replay(engine: Engine, clock: FrozenClock, job: Job) -> object:
    return await engine.jobs.replay_many([job.id])


async def _run_now(engine: Engine, clock: FrozenClock, job: Job) -> object:
    with suppress(IllegalTransition):
        await engine.jobs.run_now(job.id)
    return None


async def _expire(engine: Engine, clock: FrozenClock, job: Job) -> object:
    await clock.advance(timedelta(hours=2))
    return await engine.duties.promote()


# Every way in which each event comes about. Reaping is a RETRY or a DEAD_LETTER that nobody reported.
WAYS: list[tuple[JobEvent, str, Callable[[Engine, FrozenClock, Job], Awaitable[object]], dict[str, object]]] = [
    (JobEvent.PROMOTE, "promote", _promote, {}),
    (JobEvent.CLAIM, "claim", _claim, {}),
    (JobEvent.HEARTBEAT, "heartbeat", _heartbeat, {}),
    (JobEvent.COMPLETE, "complete", _report(Outcome.COMPLETE), {}),
    (JobEvent.RETRY, "fail", _report(Outcome.FAIL), {}),
    (JobEvent.RETRY, "reap", _reap, {}),
    (JobEvent.SNOOZE, "snooze", _report(Outcome.SNOOZE), {}),
    (JobEvent.RELEASE, "release", _release, {}),
    (JobEvent.DEAD_LETTER, "discard", _report(Outcome.DISCARD), {}),
    (JobEvent.DEAD_LETTER, "fail for the last time", _report(Outcome.FAIL), {"max_attempts": 1}),
    (JobEvent.DEAD_LETTER, "reap for the last time", _reap, {"max_attempts": 1}),
    (JobEvent.EXPIRE, "expire", _expire, {"deadline": timedelta(hours=1)}),
    (JobEvent.CANCEL, "cancel", _cancel, {}),
    (JobEvent.REPLAY, "replay", _replay, {}),
    (JobEvent.RUN_NOW, "run now", _run_now, {}),
]


def test_every_event_is_tried() -> None:
    assert {event for event, *_ in WAYS} == set(JobEvent)
    assert {event for _, event in TRANSITIONS} == set(JobEvent)


@pytest.mark.parametrize("way", WAYS, ids=[name for _, name, *_ in WAYS])
@pytest.mark.parametrize("status", JobStatus)
async def test_sql_agrees_with_the_table(
    engine: Engine,
    clock: FrozenClock,
    status: JobStatus,
    way: tuple[JobEvent, str, Callable[..., Awaitable[object]], dict[str, Any]],
) -> None:
    event, name, apply, given = way
    if status is JobStatus.RETRYING and given.get("max_attempts") == 1:
        given = {}  # with a single attempt there is no retry to wait for
    if "deadline" in given:
        given = {"deadline": clock.instant + given["deadline"]}
    job = await a_job(engine, clock, status, **given)

    await apply(engine, clock, job)

    after = await engine.jobs.get(job.id)
    wanted = TRANSITIONS.get((status, event))
    if event is JobEvent.EXPIRE and status in (JobStatus.SCHEDULED, JobStatus.RETRYING):
        assert after.status is JobStatus.DEAD_LETTERED
    elif wanted is None:
        assert after == job, f"{name} on {status} must change nothing"
    else:
        assert after.status is wanted


@pytest.mark.parametrize(
    ("status", "event"), [pair for pair in product(JobStatus, [JobEvent.CLAIM]) if pair not in TRANSITIONS]
)
async def test_only_pending_jobs_are_claimed(
    engine: Engine, clock: FrozenClock, status: JobStatus, event: JobEvent
) -> None:
    job = await a_job(engine, clock, status)

    assert await engine.claims.claim(job.topic, worker="w2", slots=5) == []


@pytest.mark.parametrize("outcome", Outcome)
async def test_a_report_for_a_job_that_waits_is_refused(engine: Engine, clock: FrozenClock, outcome: Outcome) -> None:
    job = await a_job(engine, clock, JobStatus.PENDING)
    report = Report(id=job.id, lease_id=1, outcome=outcome, error="e", delay=MINUTE)

    assert await engine.claims.report([report]) == [ReportStatus.LOST]
