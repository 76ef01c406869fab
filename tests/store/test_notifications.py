"""Is there always a hint that there may be work, soon and cheaply, and does nothing depend on it?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine, open_engine
from pulse.model.errors import DatabaseUnreachable
from pulse.settings import Settings
from pulse.store.connections import notifications as notifications
from pulse.store.connections.notifications import EVERYTHING, LONGEST_MESSAGE, Notifications
from pulse.store.connections.pool import Database
from pulse.store.jobs.rows import ReadyTopic
from tests.factories import a_new_job, a_report, claim_one, lease_of, submit_one

CHANNEL = '"pulse".notify'


class ReceivedHints:
    """What one process was told."""

    def __init__(self, source: Notifications) -> None:
        self.woken: list[ReadyTopic] = []
        self.later: list[timedelta] = []
        self._changed = asyncio.Event()
        source.on_ready(lambda item: self._note(self.woken, item))
        source.on_due_soon(lambda delay: self._note(self.later, delay))

    def _note(self, where: list[Any], item: Any) -> None:
        where.append(item)
        self._changed.set()

    async def until(self, condition: Callable[[ReceivedHints], object], patience: float = 2.0) -> None:
        async with asyncio.timeout(patience):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    def forget(self) -> None:
        self.woken.clear()
        self.later.clear()


@asynccontextmanager
async def process(settings: Settings, *, is_listening: bool = True) -> AsyncIterator[tuple[Engine, ReceivedHints]]:
    """An engine as another process would have it, with its wake-ups running and its duties not."""
    async with await Database.connect(settings) as database:
        engine = Engine(database, buckets=settings.buckets)
        heard = ReceivedHints(engine.notifications)
        engine.notifications.start()
        try:
            if is_listening:
                await heard.until(lambda heard: EVERYTHING in heard.woken)
                heard.forget()
            yield engine, heard
        finally:
            await engine.notifications.stop()


@pytest.fixture
async def here(settings: Settings) -> AsyncIterator[tuple[Engine, ReceivedHints]]:
    async with process(settings) as made:
        yield made


@pytest.fixture
async def there(settings: Settings) -> AsyncIterator[tuple[Engine, ReceivedHints]]:
    async with process(settings) as made:
        yield made


@pytest.fixture
async def wire(settings: Settings) -> AsyncIterator[tuple[asyncpg.Connection, list[str]]]:
    """A connection that is nobody's, and all that is sent while it listens."""
    conn = await asyncpg.connect(settings.database_url)
    sent: list[str] = []
    await conn.add_listener(CHANNEL, lambda *heard: sent.append(str(heard[3])))
    yield conn, sent
    conn.terminate()


async def flushed(conn: asyncpg.Connection) -> None:
    """All that was committed before this has been heard after it."""
    await conn.execute(f"notify {_quoted(CHANNEL)}, 'end'")
    await conn.execute("select 1")


def _quoted(channel: str) -> str:
    return '"' + channel.replace('"', '""') + '"'


# --- from process to process


async def test_a_submit_here_is_heard_there_long_before_a_poll(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0], topic="mail", priority=7)

    await there[1].until(lambda heard: heard.woken)

    assert there[1].woken == [ReadyTopic("mail", 7)]


async def test_within_a_process_it_is_a_call_and_needs_no_message(settings: Settings) -> None:
    async with process(replace(settings, notify=False), is_listening=False) as (engine, heard):
        await submit_one(engine, topic="mail", priority=3)

        assert heard.woken == [ReadyTopic("mail", 3)]


async def test_a_process_does_not_hear_itself(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0])
    await there[1].until(lambda heard: heard.woken)
    here[1].forget()

    await submit_one(there[0], topic="answer")  # sent later, so whatever it was sent itself would come first
    await here[1].until(lambda heard: heard.woken)

    assert here[1].woken == [ReadyTopic("answer", 0)]


