"""Does everything work behind a pooler that hands out a server for one transaction at a time?"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest

from pulse.engine.doctor import examine
from pulse.engine.engine import Engine, open_engine
from pulse.engine.jobs.low_water_marks import START
from pulse.links.transactions import aenqueue_through, complete_through, fence_through
from pulse.model.doctor.findings import Level
from pulse.model.errors import InvalidDatabaseUrl
from pulse.model.ids import bucket_of_topic
from pulse.model.jobs import JobFilter, JobStatus, Outcome, Progress, ReportStatus, RetryPolicy
from pulse.settings import Settings
from pulse.store.connections.pool import PLAN_SETTINGS, Connection, Database
from pulse.store.doctor import is_pooled
from pulse.store.embedded import server as embedded
from pulse.store.schema.migrate import check, migrate
from pulse.store.statements import Statement, load_statements
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one

SERVERS = 4  # what the pooler may open, whatever the number of clients
CONFIG = """
[databases]
* = host=127.0.0.1 port={port} user=pulse password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {servers}
max_client_conn = 100
logfile = {folder}/pgbouncer.log
"""


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[str, str]]:
    """A server of our own: its address through pgbouncer, and its own."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    binaries = os.environ.get("PULSE_POSTGRES", "wheel")
    with (
        embedded.start(folder / "state", postgres=binaries, port=0, settings={"fsync": "off"}) as server,
        pgbouncer(program, folder, server.dsn) as listen,
    ):
        yield f"postgresql://pulse@127.0.0.1:{listen}/pulse", server.dsn
    shutil.rmtree(folder, ignore_errors=True)


