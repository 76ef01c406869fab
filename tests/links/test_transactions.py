"""Do jobs commit and roll back with the caller's own work, whatever the caller's connection is?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import psycopg2.extras
import pytest
from django.db import IntegrityError
from django.db import transaction as django_transaction
from psycopg.rows import dict_row
from sqlalchemy import Column, Integer, MetaData, Table, exc
from sqlalchemy.ext.asyncio import async_scoped_session, async_sessionmaker
from sqlalchemy.orm import registry, scoped_session, sessionmaker

from pulse.engine.engine import Engine
from pulse.links.transactions import aenqueue_through, complete_through, enqueue_through, fence_through
from pulse.model.errors import (
    BatchTooLarge,
    InvalidInput,
    InvalidPayload,
    InvalidSettings,
    LeaseLost,
    PulseError,
    SchemaMismatch,
    TransactionFailed,
    UnknownConnection,
)
from pulse.model.jobs import JobStatus, Lease, NewJob, ReportStatus, RetryPolicy
from pulse.settings import Settings
from tests.clock import FrozenClock
from tests.factories import MINUTE, a_new_job, a_report, claim_one, lease_of, submit_one
from tests.links.kinds import KINDS, Alchemy, AsyncAlchemy, AsyncPsycopg, Kind, Psycopg, Psycopg2
from tests.waiting import connected, until

WORLD = "100% of :v1, $1, %s, %(v1)s, {0}, ? and 'é\"\\ 🦆"  # whatever any driver might take for a mark of its own


@pytest.fixture
async def onlooker(settings: Settings) -> AsyncIterator[Any]:
    """A connection that sees what was committed, and the caller's own table."""
    async with connected(settings.database_url) as conn:
        await conn.execute("create table if not exists orders (id int primary key)")
        yield conn
        await conn.execute("drop table orders")


async def opened(name: str, settings: Settings) -> Kind:
    kind = KINDS[name]()
    await kind.open(str(settings.database_url))
    return kind


@pytest.fixture(params=KINDS)
async def kind(request: pytest.FixtureRequest, settings: Settings, onlooker: Any) -> AsyncIterator[Kind]:
    kind = await opened(request.param, settings)
    yield kind
    await kind.close()


async def enqueue(kind: Kind, *jobs: NewJob, **options: Any) -> list[UUID]:
    through: Callable[..., Any] = aenqueue_through if kind.is_async else enqueue_through
    ids: list[UUID] = await kind.do(lambda: through(kind.conn, jobs, **options))
    return ids


async def fence(kind: Kind, lease: Lease) -> None:
    await kind.do(lambda: fence_through(kind.conn, lease))


async def complete(kind: Kind, lease: Lease, result: str) -> None:
    await kind.do(lambda: complete_through(kind.conn, lease, result))


async def seen(onlooker: Any) -> tuple[list[int], list[UUID]]:
    """The orders and the jobs that are committed."""
    orders = await onlooker.fetch("select id from orders order by id")
    jobs = await onlooker.fetch("select id from pulse.jobs order by id")
    return [row[0] for row in orders], [row[0] for row in jobs]


# --- every kind


async def test_a_commit_shows_the_job_together_with_the_callers_row(kind: Kind, onlooker: Any) -> None:
    await kind.begin()
    await kind.run("insert into orders values (1)")
    ids = await enqueue(kind, a_new_job())
    assert await seen(onlooker) == ([], [])

    await kind.commit()

    assert await seen(onlooker) == ([1], ids)


async def test_a_rollback_leaves_neither(kind: Kind, onlooker: Any) -> None:
    await kind.begin()
    await enqueue(kind, a_new_job())
    await kind.run("insert into orders values (1)")

    await kind.rollback()

    assert await seen(onlooker) == ([], [])


async def test_a_savepoint_undoes_only_the_job(kind: Kind, onlooker: Any) -> None:
    await kind.begin()
    await kind.run("insert into orders values (1)")
    kept = await enqueue(kind, a_new_job())
    undo = await kind.savepoint()
    await enqueue(kind, a_new_job())
    await undo()

    await kind.commit()

    assert await seen(onlooker) == ([1], kept)


async def test_many_at_once_keep_their_order_and_their_text(kind: Kind, engine: Engine) -> None:
    payloads = [json.dumps([number, WORLD]) for number in range(50)]
    await kind.begin()
    ids = await enqueue(kind, *[a_new_job(payload=payload) for payload in payloads])
    await kind.commit()

    claims = await engine.claims.claim("mail", worker="w1", slots=50)

    assert [claim.id for claim in claims] == ids == sorted(ids)
    assert [json.loads(claim.payload) for claim in claims] == [json.loads(payload) for payload in payloads]


