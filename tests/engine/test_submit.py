"""Submitting: once per intent, all or nothing, and the same through Python and SQL."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import BatchTooLarge, InvalidInput, InvalidOption
from pulse.model.ids import bucket_of_id, bucket_of_topic, make_id
from pulse.model.jobs import JobStatus, NewJob, Outcome, RetryPolicy
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.factories import MINUTE, a_new_job, a_report, claim_one, submit_one


async def count(conn: Connection) -> int:
    return int((await conn.fetch("select count(*) from pulse.jobs"))[0][0])


async def test_a_job_is_stored_as_it_was_submitted(engine: Engine, clock: FrozenClock) -> None:
    job_id = await submit_one(
        engine,
        topic="urgent",
        payload='{"a": [1, 2]}',
        priority=7,
        max_attempts=5,
        retry=RetryPolicy(kind="fixed", base=2),
        timeout=MINUTE,
        deadline=clock.instant + 9 * MINUTE,
        unique_key="k",
        result_ttl=2 * MINUTE,
        tags=("blue", "red"),
        trace={"traceparent": "00-abc-def-01"},
    )

    job = await engine.jobs.get(job_id)

    assert (job.status, job.topic, job.task, job.priority) == (JobStatus.PENDING, "urgent", "mail", 7)
    assert (job.max_attempts, job.attempt, job.refunded) == (5, 0, 0)
    assert job.lease_id == clock.instant.timestamp() * 1_000_000
    assert json.loads(job.payload) == {"a": [1, 2]}
    assert json.loads(job.retry or "") == {"kind": "fixed", "base": 2}
    assert (job.timeout, job.deadline, job.result_ttl) == (MINUTE, clock.instant + 9 * MINUTE, 2 * MINUTE)
    assert json.loads(job.tags or "") == ["blue", "red"]
    assert json.loads(job.trace or "") == {"traceparent": "00-abc-def-01"}
    assert job.submitted_at == job.ready_at == job.run_at == clock.instant
    assert bucket_of_id(job_id) == bucket_of_topic("urgent", engine.jobs.buckets)


async def test_the_topic_defaults_to_the_task(engine: Engine) -> None:
    assert (await engine.jobs.get(await submit_one(engine, task="mail"))).topic == "mail"


async def test_a_job_waits_for_its_time(engine: Engine, clock: FrozenClock) -> None:
    later = clock.instant + 5 * MINUTE
    await engine.jobs.submit([a_new_job(run_at=later), a_new_job(delay=5 * MINUTE)])

    await engine.duties.promote()
    assert await engine.claims.claim("mail", worker="w1", slots=10) == []

    await clock.advance(5 * MINUTE)
    await engine.duties.promote()
    assert len(await engine.claims.claim("mail", worker="w1", slots=10)) == 2


async def test_priority_goes_before_age_and_age_before_nothing(engine: Engine, clock: FrozenClock) -> None:
    ids = {}
    for name, priority in [("first", 0), ("second", 0), ("urgent", 9), ("whenever", -5)]:
        ids[await submit_one(engine, priority=priority)] = name
        await clock.advance(timedelta(seconds=1))

    claims = await engine.claims.claim("mail", worker="w1", slots=10)

    assert [ids[claim.id] for claim in claims] == ["urgent", "first", "second", "whenever"]


async def test_a_claim_takes_no_more_than_it_asks_for_and_seats_the_workers(engine: Engine) -> None:
    await engine.jobs.submit([a_new_job() for _ in range(10)])

    claims = await engine.claims.claim_for("mail", ["ada", "bob", "ada"], slots=3)

    assert [claim.worker for claim in claims] == ["ada", "bob", "ada"]
    assert {(await engine.jobs.get(claim.id)).locked_by for claim in claims} == {"ada", "bob"}


async def test_a_repeated_id_returns_the_first_job_and_changes_nothing(engine: Engine, conn: Connection) -> None:
    bucket = bucket_of_topic("mail", engine.jobs.buckets)
    job_id = make_id(1_700_000_000_000_000_000, bucket, 42)
    [first] = await engine.jobs.submit([a_new_job(id=job_id, payload="1")])
    before = await engine.jobs.get(job_id)

    again = await engine.jobs.submit([a_new_job(id=job_id, payload="2", priority=9)] * 2)

    assert first.created
    assert [(answer.id, answer.created) for answer in again] == [(job_id, False)] * 2
    assert await engine.jobs.get(job_id) == before
    assert await count(conn) == 1


async def test_a_finished_job_still_stands_for_its_id(engine: Engine) -> None:
    job_id = await submit_one(engine)
    await engine.claims.report([a_report(await claim_one(engine))])

    [again] = await engine.jobs.submit([a_new_job(id=job_id)])

    assert not again.created
    assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED


async def test_a_unique_key_holds_while_its_job_is_unfinished(engine: Engine, clock: FrozenClock) -> None:
    first = await submit_one(engine, unique_key="k")
    assert await submit_one(engine, unique_key="k") == first
    claim = await claim_one(engine)
    await engine.claims.report([a_report(claim, Outcome.FAIL)])
    assert await submit_one(engine, unique_key="k") == first, "retrying is unfinished"
    await clock.advance(MINUTE)
    await engine.duties.promote()

    await engine.claims.report([a_report(await claim_one(engine))])

    assert await submit_one(engine, unique_key="k") != first


@pytest.mark.parametrize("end", ["complete", "discard", "cancel"])
async def test_every_end_frees_the_key(engine: Engine, end: str) -> None:
    first = await submit_one(engine, unique_key="k")
    if end == "cancel":
        await engine.jobs.cancel(first)
    else:
        outcome = Outcome.COMPLETE if end == "complete" else Outcome.DISCARD
        await engine.claims.report([a_report(await claim_one(engine), outcome)])

    assert await submit_one(engine, unique_key="k") != first


async def test_a_windowed_key_holds_for_its_window_and_no_longer(engine: Engine, clock: FrozenClock) -> None:
    first = await submit_one(engine, unique_key="k", unique_window=MINUTE)
    await engine.claims.report([a_report(await claim_one(engine))])
    assert await submit_one(engine, unique_key="k", unique_window=MINUTE) == first

    await clock.advance(MINUTE)

    assert await submit_one(engine, unique_key="k", unique_window=MINUTE) != first


async def test_a_key_is_unique_within_its_topic_only(engine: Engine) -> None:
    assert await submit_one(engine, topic="a", unique_key="k") != await submit_one(engine, topic="b", unique_key="k")


async def test_the_same_key_twice_in_one_batch_is_one_job(engine: Engine, conn: Connection) -> None:
    answers = await engine.jobs.submit([a_new_job(unique_key="k"), a_new_job(unique_key="k"), a_new_job()])

    assert [answer.created for answer in answers].count(True) == 2
    assert answers[0].id == answers[1].id
    assert await count(conn) == 2


async def test_a_batch_with_one_bad_id_submits_nothing(engine: Engine, conn: Connection) -> None:
    with pytest.raises(InvalidInput):
        await engine.jobs.submit([a_new_job(), a_new_job(id=UUID(int=4095))])

    assert await count(conn) == 0


async def test_a_batch_may_span_topics(engine: Engine) -> None:
    answers = await engine.jobs.submit([a_new_job(topic=f"t{n}") for n in range(40)])

    assert len({answer.id for answer in answers}) == 40
    for n in range(40):
        assert len(await engine.claims.claim(f"t{n}", worker="w1", slots=5)) == 1


async def test_ten_thousand_at_once_and_not_one_more(engine: Engine, conn: Connection) -> None:
    assert len(await engine.jobs.submit([a_new_job()] * 10_000)) == 10_000

    with pytest.raises(BatchTooLarge, match="at most 10000 jobs, not 10001"):
        await engine.jobs.submit([a_new_job()] * 10_001)
    assert await count(conn) == 10_000


async def test_many_submitters_of_one_key_make_one_job(engine: Engine, conn: Connection) -> None:
    batches = [[a_new_job(unique_key=f"k{n}") for n in numbers] for numbers in (range(30), range(29, -1, -1))] * 4

    answers = await asyncio.gather(*(engine.jobs.submit(batch) for batch in batches))

    assert await count(conn) == 30
    assert sum(answer.created for batch in answers for answer in batch) == 30


async def test_a_large_payload_is_warned_about(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    await submit_one(engine, payload=json.dumps("x" * 300_000))

    assert "the payload of a mail job has 292 KiB" in caplog.text


# --- pulse.enqueue: the same from any language


async def enqueue(conn: Connection, task: str, args: object = None, **options: object) -> UUID:
    [row] = await conn.fetch("select pulse.enqueue($1, $2, $3)", task, json.dumps(args or {}), json.dumps(options))
    return UUID(str(row[0]))


async def test_sql_and_python_make_the_same_row(engine: Engine, conn: Connection, clock: FrozenClock) -> None:
    options: dict[str, Any] = {
        "topic": "urgent",
        "priority": 7,
        "max_attempts": 5,
        "unique_key": "k",
        "tags": ["blue"],
        "trace": {"traceparent": "x"},
    }
    lengths = {"delay": MINUTE, "timeout": 2 * MINUTE, "unique_window": 3 * MINUTE, "result_ttl": 4 * MINUTE}
    by_sql = await enqueue(
        conn,
        "mail",
        {"a": 1},
        **options,
        **{name: f"{int(length.total_seconds())}s" for name, length in lengths.items()},
        retry={"kind": "list", "delays": [1, 5]},
        deadline=(clock.instant + 9 * MINUTE).isoformat(),
    )
    sql_row = await engine.jobs.get(by_sql)
    await conn.execute("delete from pulse.jobs")

    by_python = await submit_one(
        engine,
        payload='{"a": 1}',
        **options | {"tags": ("blue",)},
        **lengths,
        retry=RetryPolicy(kind="list", delays=(1.0, 5.0)),
        deadline=clock.instant + 9 * MINUTE,
    )

    python_row = await engine.jobs.get(by_python)
    fields = {name for name in python_row.__struct_fields__ if name not in ("id", "retry")}
    assert {name: getattr(sql_row, name) for name in fields} == {name: getattr(python_row, name) for name in fields}
    assert bucket_of_id(by_sql) == bucket_of_id(by_python)


async def test_sql_enqueue_commits_and_rolls_back_with_its_transaction(
    engine: Engine, settings: Settings, conn: Connection
) -> None:
    async with open_connection(settings) as other:
        await other.execute("begin")
        gone = await enqueue(other, "mail")
        await other.execute("rollback")
        kept = await enqueue(other, "mail")

    assert gone != kept
    assert await count(conn) == 1
    assert [(row.topic, row.counts) for row in await engine.jobs.counts()] == [("mail", {JobStatus.PENDING: 1})]


async def test_sql_enqueue_is_idempotent_by_id_and_by_key(engine: Engine, conn: Connection) -> None:
    first = await enqueue(conn, "mail", unique_key="k")

    assert await enqueue(conn, "mail", unique_key="k") == first
    assert await enqueue(conn, "mail", id=str(first)) == first
    assert await submit_one(engine, unique_key="k") == first
    assert await count(conn) == 1


async def test_sql_enqueue_frees_a_key_whose_window_passed(conn: Connection, clock: FrozenClock) -> None:
    first = await enqueue(conn, "mail", unique_key="k", unique_window=60)
    await clock.advance(MINUTE)

    assert await enqueue(conn, "mail", unique_key="k") != first


async def test_a_delay_counts_from_the_statement_not_from_the_transaction(engine: Engine, settings: Settings) -> None:
    """now() would be the start of the caller's transaction, and the delay would shrink with its length."""
    async with open_connection(settings) as caller:
        await caller.execute("begin")
        await caller.fetch("select pg_sleep(0.3)")
        [row] = await caller.fetch("select pulse.enqueue('mail', '{}', '{\"delay\": 60}') as id, now() as began")
        await caller.execute("commit")

    job = await engine.jobs.get(row["id"])
    assert job.run_at - row["began"] >= timedelta(seconds=60.3)


