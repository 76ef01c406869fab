"""Jobs in any state, made the way they come to be in life. A factory fills in what the test does not care about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from pulse.engine.engine import Engine
from pulse.model.jobs import Claim, Job, JobStatus, Lease, NewJob, Outcome, Report
from tests.clock import FrozenClock

MINUTE = timedelta(minutes=1)


def a_new_job(**given: Any) -> NewJob:
    return NewJob(**{"task": "mail", "payload": '{"to": "ada"}'} | given)


async def submit_one(engine: Engine, **given: Any) -> UUID:
    [submitted] = await engine.jobs.submit([a_new_job(**given)])
    return submitted.id


async def claim_one(engine: Engine, topic: str = "mail", worker: str = "w1") -> Claim:
    [claim] = await engine.claims.claim(topic, worker=worker, slots=1)
    return claim


def lease_of(claim: Claim) -> Lease:
    return Lease(claim.id, claim.lease_id)


def a_report(claim: Claim, outcome: Outcome = Outcome.COMPLETE, **given: Any) -> Report:
    defaults: dict[Outcome, dict[str, Any]] = {
        Outcome.COMPLETE: {"result": "true"},
        Outcome.FAIL: {"error": "boom"},
        Outcome.DISCARD: {"error": "not wanted"},
        Outcome.SNOOZE: {"delay": MINUTE},
    }
    return Report(id=claim.id, lease_id=claim.lease_id, outcome=outcome, **defaults[outcome] | given)


async def a_job(engine: Engine, clock: FrozenClock, status: JobStatus, **given: Any) -> Job:
    """One job of topic `mail` in the given state, with the clock back where it was."""
    if status is JobStatus.SCHEDULED:
        job_id = await submit_one(engine, delay=MINUTE, **given)
        return await engine.jobs.get(job_id)
    job_id = await submit_one(engine, **given)
    if status is JobStatus.PENDING:
        return await engine.jobs.get(job_id)
    if status is JobStatus.CANCELLED:
        return await engine.jobs.cancel(job_id)
    claim = await claim_one(engine)
    assert claim.id == job_id
    outcomes = {
        JobStatus.COMPLETED: Outcome.COMPLETE,
        JobStatus.RETRYING: Outcome.FAIL,
        JobStatus.DEAD_LETTERED: Outcome.DISCARD,
    }
    if status is not JobStatus.RUNNING:
        await engine.claims.report([a_report(claim, outcomes[status])])
    job = await engine.jobs.get(job_id)
    assert job.status is status
    return job
