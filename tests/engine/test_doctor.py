"""Does the doctor find each fault that is planted, and nothing where all is well? On a Postgres of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from pulse.engine import doctor
from pulse.engine.engine import open_engine
from pulse.engine.workers import Workers
from pulse.model.doctor.findings import Finding, Level, worst_of
from pulse.model.schedules import NewSchedule
from pulse.model.workers import Presence
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.store.embedded import server as embedded
from pulse.store.schema import migrate as migrations
from pulse.store.schema.migrate import migrate
from tests.conftest import migrate_up_to
from tests.factories import a_new_job
from tests.waiting import until

FEW = {"max_connections": "13", "max_prepared_transactions": "2"}  # ten for ordinary roles


@pytest.fixture(scope="module")
def own_server() -> Iterator[str]:
    """One that may not lose data, unlike that of the other tests, and whose settings can be changed."""
    state_dir = Path(tempfile.mkdtemp(prefix="pulse-doctor-", dir="/tmp"))
    with embedded.start(state_dir, postgres=os.environ.get("PULSE_POSTGRES", "wheel"), settings=FEW) as server:
        yield server.dsn
    shutil.rmtree(state_dir)


@pytest.fixture
async def admin(own_server: str) -> AsyncIterator[Any]:
    """Whatever it does to the server is undone."""
    conn = await asyncpg.connect(own_server)
    yield conn
    await conn.execute("alter system reset all")
    await conn.execute("select pg_reload_conf()")
    await conn.execute("drop schema if exists pulse cascade")
    conn.terminate()


@pytest.fixture
async def empty(own_server: str, admin: Any) -> Settings:
    return Settings(database_url=own_server)


@pytest.fixture
async def healthy(empty: Settings) -> Settings:
    await migrate(empty)
    return empty


def hourly(name: str) -> NewSchedule:
    return NewSchedule(name=name, job=a_new_job(), every=timedelta(hours=1))


async def findings(settings: Settings, **given: Any) -> dict[str, list[Finding]]:
    """What is not well, by what was looked at."""
    found = await doctor.examine(settings, **given)
    return {each.name: [other for other in found if other.name == each.name] for each in found if each.level != "ok"}


async def finding(settings: Settings, name: str, **given: Any) -> Finding:
    """The one thing that is wrong."""
    found = await findings(settings, **given)
    assert list(found) == [name], found
    [one] = found[name]
    return one


async def test_where_all_is_well_nothing_is_found(healthy: Settings) -> None:
    found = await doctor.examine(healthy)

    assert {each.level for each in found} == {Level.OK}, found
    assert [each.name for each in found] == [
        *("database", "schema", "pooler", "durability", "clock", "horizon", "bloat", "connections", "wraparound"),
        *("notifier", "duties", "counts", "workers", "schedules", "tokens"),
    ]
    assert not any(each.advice for each in found)


# --- the database


async def test_it_cannot_be_reached() -> None:
    nowhere = Settings(database_url="postgresql://pulse@127.0.0.1:1/pulse", patience=timedelta(milliseconds=50))

    assert (await finding(nowhere, "database")).level is Level.FAIL


async def test_there_is_no_schema(empty: Settings) -> None:
    found = await finding(empty, "schema")

    assert (found.level, "pulse migrate" in found.text) == (Level.FAIL, True)


async def test_the_schema_is_older_than_this_release(empty: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old is a failure; old, but not too old, a warning."""
    last = migrations.newest()
    await migrate_up_to(last - 1, empty)
    monkeypatch.setattr(migrations, "OLDEST_SCHEMA", last)
    assert (await finding(empty, "schema")).level is Level.FAIL

    monkeypatch.setattr(migrations, "OLDEST_SCHEMA", last - 1)
    found = (await findings(empty))["schema"][0]
    assert (found.level, f"not applied yet: {last:04}_" in found.text) == (Level.WARN, True)


async def test_settings_lose_data(settings: Settings) -> None:
    """As the server of the other tests has them, which may."""
    found = (await findings(settings))["durability"]

    assert [(each.level, each.text) for each in found] == [
        (Level.FAIL, "fsync is off"),
        (Level.FAIL, "full_page_writes is off"),
    ]


async def test_nobody_waits_for_the_disk(healthy: Settings, admin: Any) -> None:
    await admin.execute("alter system set synchronous_commit = off")
    await admin.execute("select pg_reload_conf()")

    async def takes_effect() -> bool:
        fresh = await asyncpg.connect(healthy.database_url)
        found = await fresh.fetchval("show synchronous_commit")
        fresh.terminate()
        return bool(found == "off")

    await until(takes_effect)
    found = await finding(healthy, "durability")

    assert (found.level, found.text) == (Level.FAIL, "synchronous_commit is off")


