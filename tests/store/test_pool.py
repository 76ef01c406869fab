"""Does the way to Postgres say what is wrong with it, mend what can be mended, and keep a lane free for heartbeats?"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import (
    Conflict,
    DatabaseReadOnly,
    DatabaseUnreachable,
    InvalidDatabaseUrl,
    InvalidInput,
    PulseError,
    SchemaMismatch,
    UnsupportedDatabase,
)
from pulse.model.jobs import ReportStatus
from pulse.settings import Settings
from pulse.store.connections.pool import CONFLICT_TRIES, PLAN_SETTINGS, Connection, Database
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import migrate
from tests.conftest import SERVER, database_url, recreate_database
from tests.factories import a_report, claim_one, lease_of, submit_one
from tests.waiting import connected, until

KILL_ME = "select pg_terminate_backend(pg_backend_pid())"


@pytest.fixture(scope="module")
def guarded() -> Iterator[embedded.EmbeddedPostgres]:
    """A server of our own on TCP, where the password counts."""
    with _own_server() as folder, embedded.start(folder, postgres=_binaries(), port=0) as server:
        yield server


@pytest.fixture(scope="module")
def standby() -> Iterator[embedded.EmbeddedPostgres]:
    """A server in recovery that follows nobody."""
    with _own_server() as folder:
        embedded.start(folder, postgres=_binaries()).close()
        data = folder / "postgres" / "data"
        (data / "standby.signal").touch()
        os.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)
        with embedded.start(folder, postgres=_binaries(), port=0) as server:
            yield server


class _own_server:  # noqa: N801  reads as a function where it is used
    """A short path, as sockets need."""

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _binaries() -> str:
    return os.environ.get("PULSE_POSTGRES", "wheel")


async def refusal(url: str | None, kind: type[PulseError]) -> str:
    """What connecting and what migrating say; both must refuse, with the same name and for the same reason."""
    settings = Settings(database_url=url)
    with pytest.raises(kind) as when_connecting:
        await Database.connect(settings)
    with pytest.raises(kind) as when_migrating:
        await migrate(settings)
    assert type(when_connecting.value) is type(when_migrating.value) is kind
    assert str(when_connecting.value) == str(when_migrating.value)
    return str(when_connecting.value)


# --- what is refused, by name and with advice


@pytest.mark.parametrize("url", ["nonsense", "mysql://host/name", "postgresql://host:notaport/name"])
async def test_a_malformed_url_is_refused_with_a_good_example(url: str) -> None:
    assert "postgresql://user:password@host:5432/name" in await refusal(url, InvalidDatabaseUrl)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg2"])
async def test_a_url_of_sqlalchemy_is_told_what_to_leave_out(driver: str) -> None:
    message = await refusal(f"postgresql+{driver}://me:S3cret@127.0.0.1:1/shop", InvalidDatabaseUrl)

    assert message == (
        f"the database URL must begin with postgresql://; SQLAlchemy's postgresql+{driver}:// names a driver: "
        f"leave '+{driver}' out"
    )


async def test_an_at_in_the_password_is_told_how_to_be_written() -> None:
    message = await refusal("postgresql://postgres:p@ss@nowhere.invalid:5432/shop?sslmode=disable", InvalidDatabaseUrl)

    assert message == "the database URL must have one @ only, in front of the host: write an @ of the password as %40"


async def test_an_at_that_is_written_rightly_is_taken() -> None:
    assert "nowhere.invalid" in await refusal("postgresql://me:p%40ss@nowhere.invalid/shop", DatabaseUnreachable)


@pytest.mark.parametrize("url", [None, ""])
async def test_without_a_url_nothing_is_tried(url: str | None) -> None:
    assert "PULSE_DATABASE_URL" in await refusal(url, InvalidDatabaseUrl)


async def test_a_port_where_nobody_listens_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    message = await refusal(f"postgresql://pulse@127.0.0.1:{port}/pulse", DatabaseUnreachable)

    assert str(port) in message
    assert "is it running" in message


async def test_a_host_that_does_not_exist_is_unreachable() -> None:
    assert "is the address right" in await refusal("postgresql://nowhere.invalid/pulse", DatabaseUnreachable)


async def test_a_database_that_does_not_exist_is_named(settings: Settings) -> None:
    message = await refusal(database_url("no_such_database"), InvalidDatabaseUrl)

    assert "no_such_database" in message
    assert "PULSE_DATABASE_URL" in message


async def test_a_wrong_password_is_said_to_be_one(guarded: embedded.EmbeddedPostgres) -> None:
    password = urlsplit(guarded.dsn).password
    assert password

    message = await refusal(guarded.dsn.replace(password, "guess"), InvalidDatabaseUrl)

    assert "password authentication failed" in message
    assert "guess" not in message
    assert password not in message


async def test_a_role_that_does_not_exist_is_named(settings: Settings) -> None:
    message = await refusal(os.environ[SERVER].replace("//pulse@", "//no_such_role@"), InvalidDatabaseUrl)

    assert "no_such_role" in message


@asynccontextmanager
async def _database(name: str, made_with: str = "", then: str = "") -> AsyncIterator[str]:
    async with connected(os.environ[SERVER]) as admin:
        await admin.execute(f"drop database if exists {name} with (force)")
        await admin.execute(f"create database {name} {made_with}")
        if then:
            await admin.execute(f"alter database {name} {then}")
        yield database_url(name)
        await admin.execute(f"drop database {name} with (force)")


async def _schemas(url: str) -> set[str]:
    async with connected(url) as conn:
        rows = await conn.fetch("select nspname from pg_namespace where nspname !~ '^pg_'")
    return {row["nspname"] for row in rows}


async def test_a_read_only_database_is_refused(worker_id: str) -> None:
    async with _database(f"read_only_{worker_id}", then="set default_transaction_read_only = on") as url:
        message = await refusal(url, DatabaseReadOnly)

        assert "default_transaction_read_only" in message
        assert await _schemas(url) == {"public", "information_schema"}


async def test_a_database_in_another_encoding_is_refused_and_left_alone(worker_id: str) -> None:
    made_with = "encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'"
    async with _database(f"ascii_{worker_id}", made_with) as url:
        message = await refusal(url, UnsupportedDatabase)

        assert "SQL_ASCII" in message
        assert "ENCODING 'UTF8'" in message
        assert await _schemas(url) == {"public", "information_schema"}


async def test_a_standby_is_refused(standby: embedded.EmbeddedPostgres) -> None:
    assert "address of the primary" in await refusal(standby.dsn, DatabaseReadOnly)


async def test_several_hosts_without_a_primary_among_them_are_refused(standby: embedded.EmbeddedPostgres) -> None:
    host = standby.dsn.rpartition("@")[2].partition("/")[0]

    assert "primary" in await refusal(standby.dsn.replace(host, f"{host},{host}"), DatabaseReadOnly)


async def test_of_several_hosts_the_primary_is_taken(
    standby: embedded.EmbeddedPostgres, guarded: embedded.EmbeddedPostgres
) -> None:
    standby_host, primary_host = (dsn.rpartition("@")[2].partition("/")[0] for dsn in (standby.dsn, guarded.dsn))
    async with connected(guarded.dsn) as admin:
        await admin.execute(f"alter role pulse password '{urlsplit(standby.dsn).password}'")
        url = standby.dsn.replace(standby_host, f"{standby_host},{primary_host}")

        async with await Database.connect(Settings(database_url=url)) as database:
            rows = await database.run(lambda conn: conn.fetch("select pg_is_in_recovery()"))

        await admin.execute(f"alter role pulse password '{urlsplit(guarded.dsn).password}'")
    assert rows[0][0] is False


async def test_a_refused_connection_leaves_none_behind(worker_id: str) -> None:
    async with _database(f"left_{worker_id}", then="set default_transaction_read_only = on") as url:
        for _ in range(3):
            await refusal(url, DatabaseReadOnly)

        count = "select count(*) from pg_stat_activity where datname = $1"
        async with connected(os.environ[SERVER]) as admin:
            await until(lambda: admin.fetchval(f"select ({count}) = 0", f"left_{worker_id}"))


async def test_work_on_a_database_without_the_schema_says_to_migrate(worker_id: str) -> None:
    url = await recreate_database(f"bare_{worker_id}")
    async with await Database.connect(Settings(database_url=url)) as database:
        engine = Engine(database, buckets=1)

        with pytest.raises(SchemaMismatch, match="pulse migrate"):
            await submit_one(engine)


@pytest.mark.parametrize("topic", ["\ud800", 5, "a\0b"])
async def test_a_value_that_cannot_be_sent_is_the_callers_mistake_and_not_an_outage(
    database: Database, topic: Any
) -> None:
    """The driver's own complaint about a value is a relative of its complaints about lost connections."""

    async def work(conn: Connection) -> None:
        await conn.rows("resume_topic", topic=topic)

    async with asyncio.timeout(2):
        with pytest.raises(InvalidInput):
            await database.run(work)