async def test_many_submits_make_few_messages(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()

    for number in range(200):
        await submit_one(here[0], topic=f"topic {number % 3}", priority=number % 50)
    took = loop.time() - started
    await there[1].until(lambda heard: len({woken.topic for woken in heard.woken}) == 3)
    await flushed(wire[0])

    assert 1 <= len(wire[1]) - 1 <= took / notifications.SPACING + 2
    assert len(wire[1]) < 100


async def test_of_several_in_one_message_the_most_urgent_counts(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    here[0].notifications.notify_ready(
        [ReadyTopic("mail", 1), ReadyTopic("mail", 9), ReadyTopic("mail", 4), ReadyTopic("reports", -5)]
    )

    await there[1].until(lambda heard: len(heard.woken) == 2)

    assert there[1].woken == [ReadyTopic("mail", 9), ReadyTopic("reports", -5)]


async def test_whatever_makes_jobs_ready_is_heard(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    engine, heard = here[0], there[1]

    async def wakes(topic: str) -> None:
        await heard.until(lambda heard: topic in {woken.topic for woken in heard.woken})
        heard.forget()

    await submit_one(engine, topic="a")
    await wakes("a")
    claim = await claim_one(engine, "a")
    await engine.claims.release([lease_of(claim)])
    await wakes("a")
    claim = await claim_one(engine, "a")
    await engine.claims.report([a_report(claim, a_report(claim).outcome.DISCARD)])
    await engine.jobs.replay(claim.id)
    await wakes("a")
    await engine.jobs.pause("a")
    await engine.jobs.resume("a")
    await wakes("a")
    await submit_one(engine, topic="b", delay=timedelta(milliseconds=1))
    await asyncio.sleep(0.01)
    await engine.duties.promote()
    await wakes("b")


async def test_topics_too_many_for_one_message_become_all_of_them(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    here[0].notifications.notify_ready(ReadyTopic(f"{number} {'ü' * 150}", 0) for number in range(100))

    await there[1].until(lambda heard: heard.woken)
    await flushed(wire[0])

    assert there[1].woken == [EVERYTHING]
    assert len(wire[1][0].encode()) < 100


async def test_as_many_topics_as_fit_are_named(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    names = [f"{number:02} {'x' * 190}" for number in range(39)]
    here[0].notifications.notify_ready(ReadyTopic(name, -100) for name in names)

    await there[1].until(lambda heard: heard.woken)
    await flushed(wire[0])

    assert there[1].woken == [ReadyTopic(name, -100) for name in names]
    assert LONGEST_MESSAGE - 200 < len(wire[1][0]) <= LONGEST_MESSAGE


# --- due soon


async def test_a_job_due_soon_is_told_of_here_at_once_and_there_soon(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0], delay=timedelta(milliseconds=250))

    assert here[1].later == [timedelta(milliseconds=250)]
    await there[1].until(lambda heard: heard.later)
    assert there[1].later == [timedelta(milliseconds=250)]
    assert there[1].woken == []


async def test_a_job_due_late_is_left_to_polling(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0], delay=timedelta(seconds=3))
    await submit_one(here[0], topic="after it")

    await there[1].until(lambda heard: heard.woken)

    assert here[1].later == there[1].later == []


async def test_what_is_overdue_is_told_of_as_due_now(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    here[0].notifications.notify_due_soon(timedelta(hours=-1))

    await there[1].until(lambda heard: heard.later)

    assert here[1].later == there[1].later == [timedelta()]


@pytest.mark.parametrize("delays", [(0, 400), (400, 0), (300, 20, 900)])
async def test_of_several_the_soonest_counts(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints], delays: tuple[int, ...]
) -> None:
    for delay in delays:
        here[0].notifications.notify_due_soon(timedelta(milliseconds=delay))

    await there[1].until(lambda heard: heard.later)

    assert there[1].later == [timedelta(milliseconds=min(delays))]


async def test_a_retry_that_is_due_soon_is_told_of(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0])
    claim = await claim_one(here[0])
    there[1].forget()

    outcome = a_report(claim).outcome.FAIL
    await here[0].claims.report([a_report(claim, outcome, delay=timedelta(milliseconds=300))])

    await there[1].until(lambda heard: heard.later)
    assert there[1].later == [timedelta(milliseconds=300)]


async def test_a_job_whose_time_has_passed_is_ready_now(
    here: tuple[Engine, ReceivedHints], there: tuple[Engine, ReceivedHints]
) -> None:
    await submit_one(here[0], topic="past", run_at=datetime.now(UTC) - timedelta(hours=1))

    assert ReadyTopic("past", 0) in here[1].woken
    await there[1].until(lambda heard: ReadyTopic("past", 0) in heard.woken)


# --- from SQL


async def test_enqueue_wakes_after_the_commit(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    conn, sent = wire
    async with conn.transaction():
        await conn.execute("select pulse.enqueue('mail', '{}', '{\"priority\": 4}')")
        await asyncio.sleep(0.05)
        assert (there[1].woken, sent) == ([], [])

    await there[1].until(lambda heard: heard.woken)
    assert there[1].woken == [ReadyTopic("mail", 4)]


async def test_enqueue_does_not_wake_after_a_rollback(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    conn, _ = wire
    transaction = conn.transaction()
    await transaction.start()
    await conn.execute("select pulse.enqueue('mail')")
    await transaction.rollback()

    await conn.execute("select pulse.enqueue('after')")
    await there[1].until(lambda heard: heard.woken)

    assert there[1].woken == [ReadyTopic("after", 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{"delay": 0.25}', ["+250"]),
        ('{"delay": 2}', ["+2000"]),
        ('{"delay": 0.0001}', ["+0"]),
        ('{"delay": 2.5}', []),
        ('{"delay": 0}', ["0 mail"]),
        ('{"run_at": "2020-01-01T00:00:00Z", "priority": -3}', ["-3 mail"]),
        ('{"topic": "in two words", "priority": 100}', ["100 in two words"]),
        ('{"notify": false}', []),
    ],
)
async def test_what_enqueue_sends(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]], options: str, message: list[str]
) -> None:
    conn, sent = wire
    await conn.execute("select pulse.enqueue('mail', '{}', $1)", options)

    await flushed(conn)

    assert sent == [*message, "end"]
    expected = [timedelta(milliseconds=int(line)) for line in message if line.startswith("+")]
    await there[1].until(lambda heard: len(heard.later) + len(heard.woken) == len(message))
    assert there[1].later == expected


async def test_a_key_that_is_held_wakes_nobody(wire: tuple[asyncpg.Connection, list[str]]) -> None:
    conn, sent = wire
    for _ in range(2):
        await conn.execute("select pulse.enqueue('mail', '{}', '{\"unique_key\": \"k\"}')")

    await flushed(conn)

    assert sent == ["0 mail", "end"]


# --- what may be on the channel


@pytest.mark.parametrize(
    "message",
    [
        "",
        "?",
        "mail",
        "1",
        "1000 mail",
        "x mail",
        "+",
        "+-5",
        "+99999",
        "+1.5",
        "@",
        "@somebody",
        "@somebody\n?",
        "\n\n",
    ],
)
async def test_what_is_not_understood_is_passed_over(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]], message: str
) -> None:
    await wire[0].execute("select pg_notify($1, $2)", CHANNEL, message)
    await wire[0].execute("select pg_notify($1, '5 understood')", CHANNEL)

    await there[1].until(lambda heard: heard.woken)

    assert there[1].woken == [ReadyTopic("understood", 5)]
    assert there[1].later == []


