"""Can each role of the documents do its work, and nothing beyond it? The SQL is that of the page, word for word."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import asyncpg
import msgspec
import pytest

from pulse.engine.engine import Engine, open_engine
from pulse.links.alarm_transactions import aset_alarm_through
from pulse.model.alarms import AlarmFilter, NewAlarm
from pulse.model.errors import PulseError
from pulse.model.explain.facts import Reason
from pulse.model.jobs import JobStatus, Outcome, ReportStatus
from pulse.model.list_filters import AlarmSearch
from pulse.settings import Settings
from pulse.store.schema.migrate import migrate
from tests.conftest import SERVER, migrate_up_to, recreate_database
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one
from tests.waiting import connected

PAGE = (Path(__file__).parents[2] / "docs" / "operations" / "database-roles.md").read_text()
ROLES = ("pulse_owner", "pulse_runtime", "pulse_enqueue", "pulse_read", "pulse_scaler")
HIDDEN_TABLES = {"tokens", "wake_secrets", "wake_generations", "sessions", "secrets", "alarms"}  # or a part of it
Refused = asyncpg.InsufficientPrivilegeError


class House(NamedTuple):
    """A database with the schema and the roles of the page. Roles are the server's: each process has its own."""

    url: str
    suffix: str

    def settings(self, role: str) -> Settings:
        return Settings(database_url=_as_role(self.url, f"{role}{self.suffix}"))


def _as_role(url: str, role: str) -> str:
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


@pytest.fixture(scope="module")
def house(worker_id: str) -> Iterator[House]:
    suffix = f"_{worker_id}_{os.getpid()}"
    name = f"roles_{worker_id}"
    make_roles, grant = (_ours(block, suffix, name) for block in re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL))

    async def build() -> House:
        house = House(await recreate_database(name), suffix)
        await execute(house.url, make_roles)
        await migrate(house.settings("pulse_owner"))
        owner = house.settings("pulse_owner").database_url
        await execute(owner, grant)
        await execute(owner, grant)  # the page says that it can be run again
        return house

    yield asyncio.run(build())
    asyncio.run(tear_down(name, [f"{role}{suffix}" for role in ROLES]))


def _ours(sql: str, suffix: str, database: str) -> str:
    sql = re.sub(rf"\b({'|'.join(ROLES)})\b", rf"\1{suffix}", sql)
    return sql.replace("on database app ", f"on database {database} ")


async def execute(url: str | None, sql: str) -> None:
    async with connected(url) as conn:
        await conn.execute(sql)


async def tear_down(database: str, roles: list[str]) -> None:
    async with connected(os.environ[SERVER]) as conn:
        await conn.execute(f"drop database if exists {database} with (force)")
        for role in roles:
            await conn.execute(f"drop role if exists {role}")


async def tables(house: House) -> set[str]:
    async with connected(house.url) as conn:
        rows = await conn.fetch("select tablename from pg_tables where schemaname = 'pulse'")
    return {row["tablename"] for row in rows}


async def allowed(house: House, role: str) -> set[tuple[str, str]]:
    """What Postgres would let a role do with our tables."""
    sql = """
        select tablename, privilege from pg_tables, unnest($2::text[]) as privilege
        where schemaname = 'pulse' and has_table_privilege($1, format('pulse.%I', tablename), privilege)"""
    kinds = ["select", "insert", "update", "delete", "truncate", "references", "trigger"]
    async with connected(house.url) as conn:
        return {tuple(row) for row in await conn.fetch(sql, f"{role}{house.suffix}", kinds)}


DDL = [
    "create table pulse.mine (x int)",
    "alter table pulse.jobs add column mine int",
    "drop table pulse.attempts",
    "truncate pulse.pauses",
    "create index on pulse.jobs (task)",
    "create or replace function pulse.now() returns timestamptz language sql as 'select null::timestamptz'",
    "create function pulse.mine() returns int language sql as 'select 1'",
    "alter function pulse.enqueue(text, jsonb, jsonb) security invoker",
    "drop schema pulse cascade",
    "create schema mine",
]


async def assert_refused(url: str | None, *statements: str) -> None:
    async with connected(url) as conn:
        for sql in statements:
            with pytest.raises(Refused):
                await conn.execute(sql)


# --- the owner