# --- bad input


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"task": ""}, "task"),
    ({"task": "x" * 201}, "not 201"),
    ({"task": "a\nb"}, "must be printable text"),
    ({"topic": "*"}, "all topics"),
    ({"topic": "a\x01b"}, "must be printable text"),
    ({"priority": 101}, "-100 to 100"),
    ({"priority": -101}, "-100 to 100"),
    ({"priority": 1.5}, "whole number"),
    ({"max_attempts": 0}, "1 to 1000"),
    ({"max_attempts": 1001}, "1 to 1000"),
    ({"delay": -1}, "length of time"),
    ({"delay": 11 * 365 * 86400}, "ten years"),
    ({"delay": 1, "run_at": "2030-01-01T00:00:00Z"}, "must be left out where run_at is given"),
    ({"run_at": "2030-01-01T00:00:00"}, "time zone"),
    ({"run_at": "2099-01-01T00:00:00Z"}, "ten years"),
    ({"deadline": "2030-01-01T00:00:00"}, "time zone"),
    ({"timeout": 0}, "length of time"),
    ({"result_ttl": 0}, "length of time"),
    ({"unique_window": 5}, "unique_key"),
    ({"unique_key": ""}, "1 to 500"),
    ({"unique_key": "x" * 501}, "1 to 500"),
    ({"tags": ["a\x02"]}, "must be printable text"),
    ({"tags": ["x"] * 33}, "32"),
    ({"tags": [""]}, "tag"),
    ({"retry": {"kind": "sometimes"}}, "quadratic, exponential, fixed or list"),
    ({"retry": {"kind": "list"}}, "delays"),
    ({"id": "00000000-0000-0000-0000-000000000fff"}, "twelve bits"),
]


