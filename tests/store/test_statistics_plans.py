"""Figures are read through their indexes, and never by counting jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse.settings import Settings
from pulse.store.connections.pool import connect_options
from tests.store.test_plans import explain, fill, make_settings, nodes

pytestmark = pytest.mark.slow

SERIES = """
insert into pulse.series (bucket, span, topic, at, event, took, jobs, seconds)
select 0, span, 'topic ' || topic, now() - n * interval '1 minute', 'completed', 1, 1, 1
from unnest(array['minute', 'quarter', 'hour']) as span, generate_series(1, 200) as topic, generate_series(1, 60) as n
"""
EVER = """
insert into pulse.series (bucket, span, topic, at, event, took, jobs, seconds)
select 0, 'ever', 'topic ' || topic, 'epoch', 'completed', took, 1, 1
from generate_series(1, 200) as topic, generate_series(0, 18) as took
"""
NOW = datetime.now(UTC)
SMALL = {"counts", "tallies"}  # which are read whole
# Each statement with arguments, the tables it may read at all, and the indexes it must go by.
CALLS: dict[str, tuple[list[Any], set[str], set[str]]] = {
    "read_series": ([[0], "minute", "topic 1", NOW], {"series"}, {"series_pkey"}),
    "read_recent": ([[0]], {"series"}, {"series_age"}),
    "prune_series": ([0, 1_000], {"series"}, {"series_age"}),
    "forget_series": ([[0], 1_000], {"series", "counts", "tallies"}, {"series_pkey"}),
    "oldest_pending": ([[0], ["mail"]], {"jobs"}, {"jobs_claim"}),
    "recent_tasks": ([[0], ["mail"], 20], {"jobs"}, {"jobs_claim", "jobs_finished"}),
    "read_concerns": (
        [],
        {"schedules", "alarms"},
        {"schedules_broken", "schedules_due", "alarms_failing", "alarms_failed", "alarms_due"},
    ),
    "find_session": ([b"x", timedelta(hours=1)], {"sessions"}, {"sessions_pkey"}),
}


@pytest.fixture(scope="module", params=["full", "empty"])
def filled(worker_id: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    settings = make_settings(f"figures_{request.param}_{worker_id}")

    async def prepare() -> None:
        conn = await asyncpg.connect(settings.database_url)
        if request.param == "full":
            await conn.execute(SERIES)
            await conn.execute(EVER)
            await fill(conn, settings, "mail", "PENDING", 20_000)
        await conn.execute("vacuum analyze")
        await conn.close()

    asyncio.run(prepare())
    yield settings


@pytest.mark.parametrize("name", list(CALLS))
async def test_figures_are_read_by_their_index(filled: Settings, name: str) -> None:
    values, tables, indexes = CALLS[name]
    conn = await asyncpg.connect(**connect_options(filled))
    plan = await explain(conn, name, values)
    conn.terminate()

    reads = [node for node in nodes(plan) if "Relation Name" in node and "Scan" in node["Node Type"]]
    assert {node["Relation Name"] for node in reads} == tables
    reads = [node for node in reads if node["Relation Name"] not in SMALL]
    assert {node["Index Name"] for node in reads if "Index Name" in node} == indexes
    assert {node["Node Type"] for node in reads} <= {"Index Scan", "Index Only Scan", "Tid Scan"}


async def test_a_backlog_of_tallies_is_not_read_again_for_every_row(filled: Settings) -> None:
    conn = await asyncpg.connect(**connect_options(filled))
    await conn.execute(
        "insert into pulse.tallies (bucket, topic, to_status, jobs, moved_at) "
        "select 0, 'mail', 'PENDING', 1, now() from generate_series(1, 300000)"
    )
    await conn.execute("analyze pulse.tallies")
    plan = await explain(conn, "forget_series", [[0], 1_000])
    await conn.execute("truncate pulse.tallies")
    await conn.execute("analyze pulse.tallies")
    conn.terminate()

    filters = [node["Filter"] for node in nodes(plan) if "SubPlan" in node.get("Filter", "")]
    assert all("hashed SubPlan" in each for each in filters)


async def test_totals_do_not_look_at_jobs(filled: Settings) -> None:
    conn = await asyncpg.connect(**connect_options(filled))
    plan = await explain(conn, "read_totals", [[0]])
    conn.terminate()

    assert "series_pkey" in {node.get("Index Name") for node in nodes(plan)}
    assert {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node} == {"series", "tallies"}
