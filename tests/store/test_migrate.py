"""Does the schema come to be, whoever makes it, how often, how many at once, and wherever they were cut short?"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import open_engine
from pulse.model.errors import (
    DatabaseReadOnly,
    DatabaseUnreachable,
    InvalidSettings,
    SchemaMismatch,
)
from pulse.model.jobs import JobStatus, ReportStatus
from pulse.settings import Settings
from pulse.store.schema import migrate as migrations
from pulse.store.schema.migrate import SchemaState, check, load_migrations, migrate, mismatch, newest, render, split
from tests.conftest import recreate_database
from tests.factories import a_report, claim_one, submit_one
from tests.waiting import connected, until

Catalog = dict[str, list[tuple[Any, ...]]]

# Everything a schema is made of.
CATALOG = {
    "columns": """
        select c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attnum,
            pg_get_expr(d.adbin, d.adrelid)
        from pg_attribute as a
        join pg_class as c on c.oid = a.attrelid and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
        left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = $1::text::regnamespace
        order by c.relname, a.attnum""",
    "options": """
        select relname::text, reloptions from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'r' order by relname""",
    "indexes": """
        select relname::text, pg_get_indexdef(oid) from pg_class
        where relnamespace = $1::text::regnamespace and relkind = 'i' order by relname""",
    "constraints": """
        select conname::text, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = $1::text::regnamespace and contype <> 'n' order by conname""",
    "functions": """
        select proname::text, pg_get_functiondef(oid)
        from pg_proc where pronamespace = $1::text::regnamespace order by proname""",
    "triggers": """
        select tgname::text from pg_trigger join pg_class on pg_class.oid = tgrelid
        where relnamespace = $1::text::regnamespace and not tgisinternal""",
}


async def catalog(settings: Settings) -> Catalog:
    async with connected(settings.database_url) as conn:
        schema = await conn.fetchval("select quote_ident($1)", settings.schema)
        found = {what: _without_name(settings.schema, await conn.fetch(sql, schema)) for what, sql in CATALOG.items()}
        table = f'"{settings.schema}".migrations'
        rows = await conn.fetch(f"select version, name, works_from from {table} order by version")
        return found | {"versions": [tuple(row) for row in rows]}


def _without_name(schema: str, rows: list[asyncpg.Record]) -> list[tuple[Any, ...]]:
    name = re.compile(rf'("{schema}"|\b{schema}\b)\.')
    return [tuple(name.sub("", value) if isinstance(value, str) else value for value in row) for row in rows]


@pytest.fixture
async def fresh(worker_id: str) -> Settings:
    """An empty database of this test's own."""
    return Settings(database_url=await recreate_database(f"migrate_{worker_id}"))


@pytest.fixture
async def whole(fresh: Settings) -> Catalog:
    """What a schema looks like that was made undisturbed."""
    reference = replace(fresh, schema="reference")
    await migrate(reference)
    return await catalog(reference)


# --- made, again, at once, in parts


async def test_from_nothing_to_the_newest(fresh: Settings) -> None:
    applied = await migrate(fresh)

    assert [migration.version for migration in applied] == list(range(1, newest() + 1))
    assert await check(fresh) == SchemaState(newest(), applied[-1].works_from, 1)


async def test_a_second_run_does_nothing(fresh: Settings) -> None:
    await migrate(fresh)
    written = """
        select oid, xmin::text from pg_class where relnamespace = 'pulse'::regnamespace
        union all select oid, xmin::text from pg_proc where pronamespace = 'pulse'::regnamespace
        union all select version, xmin::text from pulse.migrations
        union all select buckets, xmin::text from pulse.installation
        order by 1, 2"""
    async with connected(fresh.database_url) as conn:
        before = await conn.fetch(written)

        assert await migrate(fresh) == []

        assert await conn.fetch(written) == before, "no row was written, not even with what it held"


async def test_the_numbers_have_no_gap_and_each_file_says_which_code_it_works_with() -> None:
    found = load_migrations()

    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    assert all(1 <= migration.works_from <= migration.version for migration in found)
    assert newest() >= migrations.OLDEST_SCHEMA


