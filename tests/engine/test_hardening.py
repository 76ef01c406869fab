"""Values that look harmless and once stopped a duty, a batch or a bucket for everyone else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import Conflict, InvalidInput, InvalidName, InvalidOption, InvalidPayload
from pulse.model.jobs import JobStatus, NewJob, Outcome, ReportStatus
from pulse.settings import Settings
from pulse.store.connections.pool import Connection, Database
from pulse.store.statements import load_statements
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_new_job, a_report, claim_one, lease_of, submit_one


@pytest.mark.parametrize("option", ["run_at", "deadline"])
@pytest.mark.parametrize("instant", [datetime.min.replace(tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)])
def test_an_instant_before_1970_is_a_forgotten_value(option: str, instant: datetime) -> None:
    with pytest.raises(InvalidOption, match="must be 1970 or later"):
        NewJob(task="mail", **{option: instant})  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["0044-03-15 00:00:00 BC Z", "-infinity", "infinity", "0001-01-01T00:00:00Z"])
async def test_sql_refuses_instants_no_calendar_of_ours_has(conn: Connection, text: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="run_at"):
        await conn.fetch("select pulse.enqueue('mail', '{}', $1)", json.dumps({"run_at": text}))


@pytest.mark.parametrize("column", ["deadline", "run_at"])
async def test_an_instant_of_any_size_does_not_stop_promotion(
    engine: Engine, conn: Connection, clock: FrozenClock, column: str
) -> None:
    """However it came into the row."""
    poisoned = await submit_one(engine, delay=MINUTE)
    innocent = await submit_one(engine, delay=MINUTE)
    await conn.fetch(f"update pulse.jobs set {column} = '-infinity' where id = $1 returning 1", poisoned)
    await clock.advance(2 * MINUTE)

    for _ in range(3):
        await engine.duties.promote()

    assert (await engine.jobs.get(innocent)).status is JobStatus.PENDING


POLICIES: list[dict[str, Any]] = [
    {"kind": "list", "delays": [0, 0, 0, "boom"]},
    {"kind": "list", "delays": "none"},
    {"kind": "exponential", "factor": 100_000},
    {"kind": "exponential", "max_delay": 1e15},
    {"base": -1},
    {"base": "1"},
    {"jitter": 50},
    {"factor": 0},
    {"max_delay": -5},
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
async def test_sql_refuses_a_policy_that_would_fail_later(conn: Connection, policy: dict[str, Any]) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="retry"):
        await conn.fetch("select pulse.enqueue('mail', '{}', $1)", json.dumps({"retry": policy}))


@pytest.mark.parametrize(
    "policy", [*POLICIES, 5, [], "x", {"base": 1e300, "max_delay": 1e300}, {"kind": "list"}], ids=str
)
@pytest.mark.parametrize("failures", [1, 4, 1_000_000])
async def test_the_back_off_has_an_answer_for_every_policy(conn: Connection, policy: Any, failures: int) -> None:
    """Recording a failure must never itself fail: it would take the whole batch, and the watchdog, with it."""
    [row] = await conn.fetch("select pulse.backoff($1, $2, 'seed') as wait", json.dumps(policy), failures)

    assert timedelta() <= row["wait"] <= timedelta(days=8_000)


async def test_attempts_left_behind_by_hand_do_not_stop_the_watchdog(
    engine: Engine, conn: Connection, clock: FrozenClock
) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    await conn.fetch(
        "insert into pulse.attempts (bucket, job_id, lease_id, attempt, ended_at, error) "
        "select bucket, id, lease_id, 1, now(), 'old' from pulse.jobs returning 1"
    )
    await clock.advance(MINUTE)

    assert await engine.duties.reap() == 1
    assert (await engine.jobs.get(job_id)).status is JobStatus.RETRYING
    assert await engine.claims.report([a_report(claim)]) == [ReportStatus.LOST]


async def test_a_second_life_of_an_id_does_not_accept_the_first_ones_worker(
    settings: Settings, clock: FrozenClock
) -> None:
    async with await Database.connect(replace(settings, keep_cancelled=timedelta())) as database:
        engine = Engine(database, buckets=settings.buckets)
        job_id = await submit_one(engine)
        zombie = await claim_one(engine)
        await engine.jobs.cancel(job_id)
        await engine.duties.tally()
        await clock.advance(timedelta(seconds=1))
        await engine.duties.prune()
        await engine.jobs.submit([a_new_job(id=job_id)])
        async with asyncio.timeout(5):
            while not (claims := await engine.claims.claim("mail", worker="w2", slots=1)):
                await asyncio.sleep(0.01)

        assert claims[0].lease_id > zombie.lease_id
        assert await engine.claims.report([a_report(zombie)]) == [ReportStatus.LOST]


async def test_sql_enqueue_does_not_lock_a_running_job(engine: Engine, settings: Settings, clock: FrozenClock) -> None:
    """Its window has passed, but clearing it would hold the row for as long as the caller's transaction."""
    first = await submit_one(engine, unique_key="k", unique_window=MINUTE)
    claim = await claim_one(engine)
    await clock.advance(2 * MINUTE)
    async with open_connection(settings) as caller:
        await caller.execute("begin")
        [row] = await caller.fetch("select pulse.enqueue('mail', '{}', '{\"unique_key\": \"k\"}') as id")

        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        assert row["id"] == first, "a running job lets go of its key when it ends"
        await caller.execute("commit")

    await engine.claims.report([a_report(claim)])
    assert await submit_one(engine, unique_key="k") != first