async def test_the_owner_migrates_and_everything_is_its_own(house: House) -> None:
    assert await migrate(house.settings("pulse_owner")) == []
    async with connected(house.url) as conn:
        owners = await conn.fetch("select distinct tableowner from pg_tables where schemaname = 'pulse'")
    assert [row["tableowner"] for row in owners] == [f"pulse_owner{house.suffix}"]


# --- the runtime


async def test_the_runtime_does_all_that_an_engine_does(house: House) -> None:
    async with open_engine(house.settings("pulse_runtime")) as engine:
        job_id = await submit_one(engine, topic="run")
        claim = await claim_one(engine, "run")
        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
        await engine.jobs.submit([a_new_job(topic="run", unique_key="k"), a_new_job(topic="run")])
        for claim in await engine.claims.claim("run", worker="w", slots=2):
            assert await engine.claims.report([a_report(claim, Outcome.DISCARD)]) == [ReportStatus.ACCEPTED]
        dead = [job.id for job in (await engine.jobs.list_page()).jobs if job.status is JobStatus.DEAD_LETTERED]
        assert await engine.jobs.replay_many(dead) == dict.fromkeys(dead)
        assert await engine.jobs.cancel_many(dead) == dict.fromkeys(dead)
        assert (await engine.jobs.pause("run")).topic == "run"
        assert await engine.jobs.resume("run")
        assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED
        assert await engine.jobs.counts()
        await _take_every_duty(engine)
        await _use_tokens(engine)


async def _take_every_duty(engine: Engine) -> None:
    for loop in engine.duties.loops():
        await loop.step()


async def _use_tokens(engine: Engine) -> None:
    _, secret = await engine.tokens.create("web", ["submit"])
    assert await engine.tokens.find(secret)
    await engine.tokens.revoke("web")


async def test_the_runtime_calls_the_functions_that_handlers_call(house: House) -> None:
    settings = house.settings("pulse_runtime")
    async with open_engine(settings) as engine, connected(settings.database_url) as conn:
        await conn.fetchval("select pulse.enqueue('own')")
        claim = await claim_one(engine, "own")
        assert await conn.fetchval("select pulse.fence($1, $2)", claim.id, claim.lease_id)
        assert await conn.fetchval("select pulse.complete($1, $2)", claim.id, claim.lease_id)


async def test_the_runtime_changes_rows_and_not_the_schema(house: House) -> None:
    url = house.settings("pulse_runtime").database_url
    await assert_refused(url, *DDL)
    await assert_refused(url, "delete from pulse.migrations", "update pulse.installation set buckets = 2")

    kept = {"migrations", "installation"}
    rows = {(table, kind) for table in await tables(house) - kept for kind in ("select", "insert", "update", "delete")}
    assert await allowed(house, "pulse_runtime") == rows | {(table, "select") for table in kept}


async def test_a_table_of_a_later_migration_is_the_runtimes_too(house: House) -> None:
    await execute(house.settings("pulse_owner").database_url, "create table pulse.later (x int)")
    try:
        await execute(house.settings("pulse_runtime").database_url, "insert into pulse.later values (1)")
        await assert_refused(house.settings("pulse_read").database_url, "select from pulse.later")
    finally:
        await execute(house.url, "drop table pulse.later")


# --- enqueue only


async def test_who_may_only_enqueue_can_enqueue_with_every_option(house: House) -> None:
    options = (
        '{"topic": "orders", "unique_key": "k", "unique_window": "1h", "priority": 3, "tags": ["a"], "delay": "0s"}'
    )
    async with connected(house.settings("pulse_enqueue").database_url) as conn:
        plain = await conn.fetchval("select pulse.enqueue('bill', '{\"n\": 1}', '{\"topic\": \"orders\"}')")
        first = await conn.fetchval("select pulse.enqueue('bill', '{}', $1)", options)
        again = await conn.fetchval("select pulse.enqueue('bill', '{}', $1)", options)
        with pytest.raises(asyncpg.InvalidParameterValueError, match="option must be one of"):
            await conn.fetchval("select pulse.enqueue('bill', '{}', '{\"prio\": 3}')")

    assert first == again != plain
    async with open_engine(house.settings("pulse_runtime")) as engine:
        claims = await engine.claims.claim("orders", worker="w", slots=10)
        assert {claim.id for claim in claims} == {plain, first}


