"""Hot statements keep their index, whatever stands in the table and whatever the statistics say."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.jobs.low_water_marks import START
from pulse.model.ids import bucket_of_topic
from pulse.settings import Settings
from pulse.store.connections.pool import Database, connect_options
from pulse.store.schema.migrate import migrate
from pulse.store.statements import load_statements
from tests.conftest import recreate_database
from tests.factories import a_new_job

pytestmark = pytest.mark.slow

CROWD = 200_000  # of each kind: with so many, a walk through them would look dear
LEASE = timedelta(seconds=30)
LAST = UUID(int=(1 << 128) - 1)
EVER, NEVER = datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)
END = (101, EVER, LAST)  # of the order in which jobs are claimed

# Rows as a year of work leaves them. One statement for each kind, straight into the table.
FILL = """
insert into pulse.jobs (bucket, id, topic, task, payload, priority, max_attempts, submitted_at, run_at, status,
    ready_at, attempt, lease_id, locked_by, claimed_at, lease_until, finished_at)
select $1, pulse.make_id(now() - n * interval '1 millisecond', $1, gen_random_uuid()), $2, $2, '{"to": "ada"}', 0, 3,
    now() - interval '1 hour', now() + $5 * n * interval '1 second', $3,
    case when $3 = 'PENDING' then now() - n * interval '1 millisecond' end,
    1, 1, 'w1', now(),
    case when $3 = 'RUNNING' then now() + interval '1 hour' end,
    case when $3 in ('COMPLETED', 'DEAD_LETTERED') then now() - n * interval '1 millisecond' end