async def test_a_held_unique_key_answers_with_the_first_job(kind: Kind, engine: Engine) -> None:
    first = await submit_one(engine, unique_key="k")

    await kind.begin()
    ids = await enqueue(kind, a_new_job(unique_key="k"), a_new_job(unique_key="l"), a_new_job(unique_key="l"))
    await kind.commit()

    assert ids[0] == first
    assert ids[1] == ids[2] != first


async def test_a_fenced_claim_stands_until_the_transaction_ends(
    kind: Kind, engine: Engine, clock: FrozenClock, onlooker: Any
) -> None:
    await submit_one(engine)
    lease = lease_of(await claim_one(engine))
    await kind.begin()
    await fence(kind, lease)
    await clock.advance(MINUTE)
    assert await engine.duties.reap() == 0, "the lease has run out, but the row is held"
    await kind.run("insert into orders values (1)")
    await kind.commit()
    assert await engine.duties.reap() == 1

    await kind.begin()
    with pytest.raises(LeaseLost, match=str(lease.id)):
        await fence(kind, lease)
    await kind.rollback()

    assert (await seen(onlooker))[0] == [1]


async def test_a_completion_commits_and_rolls_back_with_the_callers_row(
    kind: Kind, engine: Engine, onlooker: Any
) -> None:
    job_id = await submit_one(engine)
    claim = await claim_one(engine)
    for end in (kind.rollback, kind.commit):
        assert (await engine.jobs.get(job_id)).status is JobStatus.RUNNING
        await kind.begin()
        await kind.run("insert into orders values (1)")
        await complete(kind, lease_of(claim), json.dumps(WORLD))
        await end()

    job = await engine.jobs.get(job_id)
    assert (job.status, json.loads(job.result or "")) == (JobStatus.COMPLETED, WORLD)
    assert (await seen(onlooker))[0] == [1]
    assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ALREADY]
    await kind.begin()
    with pytest.raises(LeaseLost):
        await complete(kind, lease_of(claim), "1")
    await kind.rollback()


async def test_a_transaction_that_has_failed_is_named(kind: Kind, engine: Engine, onlooker: Any) -> None:
    await submit_one(engine)
    lease = lease_of(await claim_one(engine))
    await kind.begin()
    with pytest.raises(Exception, match="division by zero"):
        await kind.run("select 1 / 0")

    with pytest.raises(TransactionFailed, match="already failed: roll it back first"):
        await enqueue(kind, a_new_job())
    with pytest.raises(TransactionFailed):
        await fence(kind, lease)
    with pytest.raises(TransactionFailed):
        await complete(kind, lease, "1")

    await kind.rollback()


async def test_what_the_database_refuses_is_said_in_its_words(kind: Kind) -> None:
    await kind.begin()
    with pytest.raises(
        InvalidInput, match=r"^id must be a uuid whose last twelve bits are .*, the bucket of topic 'mail', not 0.*fff$"
    ) as refused:
        await enqueue(kind, a_new_job(id=UUID(int=4095)))
    await kind.rollback()

    assert type(refused.value) is InvalidInput
    assert refused.value.__cause__ is not None


async def test_a_missing_schema_says_to_migrate(kind: Kind) -> None:
    await kind.begin()
    with pytest.raises(SchemaMismatch, match=r"schema 'nowhere' is missing.*run `pulse migrate`"):
        await enqueue(kind, a_new_job(), schema="nowhere")
    await kind.rollback()


async def test_other_errors_stay_the_callers_own(kind: Kind, onlooker: Any) -> None:
    """Here a lock that is not to be had; the caller may well have a handler for just that."""
    blocker = onlooker.transaction()
    await blocker.start()
    await onlooker.execute("lock table pulse.jobs in access exclusive mode")
    await kind.begin()
    await kind.run("set local lock_timeout = '10ms'")

    with pytest.raises(Exception, match="lock timeout") as raised:
        await enqueue(kind, a_new_job())

    await blocker.rollback()
    await kind.rollback()
    assert not isinstance(raised.value, PulseError)


@pytest.mark.parametrize("name", ["psycopg", "psycopg async", "psycopg2", "asyncpg", "Django"])
async def test_without_a_transaction_each_call_is_one(name: str, settings: Settings, onlooker: Any) -> None:
    kind = await opened(name, settings)
    if isinstance(kind, AsyncPsycopg):
        await kind.conn.set_autocommit(True)
    elif isinstance(kind, Psycopg | Psycopg2):
        kind.conn.autocommit = True

    ids = await enqueue(kind, a_new_job())

    assert await seen(onlooker) == ([], ids)
    await kind.close()


