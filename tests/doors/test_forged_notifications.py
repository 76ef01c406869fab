"""Can whoever may connect to the database disturb workers with NOTIFY? The weakest role of the documents tries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pulse.server import Server, open_server
from pulse.store.connections import notifications as notifications
from pulse.store.connections.notifications import EVERYTHING, Notifications
from tests.doors.grpc_client import Client
from tests.doors.grpc_client import connected as channel_to
from tests.doors.test_grpc_work import streaming
from tests.factories import submit_one
from tests.store.test_roles import House, house
from tests.waiting import connected, until

__all__ = ["house"]  # a fixture

CHANNEL = '"pulse".notify'
RUBBISH = [
    "",
    "\n",
    "@",
    "@\n?",
    "?",
    "!",
    "!!",
    "! ",
    "!nobody/at all",
    "+",
    "+99999",
    "-",
    "1000 mail",
    "-999 mail",
    "999 *",
    "0 " + "x" * 7_000,
    "\n".join(f"5 t{number}" for number in range(900)),
    "5 \u202e\U0001f4a5",
]


@pytest.fixture
async def server(house: House) -> AsyncIterator[Server]:
    settings = replace(
        house.settings("pulse_runtime"), listen="127.0.0.1:0", http_listen="", tick=timedelta(seconds=60)
    )
    async with open_server(settings) as server:
        await until(lambda: _is_listening(server))
        yield server


async def _is_listening(server: Server) -> bool:
    return server._engine.notifications.is_listening


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with channel_to(str(server.address)) as client:
        yield client


@pytest.fixture
async def stranger(house: House) -> AsyncIterator[Any]:
    async with connected(house.settings("pulse_scaler").database_url) as conn:
        yield conn


async def test_nobody_else_ends_a_stream(server: Server, client: Client, stranger: Any) -> None:
    async with streaming(client, "w1", (["mail"], 5)) as stream:
        worker = "local/w1"
        for _ in range(20):
            await stranger.execute("select pg_notify($1, $2)", CHANNEL, f"!{worker}")
            await stranger.execute("select pg_notify($1, $2)", CHANNEL, f"@deadbeef\n!{worker}")
        for payload in RUBBISH:
            await stranger.execute("select pg_notify($1, $2)", CHANNEL, payload)
        assert await stream.nothing()

        await submit_one(server._engine)  # by a wake-up: the next poll is far away
        assert len(await stream.jobs(1)) == 1


async def test_forged_hints_cost_a_bounded_number_of_looks(
    server: Server, client: Client, stranger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    original = server._engine.workers.moved

    async def counted(streams: Any) -> Any:
        nonlocal looks
        looks += 1
        return await original(streams)

    monkeypatch.setattr(server._engine.workers, "moved", counted)
    async with streaming(client, "w1", (["mail"], 5)):
        began = asyncio.get_running_loop().time()
        for number in range(500):
            await stranger.execute("select pg_notify($1, $2)", CHANNEL, f"@{number}\n!local/w1")
        await asyncio.sleep(0.2)
        took = asyncio.get_running_loop().time() - began

    assert 1 <= looks <= 1 + took / 0.05


async def test_a_flood_is_heard_as_one_word(server: Server, stranger: Any) -> None:
    heard: list[Any] = []
    hearing = Notifications(server._engine._database)
    hearing.on_ready(heard.append)
    hearing.start()
    await until(lambda: _listens(hearing))
    heard.clear()

    flood = "\n".join(f"5 t{number}" for number in range(600))
    began = asyncio.get_running_loop().time()
    for _ in range(100):
        await stranger.execute("select pg_notify($1, $2)", CHANNEL, flood)
    await until(lambda: _has(heard, EVERYTHING))
    await asyncio.sleep(0.1)
    took = asyncio.get_running_loop().time() - began
    await hearing.stop()

    told = [item for item in heard if item == EVERYTHING or item.topic.startswith("t")]  # others may have news, too
    assert set(told) == {EVERYTHING}, told[:5]
    assert len(told) <= 2 + took / notifications.FLOOD_SPACING, took


async def _listens(hearing: Notifications) -> bool:
    return hearing.is_listening


async def _has(heard: list[Any], item: Any) -> bool:
    return item in heard