async def test_a_key_in_somebodys_open_transaction_is_not_waited_for_long(engine: Engine, settings: Settings) -> None:
    async with open_connection(settings) as other:
        await other.execute("begin")
        await other.fetch("select pulse.enqueue('mail', '{}', '{\"unique_key\": \"k\"}')")

        with pytest.raises(Conflict, match="has not ended"):
            await submit_one(engine, unique_key="k")
        await other.execute("rollback")

    assert (await engine.jobs.get(await submit_one(engine, unique_key="k"))).attempt == 0


@pytest.mark.parametrize("text", ["1e-20000", "[1.5E-16384]", "0." + "0" * 17_000 + "1"])
def test_a_number_that_jsonb_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidPayload, match="decimals"):
        NewJob(task="mail", payload=text)


@pytest.mark.parametrize("text", ["1e-300", '"1e-99999 is text"'.replace("1e-9", "e-9"), "0." + "1" * 1_000])
async def test_a_number_that_it_can_hold_passes(engine: Engine, text: str) -> None:
    assert (await engine.jobs.get(await submit_one(engine, payload=text))).attempt == 0


async def test_a_key_of_many_bytes_is_refused_before_the_index_does(engine: Engine, conn: Connection) -> None:
    topic, key = "𝄞" * 200, "𝄞" * 401

    with pytest.raises(InvalidOption, match="1600 bytes"):
        a_new_job(topic=topic, unique_key=key)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="1600 bytes"):
        await conn.fetch("select pulse.enqueue($1, '{}', $2)", topic, json.dumps({"unique_key": key}))
    assert (await engine.jobs.get(await submit_one(engine, topic=topic, unique_key=key[:400]))).unique_key


async def test_a_replay_is_not_stopped_by_a_window_that_passed(engine: Engine, clock: FrozenClock) -> None:
    dead = await submit_one(engine, unique_key="k")
    await engine.claims.report([a_report(await claim_one(engine), Outcome.DISCARD)])
    await submit_one(engine, unique_key="k", unique_window=MINUTE)
    await engine.claims.report([a_report(await claim_one(engine))])
    await clock.advance(2 * MINUTE)

    job = await engine.jobs.replay(dead)

    assert job.status is JobStatus.PENDING
    assert await submit_one(engine, unique_key="k") == dead, "and it holds the key while it is unfinished"


async def test_pruning_does_not_wait_for_a_foreign_key_of_yours(
    engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    job_id = await submit_one(engine)
    await engine.claims.report([a_report(await claim_one(engine))])
    await engine.duties.tally()
    await clock.advance(timedelta(days=30))
    async with open_connection(settings) as other:
        await other.execute("begin")
        await other.fetch("select 1 from pulse.jobs for key share")

        async with asyncio.timeout(3):
            await engine.duties.prune()
        assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED, "passed over, not waited for"
        await other.execute("commit")


@pytest.mark.parametrize(
    "options",
    [
        {"delay": None, "run_at": "2020-01-01T00:00:00Z"},
        {"unique_window": None},
        {"tags": None},
        {"retry": None},
        {"trace": None},
    ],
    ids=str,
)
async def test_a_null_is_an_option_not_given(conn: Connection, options: dict[str, Any]) -> None:
    [row] = await conn.fetch("select pulse.enqueue('mail', '{}', $1) as id", json.dumps(options))

    assert row["id"]


@pytest.mark.parametrize("options", [{"tags": [1]}, {"trace": 5}, {"unique_key": None, "unique_window": "5m"}], ids=str)
async def test_sql_refuses_options_of_the_wrong_kind(conn: Connection, options: dict[str, Any]) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await conn.fetch("select pulse.enqueue('mail', '{}', $1)", json.dumps(options))


async def test_a_claim_of_nonsense_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidName):
        await engine.claims.claim("\ud800", worker="w1", slots=1)
    with pytest.raises(InvalidInput, match="workers"):
        await engine.claims.claim_for("mail", [], slots=1)


async def test_the_end_of_a_key_has_a_time_zone(engine: Engine) -> None:
    job = await engine.jobs.get(await submit_one(engine, unique_key="k"))

    assert job.key_held_until is not None
    assert job.key_held_until.tzinfo is UTC


def test_no_statement_waits_without_an_end() -> None:
    """A wait is either passed over or has a limit of its own."""
    for name, statement in load_statements("pulse").items():
        touches = "update" in statement.sql or "insert into" in statement.sql
        is_alone = name == "submit_job"  # its id was minted for it, and it has no other key
        if touches and not is_alone and '"pulse".jobs' in statement.sql:
            assert "skip locked" in statement.sql or "lock_timeout" in statement.sql, name