@pytest.mark.parametrize("name", ["psycopg", "psycopg async", "psycopg2", "asyncpg"])
async def test_a_closed_connection_is_told_by_its_driver(name: str, settings: Settings) -> None:
    kind = await opened(name, settings)
    await kind.close()

    with pytest.raises((psycopg.OperationalError, psycopg2.InterfaceError, asyncpg.InterfaceError), match="closed"):
        await enqueue(kind, a_new_job())


@pytest.mark.parametrize("name", [name for name, make in KINDS.items() if not make().is_async and name != "Django"])
async def test_asynchronous_code_may_use_a_synchronous_connection(name: str, settings: Settings, onlooker: Any) -> None:
    kind = await opened(name, settings)
    await kind.begin()
    ids = await aenqueue_through(kind.conn, [a_new_job()])
    await kind.commit()

    assert await seen(onlooker) == ([], ids)
    await kind.close()


@pytest.mark.parametrize("name", [name for name, make in KINDS.items() if make().is_async])
async def test_synchronous_code_is_told_what_to_use_for_an_asynchronous_connection(
    name: str, settings: Settings
) -> None:
    kind = await opened(name, settings)

    with pytest.raises(InvalidInput, match="asynchronous connection: use aenqueue"):
        enqueue_through(kind.conn, [a_new_job()])

    await kind.close()


# --- connections that their owners have set up in their own way


class _Subclass(psycopg.Connection[Any]):
    pass


async def test_the_callers_rows_and_cursors_of_psycopg_do_not_matter(settings: Settings, onlooker: Any) -> None:
    with _Subclass.connect(str(settings.database_url), row_factory=dict_row, cursor_factory=psycopg.RawCursor) as conn:
        ids = enqueue_through(conn, [a_new_job(), a_new_job()])
        conn.commit()

    async with await psycopg.AsyncConnection.connect(
        str(settings.database_url), row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor
    ) as aconn:
        ids += await aenqueue_through(aconn, [a_new_job()])
        await aconn.commit()

    assert await seen(onlooker) == ([], ids)


async def test_the_callers_rows_of_psycopg2_do_not_matter(settings: Settings, onlooker: Any) -> None:
    conn = psycopg2.connect(settings.database_url, cursor_factory=psycopg2.extras.RealDictCursor)
    ids = enqueue_through(conn, [a_new_job()])
    conn.commit()
    conn.close()

    assert await seen(onlooker) == ([], ids)


async def test_the_callers_codecs_of_asyncpg_do_not_matter(settings: Settings, engine: Engine) -> None:
    async with connected(settings.database_url) as conn:
        for name in ("json", "jsonb", "uuid"):
            await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        [job_id] = await aenqueue_through(conn, [a_new_job(payload='{"a": 1}')])
        claim = await claim_one(engine)
        await fence_through(conn, lease_of(claim))
        await complete_through(conn, lease_of(claim), '{"b": 2}')

    job = await engine.jobs.get(job_id)
    assert (json.loads(job.payload), json.loads(job.result or "")) == ({"a": 1}, {"b": 2})


async def test_scoped_sessions_are_sessions(settings: Settings, onlooker: Any) -> None:
    kinds = [
        Alchemy("psycopg", lambda engine: scoped_session(sessionmaker(engine))),
        AsyncAlchemy("asyncpg", lambda engine: async_scoped_session(async_sessionmaker(engine), asyncio.current_task)),
    ]
    ids: list[UUID] = []
    for kind in kinds:
        await kind.open(str(settings.database_url))
        ids += await enqueue(kind, a_new_job())
        await kind.commit()
        await kind.close()

    assert await seen(onlooker) == ([], ids)