from generate_series(1, $4::int) as n
"""


async def fill(conn: Any, settings: Settings, topic: str, status: str, jobs: int) -> None:
    bucket = bucket_of_topic(topic, settings.buckets)
    due = 1 if status in ("SCHEDULED", "RETRYING") else -1
    await conn.execute(FILL, bucket, topic, status, jobs, due)


def make_settings(name: str) -> Settings:
    async def make() -> Settings:
        url = await recreate_database(name)
        settings = Settings(database_url=url, buckets=int(os.environ.get("PULSE_BUCKETS", "1")), notify=False)
        await migrate(settings)
        return settings

    return asyncio.run(make())


@pytest.fixture(scope="module")
def crowded(worker_id: str) -> Iterator[Settings]:
    """200k pending, 200k future, 200k finished and 10k running rows, of which Postgres has no statistics yet."""
    settings = make_settings(f"crowded_{worker_id}")

    async def prepare() -> None:
        conn = await asyncpg.connect(settings.database_url)
        await conn.execute("alter table pulse.jobs set (autovacuum_enabled = off)")
        for status, jobs in [("PENDING", CROWD), ("SCHEDULED", CROWD), ("COMPLETED", CROWD), ("RUNNING", 10_000)]:
            await fill(conn, settings, "mail", status, jobs)
        await fill(conn, settings, "mail", "DEAD_LETTERED", 1_000)
        await conn.execute("insert into pulse.counts values ($1, 'mail', 'COMPLETED', 200000)", 0)
        await conn.close()

    asyncio.run(prepare())
    yield settings


@pytest.fixture(scope="module")
def empty(worker_id: str) -> Iterator[Settings]:
    yield make_settings(f"empty_{worker_id}")


def calls(settings: Settings) -> dict[str, tuple[list[object], str]]:
    """Each hot statement with arguments, and the index on jobs it must use."""
    bucket = bucket_of_topic("mail", settings.buckets)
    ids, lease_ids = [LAST] * 100, [1] * 100
    return {
        "claim_jobs": ([bucket, "mail", ["w1"], 100, LEASE, *START], "jobs_claim"),
        "submit_claimed": ([bucket, LAST, "mail", "mail", "{}", 0, 3, *[None] * 6, "w1", LEASE, *START], "jobs_claim"),
        "heartbeat_jobs": ([bucket, ids, lease_ids, LEASE], "jobs_pkey"),
        "progress_jobs": ([bucket, ids, lease_ids, ["1"] * 100], "jobs_pkey"),
        "complete_jobs": ([bucket, ids, lease_ids, ["1"] * 100], "jobs_pkey"),
        "complete_free_jobs": ([bucket, ids, lease_ids, ["1"] * 100], "jobs_pkey"),
        "fail_jobs": ([bucket, ids, lease_ids, ["FAIL"] * 100, ["e"] * 100, [None] * 100, [None] * 100], "jobs_pkey"),
        "release_jobs": ([bucket, ids, lease_ids], "jobs_pkey"),
        "release_unheld": ([bucket, ["w1"], ids, lease_ids, NEVER, EVER], "jobs_running"),
        "find_own_claim": ([bucket, LAST, "w1"], "jobs_pkey"),
        "read_leases": ([bucket, ids], "jobs_pkey"),
        "promote_jobs": ([bucket, 100], "jobs_due"),
        "expire_jobs": ([bucket, 100], "jobs_deadline"),
        "reap_jobs": ([bucket, 100, EVER], "jobs_running"),
        "ids_to_promote": ([bucket, 100], "jobs_due"),
        "ids_to_expire": ([bucket, 100], "jobs_deadline"),
        "ids_to_reap": ([bucket, 100, EVER], "jobs_running"),
        "look_at_leases": ([[bucket], LEASE, LEASE, LEASE], "jobs_running"),
        "peek_duties": ([[bucket], True, True], "jobs_due"),
        "peek_jobs": ([[bucket]], "jobs_due"),
        "cancel_jobs": ([bucket, ids, "why"], "jobs_pkey"),
        "replay_jobs": ([bucket, ids, EVER], "jobs_pkey"),
        "run_jobs_now": ([bucket, ids], "jobs_pkey"),
        "prune_jobs": ([bucket, LEASE, LEASE, LEASE, 100], "jobs_finished"),
        "prune_results": ([bucket, 100], "jobs_result"),
        "get_jobs": ([bucket, ids], "jobs_pkey"),
        "get_job_heads": ([bucket, ids], "jobs_pkey"),
        "finished_ids": ([bucket, ids], "jobs_pkey"),
        "read_topics": ([bucket, ids], "jobs_pkey"),
        "list_newest": ([[bucket], LAST, "{}", 50, 50], "jobs_pkey"),
        "list_of_schedule": ([[bucket], LAST, LAST, "{}", 50, 50], "jobs_of_schedule"),
        "list_pending": ([bucket, "mail", *START, "{}", 50, 50], "jobs_claim"),
        "list_due": ([[bucket], NEVER, UUID(int=0), "{}", 50, 50], "jobs_due"),
        "list_running": ([[bucket], NEVER, UUID(int=0), "{}", 50, 50], "jobs_running"),
        "list_finished": ([bucket, "mail", "COMPLETED", EVER, LAST, "{}", 50, 50], "jobs_finished"),
        "list_all_pending": ([*START, "{}", 50, 50, 20_000], "jobs_claim"),
        "list_all_finished": (["COMPLETED", EVER, LAST, "{}", 50, 50, 20_000], "jobs_finished"),
        "list_dead": ([[bucket], EVER, LAST, "{}", 50, 50], "jobs_dead"),
        "count_ahead": ([bucket, "mail", *END, 10_001], "jobs_claim"),
        "count_behind": ([bucket, "mail", *START, 10_001], "jobs_claim"),
        "read_pace": ([bucket, "mail", LEASE, 1_000], "jobs_finished"),
        "is_row_free": ([bucket, LAST], "jobs_pkey"),
        "find_submitted": ([[bucket] * 10, [LAST] * 10, ["mail"] * 10, ["k"] * 10], "jobs_pkey"),
        "free_keys": ([[bucket] * 10, ["mail"] * 10, ["k"] * 10], "jobs_key"),
    }


NAMES = list(calls(Settings()))


@pytest.fixture
async def raw(crowded: Settings) -> AsyncIterator[Any]:
    """A connection with the engine's own plan settings."""
    conn = await asyncpg.connect(**connect_options(crowded))
    yield conn
    conn.terminate()


