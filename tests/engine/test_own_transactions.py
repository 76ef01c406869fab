"""pulse.fence and pulse.complete: a claim held, or completed, inside the handler's own transaction."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.jobs import Claim, JobStatus, Outcome, ReportStatus
from pulse.model.statistics import took_class
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.engine.test_fences import LOSSES
from tests.factories import MINUTE, a_report, claim_one, lease_of, submit_one

Call = Callable[[Connection, Claim], Coroutine[None, None, bool]]


async def fence(conn: Connection, claim: Claim) -> bool:
    [row] = await conn.fetch("select pulse.fence($1, $2)", claim.id, claim.lease_id)
    return bool(row[0])


async def complete(conn: Connection, claim: Claim, result: object = None) -> bool:
    text = json.dumps(result)
    [row] = await conn.fetch("select pulse.complete($1, $2, $3::text::jsonb)", claim.id, claim.lease_id, text)
    return bool(row[0])


@pytest.mark.parametrize("call", [fence, complete])
@pytest.mark.parametrize("loss", LOSSES)
async def test_a_lost_claim_does_not_stand_and_changes_nothing(
    engine: Engine, conn: Connection, clock: FrozenClock, loss: str, call: Call
) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    await LOSSES[loss](engine, clock, claim)
    before = await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id), await engine.jobs.counts()

    assert await call(conn, claim) is False

    after = await engine.jobs.get(claim.id), await engine.jobs.attempts(claim.id), await engine.jobs.counts()
    assert after == before


@pytest.mark.parametrize("outcome", Outcome)
async def test_a_reported_claim_does_not_stand(engine: Engine, conn: Connection, outcome: Outcome) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    await engine.claims.report([a_report(claim, outcome)])

    assert await fence(conn, claim) is False
    assert await complete(conn, claim) is False


async def test_what_was_never_claimed_does_not_stand(conn: Connection) -> None:
    [row] = await conn.fetch(
        "select pulse.fence($1, 1), pulse.fence(null, 1), pulse.fence($1, null), pulse.complete($1, 1)", UUID(int=0)
    )

    assert list(row) == [False] * 4


async def test_a_fenced_claim_cannot_be_taken_away_even_after_its_lease(
    engine: Engine, conn: Connection, clock: FrozenClock
) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    await clock.advance(MINUTE)
    async with conn.transaction():
        assert await fence(conn, claim), "out of time, but nobody has taken it away"

        assert await engine.duties.reap() == 0
        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.BUSY]

    assert await engine.duties.reap() == 1
    assert await fence(conn, claim) is False


@pytest.mark.parametrize("call", [fence, complete])
async def test_a_row_that_a_heartbeat_holds_is_waited_for(
    engine: Engine, settings: Settings, conn: Connection, call: Call
) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    async with open_connection(settings) as heart:
        async with heart.transaction():
            await heart.fetch("update pulse.jobs set lease_until = lease_until + interval '1 second' returning id")
            asking = asyncio.create_task(call(conn, claim))
            await asyncio.wait([asking], timeout=0.1)
            assert not asking.done()

        assert await asking


async def test_a_claim_that_is_taken_away_meanwhile_is_lost(
    engine: Engine, settings: Settings, conn: Connection
) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    async with open_connection(settings) as thief:
        async with thief.transaction():
            await thief.fetch("update pulse.jobs set lease_id = lease_id + 1 returning id")
            asking = asyncio.create_task(fence(conn, claim))
            await asyncio.wait([asking], timeout=0.1)

        assert await asking is False


@pytest.mark.parametrize("window", [None, MINUTE])
async def test_sql_and_a_report_complete_alike(
    engine: Engine, conn: Connection, clock: FrozenClock, window: timedelta | None
) -> None:
    rows, counts, tallies = [], [], []
    for way in ("report", "sql"):
        await submit_one(engine, unique_key="k", unique_window=window, result_ttl=2 * MINUTE)
        claim = await claim_one(engine)
        await conn.execute("update pulse.jobs set claimed_at = claimed_at - interval '7 s'")
        if way == "report":
            await engine.claims.report([a_report(claim, result='{"a": 1}')])
        else:
            assert await complete(conn, claim, {"a": 1})
        rows.append(dict((await conn.fetch("select * from pulse.jobs"))[0]) | {"id": None})
        counts.append(await engine.jobs.counts())
        tallies += await conn.fetch("select took, seconds from pulse.tallies where to_status = 'COMPLETED'")
        await conn.execute("delete from pulse.jobs; delete from pulse.tallies; delete from pulse.counts")

    assert rows[0] == rows[1]
    assert rows[1]["status"] == "COMPLETED"
    assert rows[1]["result_until"] == clock.instant + 2 * MINUTE
    assert counts[0] == counts[1]
    assert counts[1][0].counts == {JobStatus.COMPLETED: 1}
    assert [tuple(tally) for tally in tallies] == 2 * [(took_class(7), 7)]


async def test_a_completion_without_a_result_has_none(engine: Engine, conn: Connection) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)

    await conn.fetch("select pulse.complete($1, $2)", claim.id, claim.lease_id)

    assert (await engine.jobs.get(job_id)).result is None


async def test_a_result_over_the_limit_is_refused(engine: Engine, conn: Connection) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)

    with pytest.raises(asyncpg.InvalidParameterValueError, match="result must be at most 1 MiB"):
        await complete(conn, claim, "x" * (1 << 20))

    assert await complete(conn, claim, "x" * ((1 << 20) - 2))


async def test_a_completion_rolled_back_never_was(engine: Engine, conn: Connection) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    await conn.execute("begin")
    assert await complete(conn, claim)
    await conn.execute("rollback")

    assert (await engine.jobs.get(job_id)).status is JobStatus.RUNNING
    assert (await engine.jobs.counts())[0].counts == {JobStatus.RUNNING: 1}
    assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
