"""Is the one of several hosts found that takes writes, also where another hangs instead of refusing?"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from pulse import Pulse
from pulse.engine.engine import open_engine
from pulse.model.errors import DatabaseUnreachable
from pulse.settings import Settings
from pulse.store.connections import hosts, pool
from pulse.store.connections.hosts import Host, read_hosts
from pulse.store.connections.notifications import Notifications
from pulse.store.connections.pool import Connection, Database, connect, connect_options
from pulse.store.schema.migrate import migrate
from tests.conftest import SERVER
from tests.doors.command_line import call_json


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://me:secret@a:1,b/shop", [("a", 1), ("b", 5432)]),
        ("postgresql://me@[::1]:7,[fe80::2]/shop", [("::1", 7), ("fe80::2", 5432)]),
        ("postgresql://me@%2Ftmp%2Fx:5,b/shop", [("/tmp/x", 5), ("b", 5432)]),
        ("postgresql:///shop?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql:///shop?host=a,b&port=1", [("a", 1), ("b", 1)]),
        ("postgresql:///shop?host=a:3,b", [("a", 3), ("b", 5432)]),
        ("postgresql://me@/shop?host=/tmp/x,b", [("/tmp/x", 5432), ("b", 5432)]),
        ("postgresql://me@/shop", []),
        ("postgresql:///shop?host=a,b&port=1,2,3", []),
        ("postgresql://a:x,b/shop", []),
        ("postgresql://[broken", []),
    ],
)
def test_hosts_are_read_from_either_spelling(url: str, found: list[tuple[str, int]]) -> None:
    assert read_hosts(url) == [Host(*each) for each in found]


@pytest.mark.parametrize("spelling", ["postgresql://a,b/shop?x=1", "postgresql:///shop?host=a,b"])
def test_several_hosts_ask_for_the_one_that_takes_writes_unless_the_url_says_otherwise(spelling: str) -> None:
    assert connect_options(Settings(database_url=spelling))["target_session_attrs"] == "read-write"
    written = Settings(database_url=f"{spelling}&target_session_attrs=any")
    assert "target_session_attrs" not in connect_options(written), "the driver reads it from there"


# --- one that hangs


@contextmanager
def silent(kind: str) -> Iterator[int]:
    """A port that takes connections and never says a word, or does not even take them."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0 if kind == "full" else 100)
        port = int(listening.getsockname()[1])
        waiting = [socket.socket() for _ in range(4 if kind == "full" else 0)]
        for each in waiting:  # more than the queue holds
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        yield port
        for each in waiting:
            each.close()


@pytest.fixture(params=["mute", "full"])
async def behind_silence(
    request: pytest.FixtureRequest, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Settings]:
    """The real Postgres as the second of two hosts."""
    parts = urlsplit(str(settings.database_url))
    [folder], [port] = parse_qs(parts.query)["host"], parse_qs(parts.query)["port"]
    hosts._last_good.clear()
    monkeypatch.setattr(pool, "HOST_PATIENCE", 0.5)
    with silent(request.param) as dead:
        url = f"postgresql://{parts.netloc}{parts.path}?host=127.0.0.1,{quote(folder)}&port={dead},{port}"
        yield replace(settings, database_url=url)
    hosts._last_good.clear()


async def one(conn: Connection) -> int:
    [row] = await conn.fetch("select 1")
    return int(row[0])


@pytest.mark.slow
async def test_a_host_that_hangs_does_not_keep_anybody_from_the_next(
    behind_silence: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each finds its way by itself, with nothing to remember."""
    listening = Notifications(Database(behind_silence))

    async def listen() -> None:
        listening.start()
        await until_listening(listening)

    async def work() -> None:
        async with open_engine(behind_silence) as engine:
            await engine.read_clock()

    def enqueue() -> None:
        with closing(Pulse(settings=behind_silence)) as app:
            app.task(name="mail")(lambda: None).enqueue()

    monkeypatch.setattr(pool, "remember", lambda *_: None)
    async with Database(behind_silence) as database, asyncio.timeout(30):
        await asyncio.gather(
            database.run(one),
            database.run(one, reserved=True),
            listen(),
            work(),
            asyncio.to_thread(enqueue),
            migrate(behind_silence),
            asyncio.to_thread(call_json, "topics", "list", PULSE_DATABASE_URL=behind_silence.database_url),
        )
        await listening.stop()


async def until_listening(notifications: Notifications) -> None:
    while not notifications.is_listening:
        await asyncio.sleep(0.01)


@pytest.mark.slow
async def test_the_host_that_was_good_is_tried_first(behind_silence: Settings) -> None:
    good = read_hosts(str(behind_silence.database_url))[1]
    (await connect(behind_silence)).terminate()

    impatient = replace(behind_silence, patience=timedelta(seconds=60))
    assert hosts.in_order(read_hosts(str(behind_silence.database_url)))[0] == good
    async with asyncio.timeout(30):
        for _ in range(20):
            (await connect(impatient)).terminate()


async def test_patience_bounds_it_all(settings: Settings) -> None:
    with silent("mute") as first, silent("full") as second:
        url = f"postgresql://me@127.0.0.1:{first},127.0.0.1:{second}/shop"
        impatient = replace(settings, database_url=url, patience=timedelta(milliseconds=200))

        async with asyncio.timeout(10):
            with pytest.raises(DatabaseUnreachable, match=f"127.0.0.1:{first}, 127.0.0.1:{second}"):
                await Database.connect(impatient)


async def test_a_refusal_says_more_than_silence(settings: Settings) -> None:
    server = urlsplit(os.environ[SERVER])
    [folder] = parse_qs(server.query)["host"]
    with silent("mute") as dead:
        url = f"postgresql://pulse@/nosuch?host=127.0.0.1,{quote(folder)}&port={dead},5432"
        impatient = replace(settings, database_url=url, patience=timedelta(seconds=1))

        with pytest.raises(Exception, match='database "nosuch" does not exist'):
            await Database.connect(impatient)
