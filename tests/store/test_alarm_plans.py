"""Hot statements on alarms keep their index, whatever stands in the tables and whatever the statistics say."""

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
from pulse.store.statements import load_statements
from tests.store.test_plans import explain, make_settings, nodes

pytestmark = pytest.mark.slow

LAST = UUID(int=(1 << 128) - 1)
LAST_DELIVERY = (1 << 63) - 1
NOW = datetime.now(UTC)
SECOND, KEEP = timedelta(seconds=1), timedelta(days=90)

# Alarms of one kind. Those that are not in the future are due, ready, leased, or finished.
FILL = """
insert into pulse.alarms (id, owner, fingerprint, kind, payload, url, destination, max_failures, occurrence, status,
    next_fire_at, ready_at, lease_until, finished_at, created_at, updated_at)
select gen_random_uuid(), 'owner ' || n % $4::int, '', 'once', '{}', 'http://a/', 'http://' || n % $3::int, 5, now(),
    case when $1 = 'finished' then 'fired' else 'active' end,
    case when $1 = 'future' then now() + n * interval '1 minute'
        when $1 <> 'finished' then now() - n * interval '1 ms' end,
    case when $1 in ('ready', 'leased') then now() end,
    case when $1 = 'leased' then now() + n * interval '1 s' end,
    case when $1 = 'finished' then now() - n * interval '1 minute' end,
    now(), now()
from generate_series(1, $2::int) as n
"""
LOG = """
insert into pulse.deliveries (alarm_id, lease_id, occurrence, attempt, outcome, started_at, duration, answer)
select id, 1, now(), 1, 'delivered', now(), '1 ms', 'thanks' from pulse.alarms limit $1::int
"""
WAKE = [[LAST], [1], ["fired"], [NOW], [None], [0], [None], ["delivered"], [NOW], [1], [SECOND], [SECOND], [200], [""]]

# Each hot statement with arguments, and the indexes through which it must reach these tables.
CALLS: dict[str, tuple[list[Any], set[str]]] = {
    "peek_alarms": ([], {"alarms_due", "alarms_leased", "alarms_turns"}),
    "peek_duties": ([[0], True, True], {"alarms_due", "alarms_leased", "alarms_turns"}),
    "ready_alarms": ([2_000], {"alarms_due"}),
    "expire_alarms": ([2_000], {"alarms_leased"}),
    "ready_owners": (["", 200], {"alarms_turns"}),
    "ready_turns": ([["owner 1", "owner 2"], ["", "http://1"], 100], {"alarms_turns"}),
    "claim_alarms": ([["owner 1", "owner 2"], ["http://1", "http://2"], [5, 5], SECOND], {"alarms_turns"}),
    "record_wakes": ([*WAKE, [None]], {"alarms_pkey"}),
    "log_late": ([[LAST], [1], [1], ["failed"], [NOW], [1], [SECOND], [SECOND], [200], [None], [""]], {"alarms_pkey"}),
    "held_wakes": ([[LAST], [1]], {"alarms_pkey"}),
    "release_alarms": ([[LAST], [1]], {"alarms_pkey"}),
    "defer_alarms": ([["owner 1"], ["http://1"], [SECOND], ["down"], 2_000], {"alarms_turns"}),
    "list_alarms": (["owner 1", LAST, None, None, None, 50], {"alarms_owner"}),
    "list_all_alarms": ([LAST, None, None, None, 50], {"alarms_pkey"}),
    "search_alarms": ([LAST, None, None, None, 5_000, 50], {"alarms_pkey"}),
    "search_owned": (["owner 1", LAST, None, None, None, 5_000, 50], {"alarms_owner"}),
    "search_failed": ([NOW, LAST, None, None, 5_000, 50], {"alarms_failed"}),
    "search_failing": ([NOW, LAST, None, None, 5_000, 50], {"alarms_failing"}),
    "read_alarms": ([[LAST]], {"alarms_pkey"}),
    "list_deliveries": ([LAST, LAST_DELIVERY, 50], {"deliveries_pkey"}),
    "prune_alarms": ([KEEP, KEEP, 1_000], {"alarms_finished", "deliveries_pkey", "deliveries_age"}),
    "find_alarm": (["owner 1", "n"], {"alarms_name"}),
    "find_by_key": (["owner 1", "k"], {"alarms_key"}),
}
BY_KEY = {"Index Scan", "Index Only Scan", "Tid Scan"}


def prepared(name: str, *, alarms: int, statistics: bool) -> Settings:
    """So many of each kind."""
    settings = make_settings(name)

    async def fill() -> None:
        conn = await asyncpg.connect(settings.database_url)
        for table in ("alarms", "deliveries"):
            await conn.execute(f"alter table pulse.{table} set (autovacuum_enabled = off)")
        for kind in ("future", "due", "ready", "leased", "finished"):
            await conn.execute(FILL, kind, alarms, 100, 100)
        await conn.execute(LOG, alarms)
        if statistics:
            await conn.execute("vacuum analyze pulse.alarms, pulse.deliveries, pulse.jobs")
        await conn.close()

    asyncio.run(fill())
    return settings