async def test_the_lines_around_one_that_is_not_understood_count(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    await wire[0].execute("select pg_notify($1, $2)", CHANNEL, "@other\n1 one\nnonsense\n+20\n2 two words")

    await there[1].until(lambda heard: len(heard.woken) == 2 and heard.later)

    assert there[1].woken == [ReadyTopic("one", 1), ReadyTopic("two words", 2)]
    assert there[1].later == [timedelta(milliseconds=20)]


async def test_schemas_do_not_hear_each_other(
    there: tuple[Engine, ReceivedHints], wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    await wire[0].execute("select pg_notify('\"other\".notifications', '1 elsewhere')")
    await wire[0].execute("select pg_notify($1, '1 here')", CHANNEL)

    await there[1].until(lambda heard: heard.woken)

    assert there[1].woken == [ReadyTopic("here", 1)]


# --- the listener


async def _listeners(conn: asyncpg.Connection) -> list[int]:
    rows = await conn.fetch(
        "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen %' "
        "and pid <> pg_backend_pid()"
    )
    return [row["pid"] for row in rows]


async def test_a_listener_that_lost_its_connection_is_back_at_once_and_says_so(
    settings: Settings, there: tuple[Engine, ReceivedHints]
) -> None:
    """Within one short pause, not at the next probe: until then every wake-up would be lost."""
    engine, heard = there
    conn = await asyncpg.connect(settings.database_url)
    try:
        [pid] = await _listeners(conn)

        await conn.execute("select pg_terminate_backend($1)", pid)

        await heard.until(lambda heard: EVERYTHING in heard.woken)
        assert engine.notifications.is_listening
        heard.forget()
        await conn.execute("select pulse.enqueue('mail')")
        await heard.until(lambda heard: ReadyTopic("mail", 0) in heard.woken)
    finally:
        conn.terminate()


async def test_the_probe_finds_a_listener_that_hears_nothing(
    settings: Settings, there: tuple[Engine, ReceivedHints], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PROBE_EVERY", 0.02)
    monkeypatch.setattr(notifications, "PROBE_PATIENCE", 0.05)
    async with process(settings) as (engine, heard):
        await asyncio.sleep(0.2)
        assert heard.woken == [], "a listener that hears its probes stays as it is"

        with monkeypatch.context() as deaf:
            deaf.setattr(engine.notifications._received_probe, "set", lambda: None)
            await heard.until(lambda heard: EVERYTHING in heard.woken)

        heard.forget()
        await submit_one(there[0])
        await heard.until(lambda heard: ReadyTopic("mail", 0) in heard.woken)
    assert there[1].woken[:1] == [ReadyTopic("mail", 0)], "the probes were no news to others"


async def test_a_listener_told_to_end_while_it_hears_its_probe_ends(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation that comes with the very answer must not be swallowed: stopping would wait for ever."""
    monkeypatch.setattr(notifications, "PROBE_EVERY", 0.01)
    async with process(settings) as (engine, _):
        [listener] = [task for task in engine.notifications._tasks if task.get_name() == "pulse notification listener"]
        hear = engine.notifications._received_probe.set
        was_told = asyncio.Event()

        def hear_and_end() -> None:
            hear()
            listener.cancel()
            was_told.set()

        with monkeypatch.context() as ending:
            # Once the statement that sent it is over, and only the answer is waited for.
            later = partial(asyncio.get_running_loop().call_later, 0.02, hear_and_end)
            ending.setattr(engine.notifications._received_probe, "set", later)
            async with asyncio.timeout(2):
                await was_told.wait()
        ended, _ = await asyncio.wait([listener], timeout=1)

        assert ended == {listener}


async def test_a_listener_that_cannot_connect_goes_on_trying(settings: Settings, caplog: Any) -> None:
    wrong = replace(settings, listen_url="postgresql://pulse@127.0.0.1:1/pulse")

    async with process(wrong, is_listening=False) as (engine, heard):
        async with asyncio.timeout(2):
            while sum("listener lost its connection" in line for line in caplog.messages) < 2:
                await asyncio.sleep(0.01)

        assert not engine.notifications.is_listening
        await submit_one(engine)
        assert heard.woken == [ReadyTopic("mail", 0)], "and nothing else suffers"


async def test_a_listener_may_have_a_way_of_its_own(settings: Settings) -> None:
    direct = replace(settings, listen_url=settings.database_url)

    async with process(direct) as (engine, _):
        assert engine.notifications.is_listening


# --- without notifications


async def test_with_notify_off_nothing_is_sent_and_polling_finds_the_work(
    settings: Settings, wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    quiet = replace(settings, notify=False)
    async with AsyncExitStack() as stack:
        here, _ = await stack.enter_async_context(process(quiet, is_listening=False))
        there, heard = await stack.enter_async_context(process(quiet, is_listening=False))
        before = asyncio.all_tasks()

        await submit_one(here)
        await submit_one(here, delay=timedelta(milliseconds=1))
        await flushed(wire[0])

        assert wire[1] == ["end"]
        assert heard.woken == []
        assert not there.notifications.is_listening
        assert asyncio.all_tasks() == before
        assert (await claim_one(there)).topic == "mail"


async def test_what_is_never_sent_is_not_gathered_either(settings: Settings) -> None:
    """A process that submits to a new topic for each customer would grow for ever."""
    async with process(replace(settings, notify=False), is_listening=False) as (engine, _):
        for number in range(100):
            engine.notifications.notify_ready([ReadyTopic(f"topic {number}", 0)])
        engine.notifications.notify_due_soon(timedelta())

        assert not engine.notifications._unsent
        assert engine.notifications._unsent_later is None


async def test_behind_pgbouncer_nobody_listens_unless_told_where(settings: Settings) -> None:
    pooled = replace(settings, pgbouncer=True)

    async with process(pooled, is_listening=False) as (engine, _):
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert "pulse notification sender" in names
        assert "pulse notification listener" not in names
        assert not engine.notifications.is_listening

    async with process(replace(pooled, listen_url=settings.database_url)) as (engine, _):
        assert engine.notifications.is_listening


async def test_a_wake_up_that_cannot_be_sent_disturbs_nobody(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(settings) as (engine, heard), process(settings) as (_, there):
        was_tried = asyncio.Event()

        async def fail(*_: object, **__: object) -> None:
            was_tried.set()
            raise DatabaseUnreachable("gone")

        with monkeypatch.context() as broken:
            broken.setattr(notifications, "send_notification", fail)
            engine.notifications.notify_ready([ReadyTopic("mail", 0)])
            async with asyncio.timeout(2):
                await was_tried.wait()

        await submit_one(engine, topic="next")

        await there.until(lambda heard: ReadyTopic("next", 0) in heard.woken)
        assert heard.woken == [ReadyTopic("mail", 0), ReadyTopic("next", 0)]


async def test_a_submit_takes_its_own_message_along(
    settings: Settings, wire: tuple[asyncpg.Connection, list[str]]
) -> None:
    """So whoever waits hears of it with the commit, not a round trip later; those that follow at once are gathered."""
    _, heard = wire
    async with process(settings) as (engine, _):
        await engine.jobs.submit([a_new_job(topic="first")])
        await engine.jobs.submit([a_new_job(topic="second")])
        async with asyncio.timeout(2):
            while not any("0 first" in message for message in heard):
                await asyncio.sleep(0.01)
        told = [message for message in heard if "first" in message]

    assert told == [f"{engine.notifications._sender}\n0 first"]


async def test_what_is_untold_is_told_on_stop(settings: Settings, wire: tuple[asyncpg.Connection, list[str]]) -> None:
    """A command that replays and ends has no time to wait for the sender."""
    _, heard = wire
    async with open_engine(settings) as engine:
        await engine.jobs.submit([a_new_job()])

    async with asyncio.timeout(2):
        while not any("0 mail" in message for message in heard):
            await asyncio.sleep(0.01)