@pytest.mark.parametrize("again", range(3))
async def test_many_at_once_make_one_schema(fresh: Settings, whole: Catalog, again: int) -> None:
    async with asyncio.timeout(30):
        await asyncio.gather(*[migrate(fresh) for _ in range(8)])

    assert await catalog(fresh) == whole
    async with connected(fresh.database_url) as conn:
        assert await conn.fetchval("select count(*) from pulse.installation") == 1


async def test_several_processes_at_once_make_one_schema(fresh: Settings, whole: Catalog) -> None:
    program = (
        "import asyncio; from pulse.settings import Settings; from pulse.store.schema.migrate import migrate; "
        "asyncio.run(migrate(Settings.from_env()))"
    )
    environment = {**os.environ, "PULSE_DATABASE_URL": str(fresh.database_url)}

    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", program, env=environment) for _ in range(3)]
    async with asyncio.timeout(30):
        codes = await asyncio.gather(*[process.wait() for process in processes])

    assert codes == [0, 0, 0]
    assert await catalog(fresh) == whole


def _all_statements(settings: Settings) -> list[str]:
    return split(render(settings))


# Each place costs a whole schema, so that one in eight is tried with every change and all of them now and then. The
# newest migration is always tried whole: an older one was, when it was the newest.
EIGHTH = 8


@pytest.mark.parametrize("step", [EIGHTH, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.long])])
async def test_a_run_cut_short_anywhere_is_completed_by_the_next(fresh: Settings, whole: Catalog, step: int) -> None:
    count = len(_all_statements(fresh))
    newest_one = len(migrations.load_migrations()[-1].statements)
    assert count > 30
    places = sorted({*range(0, count + 1, step), *range(count - newest_one, count + 1)})

    async with connected(fresh.database_url) as conn:
        for cut_after in places:
            settings = replace(fresh, schema=f"cut_{cut_after}")
            for statement in _all_statements(settings)[:cut_after]:
                await conn.execute(statement)

            await migrate(settings)

            assert await catalog(settings) == whole, f"cut after statement {cut_after}"
            assert (await check(settings)).version == newest()