STATES: dict[str, dict[str, Any]] = {
    "empty": {"alarms": 0, "statistics": False},
    "empty and analyzed": {"alarms": 0, "statistics": True},
    "one and analyzed": {"alarms": 1, "statistics": True},
    "crowded": {"alarms": 20_000, "statistics": False},
    "crowded and analyzed": {"alarms": 20_000, "statistics": True},
}


@pytest.fixture(scope="module", params=list(STATES))
def state(request: pytest.FixtureRequest, worker_id: str) -> Iterator[Settings]:
    yield prepared(f"alarm_plans_{worker_id}", **STATES[request.param])


@pytest.mark.parametrize("name", list(CALLS))
async def test_the_plan(state: Settings, name: str) -> None:
    values, indexes = CALLS[name]
    conn = await asyncpg.connect(**connect_options(state))
    try:
        plan = await explain(conn, name, values)
    finally:
        conn.terminate()

    tables = {"alarms", "deliveries"}
    reads = [node for node in nodes(plan) if node.get("Relation Name") in tables and "Scan" in node["Node Type"]]
    assert {node["Node Type"] for node in reads} <= BY_KEY
    assert indexes <= {node.get("Index Name") for node in nodes(plan)}
    sorts = [node for node in nodes(plan) if node["Node Type"] == "Sort"]
    assert not [node for node in sorts if node["Plans"][0].get("Relation Name") == "alarms"]
    if not name.startswith("search_"):  # which sort what they have scanned, a bounded number
        assert not sorts
    for node in reads:  # a key is looked up, and not the whole index read
        if node.get("Index Name") in (
            "alarms_pkey",
            "deliveries_pkey",
            "alarms_owner",
            *(["alarms_turns"] if name in ("ready_turns", "claim_alarms", "defer_alarms") else []),
            "alarms_failed",
            "alarms_failing",
        ):
            assert "Index Cond" in node


# --- with a hundred thousand ready, of one destination

CROWD = 100_000


@pytest.fixture(scope="module")
def one_crowd(worker_id: str) -> Iterator[Settings]:
    """One owner has all of them, at one destination but for three. Nobody has told the planner."""
    settings = make_settings(f"alarm_crowd_{worker_id}")

    async def fill() -> None:
        conn = await asyncpg.connect(settings.database_url)
        await conn.execute("alter table pulse.alarms set (autovacuum_enabled = off)")
        await conn.execute(FILL, "ready", CROWD, 1, 1)
        await conn.execute("update pulse.alarms set destination = 'http://' || n from (select id, row_number() over "
                           "(order by id) as n from pulse.alarms limit 3) as few where few.id = alarms.id")  # fmt: skip
        await conn.execute(FILL, "ready", 2, 1, 100)  # one each of owners 1 and 2
        await conn.close()

    asyncio.run(fill())
    yield settings


async def actual(settings: Settings, name: str, *values: object) -> tuple[list[dict[str, Any]], int]:
    """The nodes of the plan as it ran, and the pages it touched; undone afterwards."""
    conn = await asyncpg.connect(**connect_options(settings))
    await conn.set_type_codec("json", encoder=str, decoder=_decode, schema="pg_catalog")
    transaction = conn.transaction()
    await transaction.start()
    try:
        sql = load_statements("pulse")[name].sql.rstrip().rstrip(";")
        found = await conn.fetchval(f"explain (analyze, buffers, format json) {sql}", *values)
    finally:
        await transaction.rollback()
        conn.terminate()
    plan = found[0]["Plan"]
    return nodes(plan), plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def _decode(text: str) -> Any:
    import json

    return json.loads(text)


def rows_read(scans: list[dict[str, Any]]) -> int:
    """Before Postgres 18 the rows of a loop are a mean, rounded to a whole number: then one may be too many."""
    total: float = sum(node["Actual Rows"] * node["Actual Loops"] for node in scans)
    is_rounded = any(isinstance(node["Actual Rows"], int) and node["Actual Loops"] > 1 for node in scans)
    return int(total) - is_rounded


async def test_looking_for_destinations_takes_a_step_for_each_however_many_alarms_it_has(one_crowd: Settings) -> None:
    found, pages = await actual(one_crowd, "ready_turns", ["owner 0"], [""], 200)

    scans = [node for node in found if node.get("Index Name") == "alarms_turns"]
    assert rows_read(scans) == 4
    assert pages < 100


async def test_looking_for_owners_takes_a_step_for_each_however_many_alarms_it_has(one_crowd: Settings) -> None:
    found, pages = await actual(one_crowd, "ready_owners", "", 200)

    scans = [node for node in found if node.get("Index Name") == "alarms_turns"]
    assert rows_read(scans) == 3
    assert pages < 100


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("peek_alarms", []),
        ("claim_alarms", [["owner 0", "owner 0"], ["http://0", "http://1"], [50, 50], SECOND]),
        ("defer_alarms", [["owner 0"], ["http://0"], [SECOND], ["down"], 50]),
    ],
)
async def test_a_crowd_is_not_read_through(one_crowd: Settings, name: str, values: list[object]) -> None:
    found, pages = await actual(one_crowd, name, *values)

    scans = [node for node in found if node.get("Index Name") == "alarms_turns"]
    assert rows_read(scans) <= 51
    assert not [node for node in found if node["Node Type"] == "Seq Scan"]
    assert pages < 3_000
