"""Hot statements on schedules keep their index, whatever stands in the tables and whatever the statistics say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from pulse.settings import Settings
from pulse.store.connections.pool import connect_options
from tests.store.test_plans import explain, make_settings, nodes

pytestmark = pytest.mark.slow

AN_ID = UUID(int=1)
NOW = datetime.now(UTC)
KEEP = timedelta(days=90)

FILL = """
insert into pulse.schedules (id, name, status, next_run_at, created_at, updated_at, kind, every, anchor, catch_up,
    replay_limit, overlap, task, topic, bucket, payload, priority, max_attempts)
select gen_random_uuid(), 'schedule ' || n, 'ACTIVE', now() + n * interval '1 minute', now(), now(), 'interval', '1h',
    now(), 'fire_once', 100, 'allow', 'mail', 'mail', 0, '{}', 0, 3
from generate_series(1, $1::int) as n
"""
LOG = """
insert into pulse.fires (schedule_id, occurrence, outcome, cause, logged_at, newest)
select id, now() - n * interval '1 hour', 'FIRED', 'timetable', now(), now()
from generate_series(1, $1::int) as n cross join lateral (
    select id from pulse.schedules where name = 'schedule ' || (n % 1000 + 1)
) as schedule
"""
ONE = [AN_ID]
PLAN = [ONE, [NOW], [NOW], ["ACTIVE"], [None], [None], [1], [NOW]]
FIRE = [ONE, [NOW], ONE, [None]]
NOTE = [ONE, [NOW], ["SKIPPED"], ["why"], [1], [NOW]]

# Each hot statement with arguments, and the indexes through which it must reach these tables.
CALLS: dict[str, tuple[list[Any], set[str]]] = {
    "due_schedules": ([100], {"schedules_due"}),
    "due_among": ([ONE], {"schedules_pkey"}),
    "unbuffered_schedules": ([100], {"schedules_buffered", "jobs_schedule"}),
    "peek_schedules": ([], {"schedules_due", "schedules_buffered"}),
    "peek_duties": ([[0], True, True], {"schedules_due", "schedules_buffered", "jobs_due", "jobs_deadline"}),
    "fire_regular": ([ONE, [NOW], [NOW], ONE], {"schedules_pkey"}),
    "fire_schedules": ([*PLAN, *FIRE, "timetable", *NOTE], {"schedules_pkey", "fires_pkey", "jobs_pkey"}),
    "taken_occurrences": ([ONE, ONE, [NOW]], {"jobs_pkey"}),
    "find_schedules": ([["schedule 1"], ONE], {"schedules_pkey", "schedules_name_key"}),
    "list_schedules": (["", None, None, None, None, None, 50], {"schedules_name_key"}),
    "search_schedules": (["", "", "z", None, None, None, None, None, 5_000, 50], {"schedules_name_key"}),
    "search_broken": (["", "", "z", None, None, None, 5_000, 50], {"schedules_broken"}),
    "next_schedules": ([NOW, 200], {"schedules_due"}),
    "last_fires": ([ONE, [NOW]], {"fires_pkey"}),
    "list_fires": ([AN_ID, NOW, "", 50], {"fires_pkey", "jobs_pkey"}),
    "list_of_schedule": ([[0], AN_ID, AN_ID, "{}", 50, 50], {"jobs_of_schedule"}),
    "fired_occurrences": ([AN_ID, [NOW]], {"fires_pkey"}),
    "prune_fires": ([AN_ID, 1_000, KEEP, 1_000], {"fires_pkey"}),
}
BY_KEY = {"Index Scan", "Index Only Scan", "Tid Scan", "Bitmap Index Scan", "Bitmap Heap Scan"}


def prepared(name: str, *, schedules: int, fires: int, statistics: bool) -> Settings:
    settings = make_settings(name)

    async def fill() -> None:
        conn = await asyncpg.connect(settings.database_url)
        for table in ("schedules", "fires"):
            await conn.execute(f"alter table pulse.{table} set (autovacuum_enabled = off)")
        await conn.execute(FILL, schedules)
        await conn.execute(LOG, fires)
        if statistics:
            await conn.execute("vacuum analyze pulse.schedules, pulse.fires, pulse.jobs")
        await conn.close()

    asyncio.run(fill())
    return settings


STATES: dict[str, dict[str, Any]] = {
    "empty": {"schedules": 0, "fires": 0, "statistics": False},
    "empty and analyzed": {"schedules": 0, "fires": 0, "statistics": True},
    "one and analyzed": {"schedules": 1, "fires": 1, "statistics": True},
    "crowded": {"schedules": 30_000, "fires": 60_000, "statistics": False},
    "crowded and analyzed": {"schedules": 30_000, "fires": 60_000, "statistics": True},
}


@pytest.fixture(scope="module", params=list(STATES))
def state(request: pytest.FixtureRequest, worker_id: str) -> Iterator[Settings]:
    yield prepared(f"schedule_plans_{worker_id}", **STATES[request.param])


@pytest.mark.parametrize("name", list(CALLS))
async def test_the_plan(state: Settings, name: str) -> None:
    values, indexes = CALLS[name]
    conn = await asyncpg.connect(**connect_options(state))
    try:
        plan = await explain(conn, name, values)
    finally:
        conn.terminate()

    tables = {"schedules", "fires", "jobs"}
    reads = [node for node in nodes(plan) if node.get("Relation Name") in tables and "Scan" in node["Node Type"]]
    assert {node["Node Type"] for node in reads} <= BY_KEY
    assert indexes <= {node.get("Index Name") for node in nodes(plan)}
    assert not [node for node in nodes(plan) if node["Node Type"] == "Sort" and name == "due_schedules"]