async def test_the_role_of_pulse_does_not_wait_for_the_disk(healthy: Settings, admin: Any) -> None:
    await admin.execute("alter database pulse set synchronous_commit = off")
    try:
        found = await finding(healthy, "durability")
    finally:
        await admin.execute("alter database pulse reset synchronous_commit")

    assert found.level is Level.FAIL


async def test_another_role_does_not_wait_for_the_disk(healthy: Settings, admin: Any) -> None:
    await admin.execute("create role hasty")
    await admin.execute("alter role hasty set synchronous_commit = off")
    try:
        found = await finding(healthy, "durability")
    finally:
        await admin.execute("drop role hasty")

    assert (found.level, found.text) == (Level.WARN, "synchronous_commit is off for role hasty")


async def test_a_table_is_unlogged(healthy: Settings, admin: Any) -> None:
    await admin.execute("alter table pulse.attempts set unlogged")

    found = await finding(healthy, "durability")

    assert (found.level, "attempts" in found.text) == (Level.FAIL, True)


async def test_time_stands_still(healthy: Settings, admin: Any) -> None:
    await admin.execute(
        "create or replace function pulse.now() returns timestamptz language sql stable as "
        "$$select timestamptz '2030-01-01 00:00Z'$$"
    )

    assert (await finding(healthy, "clock")).level is Level.FAIL


async def test_a_session_holds_the_horizon(healthy: Settings, own_server: str) -> None:
    holder: Any = await asyncpg.connect(own_server, server_settings={"application_name": "long report"})
    async with holder.transaction(isolation="repeatable_read"):
        await holder.fetchval("select 'all of it'")
        pid = holder.get_server_pid()
        assert await findings(healthy) == {}  # a minute is fine

        found = await finding(healthy, "horizon", pinned=timedelta())
    holder.terminate()

    assert f"a session (pid {pid}, long report, idle in transaction" in found.text
    assert "select 'all of it'" in found.text
    assert f"pg_terminate_backend({pid})" in found.advice


async def test_a_prepared_transaction_holds_the_horizon(healthy: Settings, admin: Any) -> None:
    await admin.execute("begin; insert into pulse.pauses values ('mail', '', now()); prepare transaction 'forgotten'")
    try:
        found = await finding(healthy, "horizon", pinned=timedelta())
    finally:
        await admin.execute("rollback prepared 'forgotten'")

    assert "a prepared transaction ('forgotten'" in found.text
    assert "ROLLBACK PREPARED 'forgotten'" in found.advice


async def test_dead_rows_are_not_removed(healthy: Settings, own_server: str, admin: Any) -> None:
    await admin.execute("alter table pulse.tallies set (autovacuum_enabled = off)")
    writer = await asyncpg.connect(own_server)
    await writer.execute(
        "insert into pulse.tallies select 0, 'mail', null, 'PENDING', 1, now() from generate_series(1, 11000); "
        "delete from pulse.tallies"
    )
    await writer.close()  # which is when its figures are told

    found = (await findings(healthy))["bloat"]

    assert found[0].text == "autovacuum is off for tallies"
    assert found[1].text.startswith("tallies has 11,000 dead rows and 0 live ones; last vacuumed never")


async def test_connections_run_short(healthy: Settings, own_server: str) -> None:
    others = [await asyncpg.connect(own_server) for _ in range(6)]

    found = await finding(healthy, "connections")
    for other in others:
        other.terminate()

    assert (found.level, found.text) == (Level.WARN, "8 of 10 are in use")


async def test_notifications_go_elsewhere(
    healthy: Settings, own_server: str, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "ARRIVAL_PATIENCE", 0.1)
    elsewhere = replace(healthy, listen_url=own_server.replace("/pulse?", "/postgres?"))
    assert elsewhere.listen_url != own_server

    found = await finding(elsewhere, "notifier")

    assert (found.level, "did not arrive" in found.text) == (Level.WARN, True)


async def test_what_a_role_may_not_see_is_said_and_the_rest_is_looked_at(healthy: Settings, admin: Any) -> None:
    await admin.execute("create role guest login")
    await admin.execute("grant usage on schema pulse to guest")
    try:
        guest = replace(healthy, database_url=str(healthy.database_url).replace("//pulse@", "//guest@"))
        found = await findings(guest)
    finally:
        await admin.execute("drop owned by guest; drop role guest")

    assert {each.text.split(":")[0] for all_of_it in found.values() for each in all_of_it} == {
        "this could not be checked"
    }
    assert worst_of([each for all_of_it in found.values() for each in all_of_it]) is Level.WARN


# --- ours