async def test_a_reader_in_the_way_is_outlasted_and_not_queued_behind(
    fresh: Settings, whole: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_PATIENCE", "set local lock_timeout = '20ms';\n")
    async with connected(fresh.database_url) as reader, connected(fresh.database_url) as other:
        statements = _all_statements(fresh)
        table_is_there = next(n for n, sql in enumerate(statements, 1) if 'if not exists "pulse".jobs' in sql)
        for statement in statements[:table_is_there]:
            await reader.execute(statement)
        await reader.execute("begin; lock table pulse.jobs in access exclusive mode")

        migrating = asyncio.create_task(migrate(fresh))
        waits = "select count(*) from pg_locks where not granted and relation = 'pulse.jobs'::regclass"
        await until(lambda: other.fetchval(waits))
        await until(lambda: other.fetchval(f"select ({waits}) = 0"))  # it lets go, so nobody queues behind it for long
        assert not migrating.done()
        await reader.execute("commit")
        async with asyncio.timeout(5):
            await migrating

    assert await catalog(fresh) == whole


# --- the name of the schema


@pytest.mark.parametrize("name", ["user", "select", "_", "pulse_2", "q" * 48, "public"])
async def test_the_schema_may_have_any_plain_name_and_several_live_side_by_side(fresh: Settings, name: str) -> None:
    await migrate(fresh)
    other = replace(fresh, schema=name)

    await migrate(other)

    assert await check(other) == await check(fresh)
    async with open_engine(other) as engine, open_engine(fresh) as neighbour:
        job_id = await submit_one(engine)
        assert await neighbour.claims.claim("mail", worker="w1", slots=1) == []
        claim = await claim_one(engine)
        assert claim.id == job_id
        assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
        assert await neighbour.jobs.counts() == []
        async with connected(other.database_url) as conn:
            assert await conn.fetchval(f"select \"{name}\".enqueue('mail')")
        assert (await claim_one(engine)).task == "mail"


@pytest.mark.parametrize("name", ["", "Pulse", "2pulse", 'a"b', "a b", "a.b", "q" * 49, "pulse;", "füße", "a\n"])
def test_other_names_are_refused_before_anything_happens(name: str) -> None:
    with pytest.raises(InvalidSettings, match="schema"):
        Settings(schema=name)


# --- as a script


async def test_the_script_makes_the_same_schema_statement_by_statement(fresh: Settings, whole: Catalog) -> None:
    async with connected(fresh.database_url) as conn:
        for statement in _all_statements(fresh):
            await conn.execute(statement)

    assert await catalog(fresh) == whole
    assert await migrate(fresh) == [], "nothing is missing"


async def test_the_script_may_be_run_in_one_piece_and_again(fresh: Settings, whole: Catalog) -> None:
    settings = replace(fresh, schema="by_script")
    async with connected(settings.database_url) as conn:
        await conn.execute(render(settings))
        await conn.execute(render(settings))

    assert await catalog(settings) == whole


@pytest.mark.skipif(not shutil.which("psql"), reason="psql is not installed")
@pytest.mark.parametrize("schema", ["pulse", "user"])
async def test_psql_reads_the_script(fresh: Settings, whole: Catalog, schema: str) -> None:
    settings = replace(fresh, schema=schema, buckets=4)
    run = await asyncio.to_thread(
        subprocess.run,
        ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", str(settings.database_url)],
        input=render(settings),
        text=True,
        capture_output=True,
    )

    assert (run.returncode, run.stdout) == (0, "")
    assert await catalog(settings) == whole
    assert (await check(settings)).buckets == 4


# --- old and new side by side


async def test_a_database_without_the_schema_says_to_migrate(fresh: Settings) -> None:
    with pytest.raises(SchemaMismatch, match=r"no schema 'pulse' yet: run `pulse migrate`"):
        await check(fresh)


async def test_a_schema_of_the_first_statements_only_counts_as_none(fresh: Settings) -> None:
    async with connected(fresh.database_url) as conn:
        for statement in _all_statements(fresh)[:2]:
            await conn.execute(statement)

    with pytest.raises(SchemaMismatch, match="no schema 'pulse' yet"):
        await check(fresh)


async def _pretend(settings: Settings, sql: str) -> None:
    async with connected(settings.database_url) as conn:
        await conn.execute(sql)


async def test_a_schema_that_is_too_old_says_to_migrate(fresh: Settings) -> None:
    await migrate(fresh)
    await _pretend(fresh, f"delete from pulse.migrations where version >= {migrations.OLDEST_SCHEMA}")

    old = migrations.OLDEST_SCHEMA - 1
    with pytest.raises(SchemaMismatch, match=rf"is at version {old}, .* run `pulse migrate`"):
        await check(fresh)
    with pytest.raises(SchemaMismatch):
        async with open_engine(fresh):
            pass

    await migrate(fresh)
    assert (await check(fresh)).version == newest()


async def test_a_schema_that_is_too_new_says_to_upgrade_the_program(fresh: Settings) -> None:
    await migrate(fresh)
    ahead = newest() + 1
    await _pretend(fresh, f"insert into pulse.migrations values ({ahead}, 'ahead', {ahead})")

    with pytest.raises(SchemaMismatch, match="upgrade pulse-postgres"):
        await check(fresh)
    with pytest.raises(SchemaMismatch):
        async with open_engine(fresh):
            pass


async def test_old_code_keeps_working_on_a_newer_schema_that_allows_it(fresh: Settings) -> None:
    await migrate(fresh)
    ahead = newest() + 1
    await _pretend(fresh, "alter table pulse.jobs add column mood text")
    await _pretend(fresh, f"insert into pulse.migrations values ({ahead}, 'ahead', {newest()})")

    assert (await check(fresh)).version == ahead
    assert await migrate(fresh) == [], "old code leaves a newer schema alone"
    async with open_engine(fresh) as engine:
        job_id = await submit_one(engine)
        claim = await claim_one(engine)
        assert await engine.claims.report([a_report(claim)]) == [ReportStatus.ACCEPTED]
        assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("version", "works_from", "words"),
    [
        (0, 0, "run `pulse migrate`"),
        (1, 1, "run `pulse migrate`"),
        (2, 1, None),
        (9, 2, None),
        (9, 9, "upgrade pulse-postgres"),
    ],
)
def test_the_range_in_which_code_and_schema_go_together(
    monkeypatch: pytest.MonkeyPatch, version: int, works_from: int, words: str | None
) -> None:
    monkeypatch.setattr(migrations, "OLDEST_SCHEMA", 2)
    monkeypatch.setattr(migrations, "newest", lambda: 3)

    problem = mismatch(SchemaState(version, works_from, 1), "pulse")

    assert words in problem if words and problem else problem is None and words is None