# --- conflicts


async def _two_rows(database: Database) -> None:
    await database.run(
        lambda conn: conn.execute(
            "insert into pulse.pauses (topic, paused_at) values ('one', now()), ('two', now()) on conflict do nothing"
        )
    )


def _touch(topic: str) -> str:
    return f"update pulse.pauses set reason = reason || 'x' where topic = '{topic}'"


async def _reasons(database: Database) -> dict[str, str]:
    rows = await database.run(lambda conn: conn.fetch("select topic, reason from pulse.pauses"))
    return {row["topic"]: row["reason"] for row in rows}


async def test_a_deadlock_is_tried_again_and_both_sides_get_through(database: Database) -> None:
    await _two_rows(database)
    tries = 0
    both_hold_one = asyncio.Barrier(2)

    def in_order(first: str, second: str) -> Callable[[Connection], Awaitable[None]]:
        has_met = False

        async def work(conn: Connection) -> None:
            nonlocal tries, has_met
            tries += 1
            await conn.execute("set local deadlock_timeout = '10ms'")
            await conn.execute(_touch(first))
            if not has_met:
                has_met = True
                await both_hold_one.wait()
            await conn.execute(_touch(second))

        return work

    async with asyncio.timeout(10):
        await asyncio.gather(
            database.run_together(in_order("one", "two")), database.run_together(in_order("two", "one"))
        )

    assert tries == 3, "one of them was chosen as the victim, once"
    assert await _reasons(database) == {"one": "xx", "two": "xx"}, "what was undone was not also counted"