async def test_nobody_does_the_duties(healthy: Settings, admin: Any) -> None:
    async with open_engine(healthy) as engine:
        minute = timedelta(minutes=1)
        await engine.jobs.submit([a_new_job(delay=minute), a_new_job(topic="lost"), a_new_job(topic="over")])
        await engine.claims.claim("lost", worker="w1", slots=1)
        await engine.schedules.create(hourly("hourly"))
    late = "pulse.now() - interval '10 minutes'"
    await admin.execute(f"update pulse.jobs set run_at = {late} where status = 'SCHEDULED'")
    await admin.execute(f"update pulse.jobs set lease_until = {late} where status = 'RUNNING'")
    await admin.execute(f"update pulse.jobs set deadline = {late} where topic = 'over'")
    await admin.execute(f"update pulse.schedules set next_run_at = {late}")

    found = (await findings(healthy))["duties"]

    assert [each.text.partition(", for 10m")[0] for each in found] == [
        "a delayed or retried job is due and was not made ready",
        "a job is past its deadline and was not ended",
        "a schedule is due and did not fire",
        "a lease ran out and was not taken back",
    ]
    assert {each.level for each in found} == {Level.FAIL}
    assert "start one" in found[0].advice


async def test_counts_are_not_those_of_the_rows(healthy: Settings, admin: Any) -> None:
    async with open_engine(healthy) as engine:
        await engine.jobs.submit([a_new_job() for _ in range(3)])
    await admin.execute("update pulse.jobs set topic = 'post'")

    [found] = (await findings(healthy))["counts"]

    said = "mail PENDING has 0, not 3 and post PENDING has 3, not 0"
    assert (found.level, found.text) == (Level.FAIL, f"counts that differ from the rows: {said}")
    assert "select pulse.recount();" in found.advice
    assert await admin.fetchval("select pulse.recount()") == 2
    assert "counts" not in await findings(healthy)


async def test_states_of_many_jobs_are_not_counted(healthy: Settings, admin: Any) -> None:
    """The counts say how many there are, so that nobody has to look."""
    await admin.execute("insert into pulse.counts values (0, 'mail', 'COMPLETED', 200001)")

    found = await doctor.examine(healthy)

    [counts] = [each for each in found if each.name == "counts"]
    assert (counts.level, counts.text) == (
        Level.OK,
        "they agree with the rows; not compared, because there are too many: COMPLETED",
    )


async def test_a_worker_is_of_another_release(healthy: Settings) -> None:
    old = Presence(name="w1", version="pulse-python/0.0.1", topics=["mail"], slots=1, busy=0, age=timedelta())
    foreign = Presence(name="w2", version="ours-in-go/3", topics=["mail"], slots=1, busy=0, age=timedelta())
    async with await Database.connect(healthy) as database:
        await Workers(database).own_duty("w1", lambda _: old)()
        await Workers(database).own_duty("w2", lambda _: foreign)()

    found = await finding(healthy, "workers")

    assert (found.level, found.text.endswith(": w1 (0.0.1)")) == (Level.WARN, True)


async def test_a_schedule_is_broken_and_another_in_an_unknown_zone(healthy: Settings, admin: Any) -> None:
    async with open_engine(healthy) as engine:
        for name in ("broken", "martian", "torn"):
            await engine.schedules.create(hourly(name))
    await admin.execute(
        "update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'no such day' where name = 'broken'"
    )
    await admin.execute(
        "update pulse.schedules set status = 'BROKEN', next_run_at = null, error = 'a hole' where name = 'torn'"
    )
    await admin.execute("update pulse.schedules set tz = 'Mars/Olympus' where name = 'martian'")

    broken, unknown = (await findings(healthy))["schedules"]

    assert (broken.level, broken.text) == (Level.WARN, "2 schedules broken, such as 'broken': no such day")
    assert (unknown.level, "Mars/Olympus" in unknown.text) == (Level.FAIL, True)


async def test_the_error_of_a_broken_schedule_quotes_nothing_that_is_marked(healthy: Settings, admin: Any) -> None:
    async with open_engine(healthy) as engine:
        await engine.schedules.create(hourly("broken"))
    await admin.execute(
        "update pulse.schedules set status = 'BROKEN', next_run_at = null, payload = '{\"card\": \"4111-2222\"}', "
        "error = 'the database cannot take 4111-2222'"
    )

    found = await finding(replace(healthy, redact="card"), "schedules")

    assert found.text == "1 schedule broken, such as 'broken': the database cannot take [redacted]"


async def test_a_token_is_about_to_expire(healthy: Settings) -> None:
    async with open_engine(healthy) as engine:
        await engine.tokens.create("shop", ["submit"], lifetime=timedelta(days=2))
        await engine.tokens.create("office", ["submit"], lifetime=timedelta(days=20))

    found = await finding(healthy, "tokens")

    assert (found.level, found.text) == (Level.WARN, "about to expire: shop in 1d23h")


async def test_jobs_that_nobody_takes_are_named(healthy: Settings) -> None:
    async with open_engine(healthy) as engine:
        await engine.jobs.submit([a_new_job(topic="lonely"), a_new_job(topic="held")])
        await engine.jobs.pause("held")

    [finding] = [each for each in await doctor.examine(healthy) if each.name == "workers"]

    assert (finding.level, finding.text) == ("warn", "none is connected for lonely, with 1 job waiting")
