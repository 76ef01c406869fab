"""A job that is stored as someone's already: the same job as one that was submitted and then claimed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs.claims import can_be_claimed
from pulse.model.errors import Conflict
from pulse.model.ids import bucket_of_topic, make_id
from pulse.model.jobs import Claim, JobStatus, Outcome, ReportStatus, Submitted
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.jobs.rows import ReadyTopic
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_new_job, a_report, claim_one, lease_of, submit_one


async def submit_claimed(engine: Engine, worker: str = "w1", **given: Any) -> tuple[Submitted, Claim | None]:
    return await engine.claims.submit_claimed(a_new_job(**given), worker=worker)


async def claimed_one(engine: Engine, **given: Any) -> Claim:
    _, claim = await submit_claimed(engine, **given)
    assert claim is not None
    return claim


def an_id(engine: Engine) -> UUID:
    return make_id(1_700_000_000_000_000_000, bucket_of_topic("mail", engine.jobs.buckets), 42)


async def counts(engine: Engine) -> dict[JobStatus, int]:
    return dict(next((each.counts for each in await engine.jobs.counts() if each.topic == "mail"), {}))


async def test_it_is_the_same_as_one_that_was_submitted_and_then_claimed(engine: Engine, clock: FrozenClock) -> None:
    given: dict[str, Any] = {
        "payload": '{"a": [1, 2]}',
        "priority": 7,
        "max_attempts": 5,
        "timeout": MINUTE,
        "deadline": clock.instant + 9 * MINUTE,
        "result_ttl": 2 * MINUTE,
        "tags": ("blue", "red"),
        "trace": {"traceparent": "00-abc-def-01"},
    }
    await submit_one(engine, **given)
    usual = await claim_one(engine)
    direct = await claimed_one(engine, **given)

    as_usual, as_direct = await engine.jobs.get(usual.id), await engine.jobs.get(direct.id)

    assert [value for name, value in fields(as_direct) if name != "id"] == [
        value for name, value in fields(as_usual) if name != "id"
    ]
    assert [value for name, value in fields(direct) if name != "id"] == [
        value for name, value in fields(usual) if name != "id"
    ]
    assert direct.lease_id == clock.instant.timestamp() * 1_000_000 + 1
    assert (direct.worker, direct.attempt) == ("w1", 1)


def fields(value: Any) -> list[tuple[str, Any]]:
    return [(name, getattr(value, name)) for name in value.__struct_fields__]


@pytest.mark.parametrize("paused", ["mail", "*"])
async def test_it_waits_where_its_topic_is_paused(engine: Engine, paused: str) -> None:
    await engine.jobs.pause(paused)
    woken: list[ReadyTopic] = []
    engine.notifications.on_ready(woken.append)

    submitted, claim = await submit_claimed(engine, priority=7)

    assert woken == [ReadyTopic("mail", 7)], "whoever claims has to be told of it"
    job = await engine.jobs.get(submitted.id)
    assert (submitted.created, claim) == (True, None)
    assert (job.status, job.attempt, job.locked_by, job.lease_until) == (JobStatus.PENDING, 0, None, None)
    await engine.jobs.resume(paused)
    assert (await claim_one(engine)).lease_id > job.lease_id


async def test_it_waits_where_others_wait(engine: Engine, clock: FrozenClock) -> None:
    first = await submit_one(engine)
    await clock.advance(timedelta(seconds=1))

    submitted, claim = await submit_claimed(engine)

    assert claim is None
    assert [each.id for each in await engine.claims.claim("mail", worker="w1", slots=2)] == [first, submitted.id]


async def test_those_who_wait_elsewhere_or_for_their_time_are_not_before_it(engine: Engine) -> None:
    await submit_one(engine, topic="other")
    await submit_one(engine, delay=MINUTE)

    await claimed_one(engine)


async def test_a_late_one_is_nobodys(engine: Engine, clock: FrozenClock) -> None:
    submitted, claim = await submit_claimed(engine, deadline=clock.instant)

    assert claim is None
    await engine.duties.promote()
    assert (await engine.jobs.get(submitted.id)).status is JobStatus.DEAD_LETTERED


async def test_a_repeated_id_is_nobodys_and_changes_nothing(engine: Engine) -> None:
    claim = await claimed_one(engine, id=an_id(engine))
    before = await engine.jobs.get(claim.id)

    assert await submit_claimed(engine, "w2", id=an_id(engine), payload="2") == (Submitted(claim.id, False), None)

    assert await engine.jobs.get(claim.id) == before
    assert await counts(engine) == {JobStatus.RUNNING: 1}


async def test_a_finished_job_still_stands_for_its_id(engine: Engine) -> None:
    claim = await claimed_one(engine, id=an_id(engine))
    await engine.claims.report([a_report(claim)])

    assert await submit_claimed(engine, id=an_id(engine)) == (Submitted(claim.id, False), None)


async def test_an_id_that_another_transaction_is_submitting_is_not_waited_for_without_end(
    engine: Engine, settings: Settings, conn: Connection
) -> None:
    async with open_connection(settings) as other:
        await other.execute("begin")
        await other.fetch("select pulse.enqueue('mail', '{}', $1)", f'{{"id": "{an_id(engine)}"}}')
        with pytest.raises(Conflict):
            async with asyncio.timeout(5):
                await submit_claimed(engine, id=an_id(engine))


async def test_the_counts_say_that_it_runs(engine: Engine) -> None:
    claim = await claimed_one(engine)
    assert await counts(engine) == {JobStatus.RUNNING: 1}
    await engine.duties.tally()
    assert await counts(engine) == {JobStatus.RUNNING: 1}
    await engine.claims.report([a_report(claim)])
    await engine.duties.tally()
    assert await counts(engine) == {JobStatus.COMPLETED: 1}


async def test_it_lives_on_like_any_other(engine: Engine, clock: FrozenClock, settings: Settings) -> None:
    beaten, given_back, failed, left = [await claimed_one(engine) for _ in range(4)]
    await clock.advance(settings.lease - timedelta(seconds=1))

    assert await engine.claims.heartbeat([lease_of(beaten)]) == [ReportStatus.ACCEPTED]
    assert await engine.claims.release([lease_of(given_back)]) == [ReportStatus.ACCEPTED]
    assert await engine.claims.report([a_report(failed, Outcome.FAIL)]) == [ReportStatus.ACCEPTED]
    await clock.advance(timedelta(seconds=2))
    assert await engine.duties.reap() == 1

    found = [await engine.jobs.get(each.id) for each in (beaten, given_back, failed, left)]
    assert [(job.status, job.attempt - job.refunded) for job in found] == [
        (JobStatus.RUNNING, 1),
        (JobStatus.PENDING, 0),
        (JobStatus.RETRYING, 1),
        (JobStatus.RETRYING, 1),
    ]
    assert [attempt.attempt for attempt in await engine.jobs.attempts(left.id)] == [1]
    assert await engine.claims.report([a_report(left)]) == [ReportStatus.LOST]


async def test_the_mark_is_set_once_and_then_left_to_the_claims(engine: Engine) -> None:
    """So that dead entries are not walked over each time, and nobody is overtaken whose commit comes a moment later."""
    first = await claimed_one(engine)
    await claimed_one(engine)

    assert engine.claims._marks._places["mail"].mark == first.order


@pytest.mark.parametrize(
    ("given", "can_be"),
    [
        ({}, True),
        ({"delay": timedelta()}, True),
        ({"delay": MINUTE}, False),
        ({"unique_key": "k"}, False),
    ],
    ids=str,
)
def test_which_jobs_it_is_for(given: dict[str, Any], can_be: bool) -> None:
    assert can_be_claimed(a_new_job(**given)) is can_be


def test_an_instant_is_the_databases_to_judge(clock: FrozenClock) -> None:
    assert not can_be_claimed(a_new_job(run_at=clock.instant - MINUTE))
