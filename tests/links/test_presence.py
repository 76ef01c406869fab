"""Does a worker without a server show that it is there, and that it has gone?"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from pulse import Pulse
from pulse.engine.engine import Engine
from pulse.engine.workers import Workers
from pulse.model.errors import DatabaseUnreachable
from pulse.model.workers import Presence
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from pulse.store.connections.pool import Database
from pulse.version import __version__
from tests.clock import FrozenClock
from tests.waiting import until


async def test_a_worker_straight_on_the_database_is_seen_while_it_is_there(settings: Settings, engine: Engine) -> None:
    app = Pulse(settings=settings)

    @app.task(topic="mail")
    async def send() -> None: ...

    worker = Worker(app, topics=["mail", "post"])
    living = asyncio.create_task(worker.run())
    try:
        await until(engine.workers.list)
        [seen] = await engine.workers.list()
    finally:
        worker.stop()
        await living

    assert (seen.name, seen.server, seen.topics) == (worker.name, "", ["mail", "post"])
    assert (seen.version, seen.slots, seen.busy) == (f"pulse-python/{__version__}", settings.concurrency, 0)
    assert await engine.workers.list() == []


def a_presence(name: str, busy: int = 0) -> Presence:
    return Presence(name=name, version="1", topics=["mail"], slots=5, busy=busy, age=timedelta())


async def test_one_does_not_speak_for_another(database: Database) -> None:
    """Each of them cleans up behind itself only."""
    ada, bob = Workers(database), Workers(database)
    await ada.own_duty("ada", lambda _: a_presence("ada"))()
    await bob.own_duty("bob", lambda _: a_presence("bob"))()

    await bob.leave("bob")

    assert [worker.name for worker in await ada.list()] == ["ada"]


async def test_who_has_left_says_nothing_more(database: Database) -> None:
    workers = Workers(database)
    note = workers.own_duty("ada", lambda _: a_presence("ada", busy=1))
    await note()
    await workers.leave("ada")

    await note()

    assert await workers.list() == []


async def test_a_row_that_another_session_holds_is_left_to_it(database: Database, clock: FrozenClock) -> None:
    """After an outage everyone is late: nobody waits for a row of someone who is just coming back."""
    await Workers(database).own_duty("late", lambda _: a_presence("late"))()
    await clock.advance(timedelta(minutes=2))
    holder = await asyncpg.connect(database.settings.database_url)
    async with holder.transaction(), asyncio.timeout(5):
        await holder.execute("select from pulse.workers where name = 'late' for update")

        await Workers(database).own_duty("ada", lambda _: a_presence("ada"))()

    assert [worker.name for worker in await Workers(database).list()] == ["ada"]
    await holder.close()


async def test_a_worker_whose_text_cannot_be_stored_does_not_hide_the_others(database: Database) -> None:
    odd = Presence(name="odd", version="v\x00", topics=["a\ud800"], slots=1, busy=0, age=timedelta())
    workers = Workers(database)

    await workers._record_step("here", lambda _: [odd, a_presence("ada")])()

    assert {worker.name: worker.version for worker in await workers.list()} == {"odd": "v\ufffd", "ada": "1"}


async def test_a_presence_that_could_not_be_written_is_written_at_the_next_step(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(database)
    note = workers.own_duty("ada", lambda _: a_presence("ada"))
    with monkeypatch.context() as broken, pytest.raises(DatabaseUnreachable):
        broken.setattr(database, "run_duty", unreachable)
        await note()

    await note()

    assert [worker.name for worker in await workers.list()] == ["ada"]


async def unreachable(*_: object, **__: object) -> None:
    raise DatabaseUnreachable("cannot reach the database")