def _python_options(options: dict[str, Any]) -> dict[str, Any]:
    """The same options as Python's types."""
    given = dict(options)
    for name in ("delay", "timeout", "result_ttl", "unique_window"):
        if name in given:
            given[name] = timedelta(seconds=given[name])
    for name in ("run_at", "deadline"):
        if name in given:
            given[name] = datetime.fromisoformat(given[name])
    if "tags" in given:
        given["tags"] = tuple(given["tags"])
    if "retry" in given:
        given["retry"] = RetryPolicy(**given["retry"])
    if "id" in given:
        given["id"] = UUID(given["id"])
    return {"task": "mail"} | given


@pytest.mark.parametrize(("options", "says"), BAD_OPTIONS, ids=[str(options)[:40] for options, _ in BAD_OPTIONS])
async def test_python_refuses_bad_options(engine: Engine, conn: Connection, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        await engine.jobs.submit([NewJob(**_python_options(options))])

    assert await count(conn) == 0


@pytest.mark.parametrize(("options", "says"), BAD_OPTIONS, ids=[str(options)[:40] for options, _ in BAD_OPTIONS])
async def test_sql_refuses_bad_options(conn: Connection, options: dict[str, Any], says: str) -> None:
    given = dict(options)
    with pytest.raises(asyncpg.InvalidParameterValueError, match=says):
        await enqueue(conn, given.pop("task", "mail"), **given)

    assert await count(conn) == 0


@pytest.mark.parametrize(
    ("options", "says"), [({"pirority": 1}, "option must be one of .*, not 'pirority'"), ({"delay": "soon"}, "'soon'")]
)
async def test_sql_refuses_what_python_cannot_even_say(conn: Connection, options: dict[str, Any], says: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match=says):
        await enqueue(conn, "mail", **options)


async def test_sql_refuses_a_payload_over_the_limit(conn: Connection) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="1 MiB"):
        await enqueue(conn, "mail", "x" * (1 << 20))


@pytest.mark.parametrize("slots", [0, -1, 501])
async def test_absurd_slots_are_refused(engine: Engine, slots: int) -> None:
    with pytest.raises(InvalidOption, match="slots"):
        await engine.claims.claim("mail", worker="w1", slots=slots)