class pgbouncer:  # noqa: N801  reads as a function where it is used
    def __init__(self, program: str, folder: Path, dsn: str) -> None:
        address = urlsplit(dsn)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._listen = int(free.getsockname()[1])
        self._folder, self._config = folder, folder / "pgbouncer.ini"
        self._config.write_text(
            CONFIG.format(
                port=address.port, password=address.password, listen=self._listen, servers=SERVERS, folder=folder
            )
        )
        self._program = program

    def __enter__(self) -> int:
        as_nobody: dict[str, Any] = {}
        if os.geteuid() == 0:  # it will not run as root
            as_nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            self._folder.chmod(0o777)
        self._process = subprocess.Popen(
            [self._program, "-q", str(self._config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **as_nobody
        )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", self._listen)) == 0:
                    return self._listen
            time.sleep(0.02)
        self.__exit__()
        pytest.fail(f"pgbouncer did not start: {(self._folder / 'pgbouncer.log').read_text()}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)


@pytest.fixture
async def pooled(behind: tuple[str, str]) -> Settings:
    """Settings for an empty schema behind the pooler."""
    settings = Settings(database_url=behind[0], pgbouncer=True)
    async with connected(behind[1]) as direct:
        await direct.execute("drop schema if exists pulse cascade")
    await migrate(settings)
    return settings


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        conn.terminate()


async def test_the_whole_life_of_a_job(pooled: Settings) -> None:
    async with open_engine(pooled) as engine:
        jobs, claims = engine.jobs, engine.claims
        done = await submit_one(engine, retry=RetryPolicy(kind="fixed", base=0, jitter=0), unique_key="k")
        assert await submit_one(engine, unique_key="k") == done
        claim = await claim_one(engine)
        assert await claims.heartbeat([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        assert await claims.progress([Progress(id=done, lease_id=claim.lease_id, value="0.5")]) == [
            ReportStatus.ACCEPTED
        ]
        assert await claims.report([a_report(claim, Outcome.FAIL)]) == [ReportStatus.ACCEPTED]
        await engine.duties.promote()
        claim = await claim_one(engine)
        assert await claims.release([lease_of(claim)]) == [ReportStatus.ACCEPTED]
        claim = await claim_one(engine)
        assert await claims.report([a_report(claim, Outcome.DISCARD)]) == [ReportStatus.ACCEPTED]
        assert (await jobs.replay(done)).status is JobStatus.PENDING
        assert await claims.report([a_report(await claim_one(engine))]) == [ReportStatus.ACCEPTED]
        assert (await jobs.get(done)).status is JobStatus.COMPLETED
        cancelled = await submit_one(engine)
        assert (await jobs.cancel(cancelled)).status is JobStatus.CANCELLED
        await jobs.pause("mail")
        assert await jobs.resume("mail")
        for status in (None, *JobStatus):
            assert (await jobs.list_page(JobFilter(status=status))).next is None
        for step in (engine.duties.promote, engine.duties.reap, engine.duties.prune, engine.duties.tally):
            await step()
        [counts] = await jobs.counts()
        assert counts.counts == {JobStatus.COMPLETED: 1, JobStatus.CANCELLED: 1}


async def test_jobs_travel_through_the_callers_own_transaction(pooled: Settings) -> None:
    """Often enough for a driver that would prepare its statements, and for each server to have its turn."""
    async with open_engine(pooled) as engine, AsyncExitStack() as stack:
        conns: list[Any] = [
            await asyncpg.connect(pooled.database_url, statement_cache_size=0),
            await psycopg.AsyncConnection.connect(str(pooled.database_url), prepare_threshold=None),
        ]
        for conn in conns:
            stack.push_async_callback(conn.close)
        for conn in conns * 8:
            async with conn.transaction():
                [job_id] = await aenqueue_through(conn, [a_new_job()])
            lease = lease_of(await claim_one(engine))
            async with conn.transaction():
                await fence_through(conn, lease)
                await complete_through(conn, lease, "true")
            assert (await engine.jobs.get(job_id)).status is JobStatus.COMPLETED


async def test_the_duties_run_and_wake_ups_are_sent(behind: tuple[str, str], pooled: Settings) -> None:
    async with open_engine(pooled) as engine, open_engine(replace(pooled, listen_url=behind[1])) as other:
        heard = asyncio.Event()
        other.notifications.on_ready(lambda woken: heard.set() if woken.topic == "mail" else None)
        engine.start()
        other.notifications.start()
        async with asyncio.timeout(5):
            while not other.notifications.is_listening:
                await asyncio.sleep(0.01)

            job_id = await submit_one(engine, delay=timedelta(milliseconds=20))

            await heard.wait()
        assert (await engine.jobs.get(job_id)).status is JobStatus.PENDING
        assert not engine.notifications.is_listening, "there is nowhere to listen behind a pooler"


async def test_plans_are_pinned_in_each_transaction(pooled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = load_statements(pooled.schema)["claim_jobs"]
    given: dict[str, object] = {
        "bucket": bucket_of_topic("mail", pooled.buckets),
        "topic": "mail",
        "workers": ["w1"],
        "limit": 1,
        "lease": timedelta(seconds=30),
        "mark_urgency": START.urgency,
        "mark_ready_at": START.ready_at,
        "mark_id": START.id,
    }
    values = [given[name] for name in statement.parameters]

    async def explain(conn: Connection) -> tuple[str, dict[str, str]]:
        rows = await conn.fetch(f"explain {statement.sql}", *values)
        pinned = await conn.fetch("select name, setting from pg_settings where name = any($1)", list(PLAN_SETTINGS))
        return "\n".join(row[0] for row in rows), {row["name"]: row["setting"] for row in pinned}

    async with await Database.connect(pooled) as database:
        plan, pinned = await database.run_together(explain)

        # A statement on its own is pinned as well.
        probe = Statement("probe", (), "select name, setting from pg_settings where source = 'session'")
        monkeypatch.setitem(database.statements, "probe", probe)
        alone = await database.run(lambda conn: conn.rows("probe"))

    assert PLAN_SETTINGS.keys() <= {row["name"] for row in alone}
    assert "Index Scan using jobs_claim on jobs" in plan
    assert "Sort Key: ((-" not in plan, "the order comes from the index"
    assert "Seq Scan on jobs" not in plan
    assert pinned == PLAN_SETTINGS


async def test_transactions_are_read_committed_whatever_the_database_says(
    behind: tuple[str, str], pooled: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler refuses this as a setting of the connection, so each transaction says it."""
    async with connected(behind[1]) as direct:
        await direct.execute("drop database if exists strict with (force)")
        await direct.execute("create database strict")
        await direct.execute("alter database strict set default_transaction_isolation = 'serializable'")
    strict = replace(pooled, database_url=behind[0].replace("/pulse", "/strict"))
    probe = Statement("probe", (), "show transaction_isolation")

    async with await Database.connect(strict) as database:
        monkeypatch.setitem(database.statements, "probe", probe)
        alone = await database.run(lambda conn: conn.rows("probe"))
        together = await database.run_together(lambda conn: conn.rows("probe"))

    assert [row[0] for row in [*alone, *together]] == ["read committed"] * 2


async def test_nothing_is_left_on_the_servers_for_others_to_find(behind: tuple[str, str], pooled: Settings) -> None:
    """jit excepted: the driver puts it back after looking up types, as a setting of the session."""
    async with open_engine(pooled) as engine:
        await asyncio.gather(*[submit_one(engine) for _ in range(20)])
        await asyncio.gather(*[engine.claims.claim("mail", worker="w1", slots=2) for _ in range(5)])
        await migrate(replace(pooled, schema="second"))

    names = (*[name for name in PLAN_SETTINGS if name != "jit"], "lock_timeout", "statement_timeout")
    async with connected(behind[1]) as direct:
        expected = {name: await direct.fetchval(f"show {name}") for name in names}
        await direct.execute("drop schema second cascade")
    clients = [await asyncpg.connect(behind[0], statement_cache_size=0) for _ in range(SERVERS)]
    try:
        transactions = [client.transaction() for client in clients]
        for transaction in transactions:
            await transaction.start()  # each holds a server of its own
        servers = {await client.fetchval("select pg_backend_pid()") for client in clients}
        assert len(servers) == SERVERS
        for client in clients:
            assert {name: await client.fetchval(f"show {name}") for name in names} == expected
    finally:
        for client in clients:
            client.terminate()


@pytest.mark.parametrize("attempt", [migrate, check, Database.connect])
async def test_without_the_setting_the_error_says_which_one(behind: tuple[str, str], attempt: Any) -> None:
    with pytest.raises(InvalidDatabaseUrl, match="set PULSE_PGBOUNCER=1"):
        await attempt(Settings(database_url=behind[0]))


async def test_more_clients_than_servers_get_along(behind: tuple[str, str], pooled: Settings) -> None:
    clients = 12
    jobs_each = 25

    async def client(number: int) -> int:
        async with open_engine(replace(pooled, pool_size=2)) as engine:
            await engine.jobs.submit([a_new_job() for _ in range(jobs_each)])
            done = 0
            while claims := await engine.claims.claim("mail", worker=f"w{number}", slots=5):
                assert await engine.claims.heartbeat([lease_of(claim) for claim in claims]) == [
                    ReportStatus.ACCEPTED
                ] * len(claims)
                answers = await engine.claims.report([a_report(claim) for claim in claims])
                assert set(answers) == {ReportStatus.ACCEPTED}
                done += len(claims)
            return done

    async with asyncio.timeout(30):
        done = await asyncio.gather(*[client(number) for number in range(clients)])

    assert sum(done) <= clients * jobs_each
    async with open_engine(pooled) as engine:
        await _drain(engine)
        [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.COMPLETED: clients * jobs_each}
    async with connected(behind[1]) as direct:
        used = await direct.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and backend_type = 'client backend' and pid <> pg_backend_pid()"
        )
    assert used <= SERVERS


async def _drain(engine: Engine) -> None:
    while claims := await engine.claims.claim("mail", worker="last", slots=100):
        await engine.claims.report([a_report(claim) for claim in claims])


# --- what a doctor says of it


async def found_of(settings: Settings, name: str) -> list[tuple[Level, str]]:
    return [(each.level, each.text) for each in await examine(settings) if each.name == name]


async def test_a_doctor_knows_a_pooler_when_he_sees_one(behind: tuple[str, str], pooled: Settings) -> None:
    straight = Settings(database_url=behind[1])
    [(level, text)] = await found_of(Settings(database_url=behind[0]), "database")

    assert (level, "PULSE_PGBOUNCER=1" in text) == (Level.FAIL, True)
    assert (await found_of(pooled, "pooler"))[0][0] is Level.WARN
    assert (await found_of(replace(pooled, listen_url=behind[1]), "pooler"))[0][0] is Level.OK
    assert (await found_of(straight, "pooler"))[0] == (Level.OK, "each connection keeps its server process")
    assert (await found_of(replace(pooled, listen_url=behind[1]), "notifier"))[0] == (Level.OK, "notifications arrive")


async def test_a_doctor_sees_a_pooler_that_lets_everything_pass(pooled: Settings) -> None:
    """One that takes our settings and keeps prepared statements: nothing fails at first, and plans are not pinned."""
    assert await is_pooled(pooled)