async def test_who_may_only_enqueue_can_do_nothing_else(house: House) -> None:
    url = house.settings("pulse_enqueue").database_url
    async with open_engine(house.settings("pulse_runtime")) as engine:
        await submit_one(engine, topic="theirs")
        claim = await claim_one(engine, "theirs")

    assert await allowed(house, "pulse_enqueue") == set()
    for table in sorted(await tables(house)):
        await assert_refused(
            url, f"select from pulse.{table}", f"delete from pulse.{table}", f"insert into pulse.{table} default values"
        )
    await assert_refused(
        url,
        "update pulse.jobs set priority = 100",
        f"select pulse.fence('{claim.id}', {claim.lease_id})",
        f"select pulse.complete('{claim.id}', {claim.lease_id})",
        f"set role pulse_owner{house.suffix}",
        *DDL,
    )


async def test_the_callers_search_path_is_not_looked_at_while_enqueueing(house: House) -> None:
    """Or whoever may enqueue could have the owner run functions and read tables of theirs."""
    role = f"pulse_enqueue{house.suffix}"
    await execute(house.url, f"create schema evil authorization {role}")
    trap = "language plpgsql as $$ begin raise 'hijacked by %', current_user; end $$"
    async with connected(house.settings("pulse_enqueue").database_url) as conn:
        await conn.execute("grant usage on schema evil to public")
        await conn.execute(f"create function evil.length(text) returns int {trap}")
        await conn.execute(f"create function evil.jsonb_strip_nulls(jsonb) returns jsonb {trap}")
        await conn.execute("create temp table jobs (x int); create temp table installation (x int)")
        await conn.execute("set search_path = evil, pg_temp, pg_catalog")
        with pytest.raises(asyncpg.RaiseError, match="hijacked"):
            await conn.fetchval("select length('a')")

        assert await conn.fetchval("select pulse.enqueue('trapped')")


async def test_only_enqueueing_runs_with_the_owners_rights_and_only_for_whom_it_was_granted(house: House) -> None:
    sql = """
        select proname::text, proconfig, has_function_privilege('public', pg_proc.oid, 'execute') as is_open
        from pg_proc where pronamespace = 'pulse'::regnamespace and prosecdef"""
    async with connected(house.url) as conn:
        found = [tuple(row) for row in await conn.fetch(sql)]

    assert found == [("enqueue", ["search_path=pg_catalog, pg_temp"], False)]


RIGHTS_FOR_ALARMS = re.findall(
    r"`(select|insert|update|delete)`", PAGE.partition("**Alarms.**")[2].partition("\n\n")[0]
)


@pytest.mark.parametrize("missing", [None, *RIGHTS_FOR_ALARMS])
async def test_an_alarm_in_a_transaction_of_ones_own_needs_the_rights_that_the_page_says(
    house: House, missing: str | None
) -> None:
    """And all of them: it is set with the rights of whoever calls."""
    role = f"pulse_enqueue{house.suffix}"
    tea = NewAlarm(owner="ada", name="tea", delay=timedelta(hours=1), url="https://shop.example/hooks")
    cup = msgspec.structs.replace(tea, label="again")
    async with connected(house.url) as conn:
        await conn.execute("begin")  # what is granted here is gone afterwards
        await conn.execute(f"grant {', '.join(set(RIGHTS_FOR_ALARMS) - {missing})} on pulse.alarms to {role}")
        await conn.execute(f"set local role {role}")
        if missing is None:
            deeds = [await aset_alarm_through(conn, each, Settings()) for each in (tea, cup)]
            assert [each.alarm.revision for each in deeds] == [1, 2]
        else:
            with pytest.raises(Refused):
                await aset_alarm_through(conn, tea, Settings())
        await conn.execute("rollback")


async def test_who_may_only_enqueue_sets_no_alarm(house: House) -> None:
    await assert_refused(house.settings("pulse_enqueue").database_url, "select pulse.set_alarm('{}')")


# --- read only


async def test_readers_see_every_list(house: House) -> None:
    async with open_engine(house.settings("pulse_runtime")) as engine:
        job_id = await submit_one(engine, topic="seen")
        assert await engine.claims.report([a_report(await claim_one(engine, "seen"), Outcome.DISCARD)])
        waiting = await submit_one(engine, topic="seen")
        await engine.jobs.pause("seen")

    async with open_engine(house.settings("pulse_read")) as engine:
        assert (await engine.jobs.get(job_id)).status is JobStatus.DEAD_LETTERED
        assert job_id in {job.id for job in (await engine.jobs.list_page()).jobs}
        assert len(await engine.jobs.attempts(job_id)) == 1
        assert "seen" in {count.topic for count in await engine.jobs.counts()}
        assert "seen" in {pause.topic for pause in await engine.jobs.pauses()}
        assert (await engine.explain(waiting)).reason is Reason.PAUSED  # though it may not try whether a row is locked


