"""Is a server ready only while something can be written? On a database that is made to refuse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pulse.model.errors import DatabaseReadOnly
from pulse.server import Server, open_server
from pulse.settings import Settings
from pulse.store.connections import pool
from pulse.telemetry import health
from pulse.telemetry.health import Health
from tests.factories import submit_one
from tests.waiting import connected, until

FULL = """
create or replace function pulse.is_full() returns trigger language plpgsql as $$
begin
    raise exception 'could not extend file: No space left on device' using errcode = 'disk_full';
end $$
"""


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Server]:
    async with open_server(replace(settings, listen="127.0.0.1:0")) as server:
        yield server


@pytest.fixture
def readiness(server: Server, monkeypatch: pytest.MonkeyPatch) -> Health:
    """As `/readyz` has it, but asked as often as one likes."""
    monkeypatch.setattr(health, "ASK_EVERY", 0.0)
    return Health(server, server.ask_database, lambda: server.metrics)


@asynccontextmanager
async def full_disk(settings: Settings, table: str) -> AsyncIterator[None]:
    """What is written to the table finds no room."""
    async with connected(settings.database_url) as conn:
        await conn.execute(FULL)
        await conn.execute(
            f"create trigger is_full before insert or update on pulse.{table} for each row "
            "execute function pulse.is_full()"
        )
        try:
            yield
        finally:
            await conn.execute(f"drop trigger is_full on pulse.{table}")
            await conn.execute("drop function pulse.is_full")


async def is_ready(readiness: Health) -> bool:
    return not await readiness.why_not_ready()


async def test_a_server_is_not_ready_while_nothing_can_be_written(
    settings: Settings, readiness: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "UNWRITABLE_FOR", 0.1)  # a duty of its own may meet the full disk as well
    assert await readiness.why_not_ready() == ""

    async with full_disk(settings, "watch"):
        why = await readiness.why_not_ready()
        assert "the database takes no writes: could not extend file: No space left on device" in why

    await until(lambda: is_ready(readiness))


async def test_a_write_that_was_refused_a_moment_ago_counts_as_well(
    server: Server, settings: Settings, readiness: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can still be written may be somewhere else."""
    async with full_disk(settings, "jobs"):
        assert await is_ready(readiness)
        with pytest.raises(DatabaseReadOnly, match="look at the disk of the server"):
            await submit_one(server._engine)
        assert "No space left on device" in await readiness.why_not_ready()

    monkeypatch.setattr(pool, "UNWRITABLE_FOR", 0.0)  # its time is over
    assert await is_ready(readiness)


async def test_a_read_only_database_is_told_and_so_is_its_end(
    server: Server, settings: Settings, readiness: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that were begun meanwhile stay read-only, so they must not be kept."""
    monkeypatch.setattr(pool, "UNWRITABLE_FOR", 0.1)

    async def turn(conn: Any, on: str) -> None:
        name = await conn.fetchval("select current_database()")
        await conn.execute(f"alter database {name} {on}")

    async with connected(settings.database_url) as conn:
        await turn(conn, "set default_transaction_read_only = on")
        try:
            server._engine._database.close_idle()
            async with asyncio.timeout(10):
                why = await readiness.why_not_ready()
        finally:
            await conn.execute("set default_transaction_read_only = off")
            await turn(conn, "reset default_transaction_read_only")

    assert "the database takes no writes: cannot execute INSERT in a read-only transaction" in why
    await until(lambda: is_ready(readiness))
    await submit_one(server._engine)