def _overtaken(rival: asyncpg.Connection, *, times: int) -> tuple[Callable[[Connection], Awaitable[None]], list[int]]:
    """Work whose snapshot is outdated by someone else's commit, the first `times` times."""
    tries: list[int] = []

    async def work(conn: Connection) -> None:
        tries.append(len(tries) + 1)
        await conn.execute("set transaction isolation level repeatable read")
        await conn.fetch("select * from pulse.pauses")
        if len(tries) <= times:
            await rival.execute("update pulse.pauses set paused_at = now() where topic = 'one'")
        await conn.execute(_touch("one"))

    return work, tries


async def test_a_serialization_failure_is_tried_again(database: Database, settings: Settings) -> None:
    await _two_rows(database)
    async with connected(settings.database_url) as rival:
        work, tries = _overtaken(rival, times=CONFLICT_TRIES - 1)

        await database.run_together(work)

    assert len(tries) == CONFLICT_TRIES
    assert await _reasons(database) == {"one": "x", "two": ""}


async def test_conflicts_without_end_are_given_up_by_name(database: Database, settings: Settings) -> None:
    await _two_rows(database)
    async with connected(settings.database_url) as rival:
        work, tries = _overtaken(rival, times=100)

        with pytest.raises(Conflict, match="try again"):
            await database.run_together(work)

    assert len(tries) == CONFLICT_TRIES == 5
    assert await _reasons(database) == {"one": "", "two": ""}


# --- lost connections