class _Traced:
    """How tracing wraps a connection: another type, that calls itself what it wraps."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


async def test_a_wrapped_connection_is_what_it_wraps(settings: Settings, onlooker: Any) -> None:
    kind = await opened("psycopg2", settings)
    ids = enqueue_through(_Traced(kind.conn), [a_new_job()])
    await kind.commit()

    assert await seen(onlooker) == ([], ids)
    await kind.close()


async def test_a_session_that_waits_for_its_rollback_is_named(settings: Settings, onlooker: Any) -> None:
    """A flush that failed: SQLAlchemy does not even ask the database any more."""

    class Order:
        id: int

    registry().map_imperatively(Order, Table("orders", MetaData(), Column("id", Integer, primary_key=True)))
    await onlooker.execute("insert into orders values (1)")
    kind = await opened("Session over psycopg", settings)
    order = Order()
    order.id = 1
    kind.conn.add(order)
    with pytest.raises(exc.IntegrityError):
        kind.conn.flush()

    with pytest.raises(TransactionFailed):
        enqueue_through(kind.conn, [a_new_job()])

    kind.conn.rollback()
    assert len(enqueue_through(kind.conn, [a_new_job()])) == 1
    await kind.close()


async def test_an_atomic_block_that_must_roll_back_is_named(settings: Settings, onlooker: Any) -> None:
    await onlooker.execute("insert into orders values (1)")
    kind = await opened("Django", settings)
    await kind.begin()

    def fail() -> None:
        with django_transaction.atomic(savepoint=False), kind.conn.cursor() as cursor:
            cursor.execute("insert into orders values (1)")

    with pytest.raises(IntegrityError):
        await kind.do(fail)
    with pytest.raises(TransactionFailed):
        await enqueue(kind, a_new_job())

    await kind.rollback()
    await kind.close()


async def test_what_is_no_connection_is_named_with_what_would_be(settings: Settings) -> None:
    kind = await opened("Connection over psycopg", settings)
    assert isinstance(kind, Alchemy)
    for given, name in [(kind.engine, "sqlalchemy.engine.base.Engine"), ("postgresql://", "builtins.str")]:
        with pytest.raises(UnknownConnection, match=rf"^{name} is not .* psycopg2 or asyncpg, a Session"):
            enqueue_through(given, [a_new_job()])
        with pytest.raises(UnknownConnection):
            await aenqueue_through(given, [a_new_job()])
        with pytest.raises(UnknownConnection):
            await fence_through(given, Lease(UUID(int=1), 1))
    await kind.close()


# --- the same job as by any other way


async def test_the_row_is_the_one_that_submit_makes(engine: Engine, clock: FrozenClock, onlooker: Any) -> None:
    given: dict[str, Any] = {
        "payload": '{"a": [1.50, "é"]}',
        "topic": "urgent",
        "priority": 7,
        "run_at": clock.instant + MINUTE,
        "max_attempts": 5,
        "retry": RetryPolicy(kind="list", delays=(1.0, 5.5)),
        "timeout": timedelta(days=3650, microseconds=1),
        "deadline": clock.instant + 9 * MINUTE,
        "unique_key": "k",
        "unique_window": timedelta(milliseconds=1),
        "result_ttl": 4 * MINUTE,
        "tags": ("blue", "red"),
        "trace": {"traceparent": "x"},
    }
    assert {"task", "id", "delay", *given} == set(NewJob.__struct_fields__), "a field that is not tried here"
    by_submit = await engine.jobs.get(await submit_one(engine, **given))
    await onlooker.execute("delete from pulse.jobs")

    [same_id] = await aenqueue_through(onlooker, [a_new_job(id=by_submit.id, **given)])
    [delayed] = await aenqueue_through(onlooker, [a_new_job(delay=2.5 * MINUTE)])

    assert await engine.jobs.get(same_id) == by_submit
    job = await engine.jobs.get(delayed)
    assert (job.run_at, job.topic) == (clock.instant + 2.5 * MINUTE, "mail")


async def test_a_wake_up_leaves_with_the_commit_unless_told_not_to(settings: Settings, onlooker: Any) -> None:
    heard: list[object] = []
    await onlooker.add_listener('"pulse".notify', lambda *told: heard.append(told[-1]))
    async with connected(settings.database_url) as conn:
        await aenqueue_through(conn, [a_new_job(topic="quiet")], notify=False)
        await aenqueue_through(conn, [a_new_job(topic="loud", priority=3)] * 2)

    async def has_heard() -> bool:
        await onlooker.execute("select 1")
        return bool(heard)

    await until(has_heard)
    assert heard == ["3 loud"]


async def test_what_can_be_refused_here_does_not_cost_the_transaction(engine: Engine, onlooker: Any) -> None:
    await submit_one(engine)
    lease = lease_of(await claim_one(engine))
    async with onlooker.transaction():
        with pytest.raises(BatchTooLarge):
            await aenqueue_through(onlooker, [a_new_job()] * 10_001)
        with pytest.raises(InvalidPayload, match="result is not JSON"):
            await complete_through(onlooker, lease, "not JSON")
        with pytest.raises(InvalidSettings, match="schema"):
            await fence_through(onlooker, lease, schema='p"%s')
        assert await aenqueue_through(onlooker, []) == []
        await fence_through(onlooker, lease)