async def test_readers_write_nothing_and_see_no_tokens(house: House) -> None:
    settings = house.settings("pulse_read")
    async with open_engine(settings) as engine:
        with pytest.raises(PulseError, match="permission denied"):
            await engine.jobs.submit([a_new_job()])
        with pytest.raises(PulseError, match="permission denied"):
            await engine.claims.claim("seen", worker="w", slots=1)
        with pytest.raises(PulseError, match="permission denied"):
            await engine.jobs.pause("seen")
        with pytest.raises(PulseError, match="permission denied"):
            await engine.tokens.list()
    await assert_refused(settings.database_url, "select pulse.enqueue('mail')", "delete from pulse.jobs")
    await assert_refused(settings.database_url, *DDL)

    shown = {(table, "select") for table in await tables(house) - HIDDEN_TABLES}
    assert await allowed(house, "pulse_read") == shown, (
        "a new table belongs on the page, or among those kept from readers"
    )


async def test_readers_see_alarms_and_not_what_their_headers_say(house: House) -> None:
    new = NewAlarm(delay=timedelta(hours=1), url="https://192.0.2.1/", headers={"x-auth-token": "AAA"}, name="tea")
    async with open_engine(replace(house.settings("pulse_runtime"), alarm_networks="192.0.2.0/24")) as engine:
        alarm = (await engine.alarms.set(new)).alarm

    settings = house.settings("pulse_read")
    async with open_engine(settings) as engine:
        assert (await engine.alarms.get(alarm.id)).headers == {"x-auth-token": "…"}
        assert (await engine.alarms.get("tea")).id == alarm.id
        assert [each.id for each in (await engine.alarms.list_page()).alarms] == [alarm.id]
        assert [each.id for each in (await engine.alarms.list_page(AlarmFilter(owner="local"))).alarms] == [alarm.id]
        assert [each.id for each in (await engine.alarms.search(AlarmSearch())).alarms] == [alarm.id]
        assert (await engine.alarms.deliveries(alarm.id)).deliveries == []
    for column in ("headers", "fingerprint", "*"):
        await assert_refused(settings.database_url, f"select {column} from pulse.alarms")
    async with connected(settings.database_url) as conn:
        rows = await conn.fetch("select * from pulse.shown_alarms")
    assert "AAA" not in str([tuple(row) for row in rows])


# --- roles that were there before


async def test_an_upgrade_takes_nothing_from_those_who_could_enqueue_and_gives_it_to_nobody_else(
    worker_id: str,
) -> None:
    name, suffix = f"upgrade_{worker_id}", f"_{worker_id}_{os.getpid()}"
    writer, reader = f"old writer{suffix}", f"old_reader{suffix}"  # a name that must be quoted
    settings = Settings(database_url=await recreate_database(name))
    try:
        await migrate_up_to(3, settings)
        await execute(
            settings.database_url,
            f"""
            create role "{writer}" login; create role {reader} login;
            grant usage on schema pulse to "{writer}", {reader};
            grant select, insert, update on pulse.jobs, pulse.tallies, pulse.installation to "{writer}";
            grant select on all tables in schema pulse to {reader};
            """,
        )
        await assert_refused(_as_role(str(settings.database_url), reader), "select pulse.enqueue('mail')")

        await migrate(settings)

        await execute(_as_role(str(settings.database_url), writer.replace(" ", "%20")), "select pulse.enqueue('mail')")
        await assert_refused(_as_role(str(settings.database_url), reader), "select pulse.enqueue('mail')")
    finally:
        await tear_down(name, [f'"{writer}"', reader])


# --- counting only


async def test_who_may_only_count_counts_and_sees_no_job(house: House) -> None:
    url = house.settings("pulse_scaler").database_url

    await execute(url, "select sum(jobs) from pulse.counts; select sum(jobs) from pulse.tallies")
    assert await allowed(house, "pulse_scaler") == {("counts", "select"), ("tallies", "select")}
    await assert_refused(url, "select from pulse.jobs", "select pulse.enqueue('bill')", *DDL)