async def test_a_connection_killed_in_the_middle_of_work_is_replaced(database: Database) -> None:
    await _two_rows(database)
    tries = 0

    async def work(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        await conn.execute(_touch("one"))
        if tries == 1:
            await conn.fetch(KILL_ME)
        await conn.execute(_touch("two"))

    await database.run_together(work)

    assert tries == 2
    assert await _reasons(database) == {"one": "x", "two": "x"}, "the first try was undone as a whole"


async def test_connections_killed_while_idle_are_not_noticed_by_anyone(database: Database, settings: Settings) -> None:
    rows = await database.run(lambda conn: conn.fetch("select pg_backend_pid()"))

    async with connected(settings.database_url) as rival:
        assert await rival.fetchval("select pg_terminate_backend($1, 5000)", rows[0][0])

    again = await database.run(lambda conn: conn.fetch("select pg_backend_pid()"))
    assert again != rows


async def test_a_connection_lost_for_longer_than_patience_is_unreachable(impatient: Settings) -> None:
    tries = 0

    async def work(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        await conn.fetch(KILL_ME)

    patience = timedelta(seconds=1)  # enough for another connection on a busy machine
    async with await Database.connect(replace(impatient, patience=patience)) as database:
        started = time.monotonic()
        with pytest.raises(DatabaseUnreachable, match=r"terminating connection|closed"):
            await database.run(work)

        assert time.monotonic() - started < 4
        assert tries >= 2

        assert await database.run(lambda conn: conn.fetch("select 1")), "and the next one finds it well"


async def test_a_bug_in_the_work_is_neither_repeated_nor_renamed(database: Database) -> None:
    tries = 0

    async def work(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(work)
    assert tries == 1


# --- lanes and sessions


async def test_heartbeats_have_a_lane_of_their_own(database: Database, engine: Engine, settings: Settings) -> None:
    await submit_one(engine)
    claim = await claim_one(engine)
    is_enough = asyncio.Event()
    all_held = asyncio.Barrier(settings.pool_size + 1)

    async def hold(_: Connection) -> None:
        await all_held.wait()
        await is_enough.wait()

    holders = [asyncio.create_task(database.run(hold)) for _ in range(settings.pool_size)]
    await all_held.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await engine.jobs.get(claim.id)  # the shared lane is indeed full

    async with asyncio.timeout(1):
        assert await engine.claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        assert await engine.duties.reap() == 0

    is_enough.set()
    await asyncio.gather(*holders)


async def test_a_process_takes_no_more_connections_than_it_was_given(settings: Settings, conn: Connection) -> None:
    named = replace(settings, pool_size=2)
    async with await Database.connect(named) as database:
        engine = Engine(database, buckets=settings.buckets)
        mine = {row[0] for row in await conn.fetch("select pg_backend_pid()")}
        before = await _backends(conn) | mine

        await asyncio.gather(*[submit_one(engine) for _ in range(20)])
        await asyncio.gather(*[engine.claims.heartbeat([]) for _ in range(5)])

        assert 1 <= len(await _backends(conn) - before) <= named.pool_size + 1


async def _backends(conn: Connection) -> set[int]:
    rows = await conn.fetch("select pid from pg_stat_activity where datname = current_database()")
    return {row["pid"] for row in rows}


async def test_giving_a_connection_back_costs_no_statement(database: Database, conn: Connection) -> None:
    rows = await database.run(lambda used: used.fetch("select pg_backend_pid() as pid, 'the last word'"))

    activity = await conn.fetch("select state, query from pg_stat_activity where pid = $1", rows[0]["pid"])

    assert [tuple(row) for row in activity] == [("idle", "select pg_backend_pid() as pid, 'the last word'")]


async def test_nothing_is_left_in_a_session(settings: Settings) -> None:
    async with await Database.connect(replace(settings, pool_size=1)) as database:
        engine = Engine(database, buckets=settings.buckets)
        await submit_one(engine)
        await engine.claims.report([a_report(await claim_one(engine))])
        for step in (engine.duties.promote, engine.duties.prune, engine.duties.tally):
            await step()

        left = await database.run(
            lambda conn: conn.fetch(
                # jit: the driver turns it off while it looks up a type, and back to what it was
                "select name from pg_settings where source = 'session' and name <> 'jit' "
                "union all select locktype from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() "
                "union all select pg_listening_channels()"
            )
        )

        assert left == []


async def test_plans_are_pinned_from_the_first_statement_on(database: Database) -> None:
    rows = await database.run(
        lambda conn: conn.fetch("select name, setting from pg_settings where name = any($1)", list(PLAN_SETTINGS))
    )

    assert {row["name"]: row["setting"] for row in rows} == PLAN_SETTINGS


async def test_transactions_are_read_committed_whatever_the_database_says(worker_id: str) -> None:
    """Under a stricter level, SKIP LOCKED raises where it should skip."""
    async with _database(f"strict_{worker_id}", then="set default_transaction_isolation = 'serializable'") as url:
        async with await Database.connect(Settings(database_url=url)) as database:
            alone = await database.run(lambda conn: conn.fetch("show transaction_isolation"))
            together = await database.run_together(lambda conn: conn.fetch("show transaction_isolation"))

        assert [row[0] for row in [*alone, *together]] == ["read committed"] * 2


async def test_the_patience_is_used_to_its_end(settings: Settings) -> None:
    """The pauses between tries grow; the last one must not be cut off with all that was left."""
    tries: list[float] = []

    async def break_off(_: Connection) -> None:
        tries.append(asyncio.get_running_loop().time())
        raise ConnectionResetError

    async with await Database.connect(replace(settings, patience=timedelta(seconds=1))) as database:
        began = asyncio.get_running_loop().time()
        with pytest.raises(DatabaseUnreachable):
            await database.run(break_off)

    assert tries[-1] - began >= 1


# --- lanes


async def backend(conn: Connection) -> int:
    [row] = await conn.fetch("select pg_backend_pid()")
    return int(row[0])


async def test_a_connection_is_opened_once_and_used_again(database: Database) -> None:
    assert await database.run(backend) == await database.run(backend)


async def test_a_refused_statement_leaves_the_connection_as_good_as_before(database: Database) -> None:
    before = await database.run(backend)

    with pytest.raises(PulseError):
        await database.run(lambda conn: conn.execute("select 1 / 0"))

    assert await database.run(backend) == before


async def test_a_connection_whose_work_was_cut_short_is_not_used_again(database: Database) -> None:
    before = await database.run(backend)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(database.run(lambda conn: conn.execute("select pg_sleep(10)")), 0.1)

    assert await database.run(backend) != before


async def test_a_connection_left_in_a_transaction_is_not_used_again(database: Database) -> None:
    before = await database.run(backend)

    await database.run(lambda conn: conn.execute("begin"))

    assert await database.run(backend) != before


async def test_after_closing_the_answer_comes_at_once_and_says_why(settings: Settings) -> None:
    database = await Database.connect(settings)
    await database.close()

    with pytest.raises(DatabaseUnreachable, match="closed by this program"):
        await database.run(backend)