async def explain(conn: Any, name: str, values: list[object]) -> Any:
    """The generic plan, which is what a prepared statement keeps; a bare EXPLAIN would look at the values."""
    sql = load_statements("pulse")[name].sql.rstrip().rstrip(";")
    kinds = (await conn.prepare(sql)).get_parameters()
    literals = [
        await conn.fetchval(f"select quote_nullable($1::{kind.name}::text)", value)
        for kind, value in zip(kinds, values, strict=True)
    ]
    arguments = f"({', '.join(literals)})" if literals else ""
    await conn.execute(f"prepare hot as {sql}")
    text = await conn.fetchval(f"explain (format json) execute hot {arguments}")
    await conn.execute("deallocate hot")
    return json.loads(text)[0]["Plan"]


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def assert_plan(name: str, plan: dict[str, Any], index: str) -> None:
    """Rows of jobs are found through the index and reached by key or by place; never by reading or sorting all."""
    reads = [node for node in nodes(plan) if node.get("Relation Name") == "jobs" and "Scan" in node["Node Type"]]
    assert index in {node.get("Index Name") for node in reads}
    assert {node["Node Type"] for node in reads} <= {"Index Scan", "Index Only Scan", "Tid Scan"}
    for node in reads:  # a key is looked up whole: planned on an empty table, half of it would scan a full one
        if node.get("Index Name") == "jobs_pkey" and "list_newest" not in name:
            assert " id = " in node["Index Cond"].replace("(id", " id")
        if node.get("Index Name") == "jobs_key":
            assert "unique_key" in node["Index Cond"]
        if node.get("Index Name") == "jobs_claim":
            assert "ROW" in node["Index Cond"]
        assert node["Node Type"] == "Tid Scan" or "bucket" in node["Index Cond"]


@pytest.mark.parametrize("name", NAMES)
async def test_the_plan_with_a_crowded_table_and_no_statistics(raw: Any, crowded: Settings, name: str) -> None:
    values, index = calls(crowded)[name]

    assert_plan(name, await explain(raw, name, values), index)


@pytest.mark.parametrize("name", NAMES)
async def test_the_plan_with_an_empty_table(empty: Settings, name: str) -> None:
    conn = await asyncpg.connect(**connect_options(empty))
    values, index = calls(empty)[name]

    assert_plan(name, await explain(conn, name, values), index)

    conn.terminate()