# --- buckets


async def test_the_number_of_buckets_is_decided_once(fresh: Settings) -> None:
    first = replace(fresh, buckets=16)
    await migrate(first)
    before = await catalog(first)

    assert await migrate(fresh) == [], "the default asks for nothing"
    assert await migrate(first) == []
    with pytest.raises(InvalidSettings, match=r"made with 16 buckets.*unset PULSE_BUCKETS") as refused:
        await migrate(replace(fresh, buckets=8))

    assert "new schema with 8" in str(refused.value)
    assert (await check(fresh)).buckets == 16
    assert await catalog(first) == before


async def test_an_engine_takes_the_number_of_buckets_from_the_schema(fresh: Settings) -> None:
    await migrate(replace(fresh, buckets=16))

    async with open_engine(fresh) as engine:
        await submit_one(engine, topic="mail")
        await submit_one(engine, topic="reports")
        assert engine.jobs.buckets == 16
        assert (await claim_one(engine, "reports")).topic == "reports"
    async with connected(fresh.database_url) as conn:
        rows = await conn.fetch("select bucket, pulse.bucket_of_topic(topic, 16) from pulse.jobs")
    assert len({row[0] for row in rows}) == 2
    assert all(row[0] == row[1] for row in rows)


async def test_a_run_that_was_cut_short_keeps_the_number_it_had_decided(fresh: Settings) -> None:
    sixteen = replace(fresh, buckets=16)
    statements = _all_statements(sixteen)
    decided = next(n for n, sql in enumerate(statements, 1) if "installation (buckets)" in sql)
    async with connected(fresh.database_url) as conn:
        for statement in statements[:decided]:
            await conn.execute(statement)

    await migrate(fresh)

    assert (await check(fresh)).buckets == 16


# --- a database that will not have it


async def test_a_read_only_database_is_named_and_untouched(fresh: Settings) -> None:
    async with connected(fresh.database_url) as conn:
        name = await conn.fetchval("select current_database()")
        await conn.execute(f"alter database {name} set default_transaction_read_only = on")

    with pytest.raises(DatabaseReadOnly):
        await migrate(fresh)

    with pytest.raises(SchemaMismatch):
        await check(fresh)


async def test_an_unreachable_database_is_named() -> None:
    settings = Settings(database_url="postgresql://pulse@127.0.0.1:1/pulse")

    for attempt in (migrate, check):
        with pytest.raises(DatabaseUnreachable, match="is it running"):
            await attempt(settings)


async def test_a_database_lost_half_way_is_named_and_the_next_run_completes_it(
    fresh: Settings, whole: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = migrations.load_migrations()
    cut = [
        original[0]._replace(
            statements=[*original[0].statements[:10], "select pg_terminate_backend(pg_backend_pid())", "select 1"]
        )
    ]
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "load_migrations", lambda: cut)
        with pytest.raises(DatabaseUnreachable):
            await migrate(fresh)

    await migrate(fresh)

    assert await catalog(fresh) == whole
