"""Does `pulse workers` show who is connected, straight from the database and through a server?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pulse.engine.dispatch.worker_stream import Pool, WorkerStream
from pulse.engine.engine import Engine
from pulse.settings import Settings
from tests.doors.command_line import call, call_json
from tests.served import Served


@pytest.fixture(params=["database", "server"])
def env(settings: Settings, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if request.param == "database":
        yield {"PULSE_DATABASE_URL": str(settings.database_url), "PULSE_SCHEMA": settings.schema}
        return
    served = Served(settings, count=1)
    try:
        yield {"PULSE_SERVER_URL": str(served.start().server_url)}
    finally:
        served.stop()


def test_nobody_is_there(env: dict[str, str]) -> None:
    assert call("workers", **env).output == "No worker is connected.\n"
    assert call_json("workers", **env) == {"workers": []}


async def test_who_is_there(engine: Engine, env: dict[str, str]) -> None:
    stream = WorkerStream("shop/w1", [Pool(("mail", "render"), 10), Pool(("render",), 2)], version="plain/1")
    await engine.workers.duty(lambda: [stream])()

    [worker] = (await asyncio.to_thread(call_json, "workers", **env))["workers"]
    shown = (await asyncio.to_thread(call, "workers", **env)).output

    assert {name: worker[name] for name in ("name", "version", "topics", "slots", "busy", "server")} == {
        "name": "shop/w1",
        "version": "plain/1",
        "topics": ["mail", "render"],
        "slots": 12,
        "busy": 0,
        "server": engine.workers.server,
    }
    assert "shop/w1" in shown
    assert "just now" in shown


async def test_who_has_left_is_gone_with_the_next_word(engine: Engine, env: dict[str, str]) -> None:
    streams = [WorkerStream(f"shop/w{n}", [Pool(("mail",), 1)]) for n in range(2)]
    note = engine.workers.duty(lambda: streams)
    await note()
    del streams[0]
    await note()

    [left] = (await asyncio.to_thread(call_json, "workers", **env))["workers"]
    assert left["name"] == "shop/w1"