@pytest.fixture(scope="module")
def tiny(worker_id: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """A few rows, and statistics that say so: walking the whole table has never looked cheaper."""
    settings = make_settings(f"tiny_{worker_id}")

    async def prepare() -> None:
        conn = await asyncpg.connect(settings.database_url)
        await fill(conn, settings, "mail", "PENDING", request.param)
        await conn.execute("vacuum analyze pulse.jobs")
        await conn.close()

    asyncio.run(prepare())
    yield settings


# One that is not locked beforehand is looked up by its key, and that costs what a walk through a single row costs.
BY_PLACE = [name for name in NAMES if name != "complete_jobs"]


@pytest.mark.parametrize(("tiny", "name"), [*product([0, 1], BY_PLACE), *product([4], NAMES)], indirect=["tiny"])
async def test_the_plan_with_a_tiny_table_and_statistics(tiny: Settings, name: str) -> None:
    """The plan is kept for as long as the statistics are, and the table may fill before they are renewed."""
    conn = await asyncpg.connect(**connect_options(tiny))
    values, index = calls(tiny)[name]

    assert_plan(name, await explain(conn, name, values), index)

    conn.terminate()


async def reads_of(call: str, settings: Settings) -> tuple[int, ...]:
    """What a call reads of jobs on a handler's own connection, whose plans are not pinned."""
    reads = "select seq_scan, idx_scan, idx_tup_fetch from pg_stat_xact_user_tables where relname = 'jobs'"
    conn = await asyncpg.connect(settings.database_url)
    async with conn.transaction():
        await conn.fetchval(f"select pulse.{call}", UUID(int=0))
        row = await conn.fetchrow(reads)
    await conn.close()
    return tuple(row or ())


@pytest.mark.parametrize("call", ["fence($1, 1)", "complete($1, 1)"])
async def test_a_handlers_own_connection_looks_up_one_row(crowded: Settings, call: str) -> None:
    assert await reads_of(call, crowded) == (0, 1, 0)


@pytest.mark.parametrize("call", ["fence($1, 1)", "complete($1, 1)"])
async def test_a_handlers_own_connection_plans_no_scan_of_an_empty_table(empty: Settings, call: str) -> None:
    """It would keep that plan when the table has filled."""
    conn = await asyncpg.connect(empty.database_url)
    await conn.execute("vacuum pulse.jobs")  # now Postgres knows that it is empty
    await conn.close()

    assert await reads_of(call, empty) == (0, 1, 0)


async def test_counts_do_not_look_at_jobs(raw: Any) -> None:
    plan = await explain(raw, "count_jobs", [])

    assert {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node} == {"counts", "tallies"}


async def test_the_plans_stay_with_statistics(raw: Any, crowded: Settings) -> None:
    admin = await asyncpg.connect(crowded.database_url)
    await admin.execute("analyze pulse.jobs")
    await admin.close()

    for name, (values, index) in calls(crowded).items():
        assert_plan(name, await explain(raw, name, values), index)


# --- what a claim touches


class Meter:
    """Buffers that statements on jobs touched, as Postgres counts them."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    async def __aenter__(self) -> Meter:
        self.admin: Any = await asyncpg.connect(self.settings.database_url)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.admin.close()

    async def per_claimed_job(self, jobs: int, **given: Any) -> float:
        """Claim so many jobs, a hundred at a time, with an engine of its own."""
        before = await self.touched()
        async with await Database.connect(replace(self.settings, pool_size=1)) as database:
            engine = Engine(database, buckets=self.settings.buckets)
            for _ in range(jobs // 100):
                assert len(await engine.claims.claim("mail", worker="w1", slots=100)) == 100
            await database.run(lambda conn: conn.execute("select pg_stat_force_next_flush()"))
        return (await self.touched() - before) / jobs

    async def touched(self) -> int:
        await self.admin.execute("select pg_stat_clear_snapshot()")
        return int(
            await self.admin.fetchval(
                "select heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read "
                "from pg_statio_user_tables where relname = 'jobs'"
            )
        )


async def submit(settings: Settings, jobs: int) -> None:
    async with await Database.connect(settings) as database:
        engine = Engine(database, buckets=settings.buckets)
        for _ in range(jobs // 5_000):
            await engine.jobs.submit([a_new_job()] * 5_000)


async def test_a_claim_touches_no_more_for_what_stands_beside_it(crowded: Settings, empty: Settings) -> None:
    await submit(empty, 10_000)
    async with Meter(empty) as alone, Meter(crowded) as beside:
        in_empty = await alone.per_claimed_job(10_000)
        in_crowded = await beside.per_claimed_job(10_000)

    assert in_crowded <= 1.5 * in_empty


async def test_a_claim_touches_no_more_while_an_old_snapshot_is_held(empty: Settings) -> None:
    """The dead entries at the head of the index cannot be cleared; the low-water mark starts behind them."""
    await submit(empty, 60_000)
    async with Meter(empty) as meter:
        unpinned = await meter.per_claimed_job(5_000)
        holder = await asyncpg.connect(empty.database_url)
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("select count(*) from pulse.jobs")
            pinned = await meter.per_claimed_job(50_000)
        await holder.close()

    assert pinned <= 1.5 * unpinned
