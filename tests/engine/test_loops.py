"""Does a duty run until it is told to stop, whatever its steps do, and leave nothing behind?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest

from pulse.engine.duties.loops import Loop
from pulse.engine.engine import Engine, open_engine
from pulse.model.errors import DatabaseUnreachable
from pulse.model.jobs import JobStatus
from pulse.settings import Settings
from tests.conftest import recreate_database
from tests.factories import submit_one
from tests.waiting import until

HOUR = timedelta(hours=1)
AT_ONCE = timedelta()


class Steps:
    """A step that counts, and answers as it is told."""

    def __init__(self, *answers: timedelta | Exception) -> None:
        self.taken = 0
        self._answers = list(answers)
        self._was_taken = asyncio.Event()

    async def __call__(self) -> timedelta:
        self.taken += 1
        self._was_taken.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(5):
            while self.taken < count:
                self._was_taken.clear()
                await self._was_taken.wait()
        await asyncio.sleep(0)  # let the loop go on to its sleep


@asynccontextmanager
async def running(loop: Loop) -> AsyncIterator[asyncio.Event]:
    stop = asyncio.Event()
    task = asyncio.create_task(loop.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(2):
            await task


async def test_a_step_is_repeated_for_as_long_as_it_says() -> None:
    steps = Steps(AT_ONCE, AT_ONCE, timedelta(milliseconds=1), HOUR)

    async with running(Loop("count", steps)):
        await steps.reach(4)
        await asyncio.sleep(0.02)

    assert steps.taken == 4


async def test_a_step_in_progress_is_finished_when_told_to_stop() -> None:
    is_in_step, may_end = asyncio.Event(), asyncio.Event()
    is_finished = False

    async def step() -> timedelta:
        nonlocal is_finished
        is_in_step.set()
        await may_end.wait()
        is_finished = True
        return AT_ONCE

    stop = asyncio.Event()
    task = asyncio.create_task(Loop("slow", step).run(stop))
    await is_in_step.wait()
    stop.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not task.done()

    may_end.set()
    async with asyncio.timeout(1):
        await task

    assert is_finished


async def test_stopping_during_the_sleep_returns_at_once() -> None:
    steps = Steps(HOUR)
    stop = asyncio.Event()
    task = asyncio.create_task(Loop("sleeper", steps).run(stop))
    await steps.reach(1)

    stop.set()

    async with asyncio.timeout(0.5):
        await task
    assert steps.taken == 1


async def test_a_loop_that_is_stopped_before_it_starts_takes_no_step() -> None:
    steps = Steps(HOUR)
    stop = asyncio.Event()
    stop.set()

    await Loop("late", steps).run(stop)

    assert steps.taken == 0


async def test_failures_back_off_and_are_forgotten_after_a_success(caplog: pytest.LogCaptureFixture) -> None:
    boom = ZeroDivisionError("boom")
    steps = Steps(boom, boom, HOUR)
    loop = Loop("shaky", steps)
    asked: list[int] = []

    class Quick:
        def delay(self, failures: int) -> timedelta:
            asked.append(failures)
            return timedelta(milliseconds=1)

    loop._backoff = Quick()  # type: ignore[assignment]

    with caplog.at_level(logging.ERROR, "pulse.duties"):
        async with running(loop):
            await steps.reach(2)
            assert loop.failures > 0
            await steps.reach(3)

    assert asked == [1, 2], "once for each failure, with how many there were in a row"
    assert loop.failures == 0
    assert [record.message for record in caplog.records] == [
        "shaky failed 1 times in a row",
        "shaky failed 2 times in a row",
    ]
    assert all(record.exc_info for record in caplog.records)


async def test_an_outage_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(DatabaseUnreachable("cannot reach the database"), HOUR)

    async with running(Loop("reap", steps)):
        await steps.reach(1)
        await until(lambda: asyncio.sleep(0, bool(caplog.records)))

    [record] = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.message == "reap failed 1 times in a row: cannot reach the database"


async def test_a_failing_step_is_not_repeated_at_once(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(ZeroDivisionError())

    async with running(Loop("hopeless", steps)):
        await steps.reach(1)
        await asyncio.sleep(0.03)  # the first pause is 50 to 100 ms

    assert steps.taken == 1


async def test_a_nearer_instant_shortens_the_sleep() -> None:
    steps = Steps(HOUR)
    loop = Loop("promote", steps)

    async with running(loop):
        await steps.reach(1)
        loop.run_within(timedelta(minutes=1))
        await steps.reach(2)
        loop.run_within(AT_ONCE)
        await steps.reach(3)

    assert steps.taken == 3


async def test_a_later_instant_does_not() -> None:
    steps = Steps(HOUR)
    loop = Loop("promote", steps)

    async with running(loop):
        await steps.reach(1)
        loop.run_within(2 * HOUR)
        await asyncio.sleep(0.02)

    assert steps.taken == 1


async def test_an_instant_told_during_a_step_is_looked_for_after_it() -> None:
    """The step may have looked already when it is told; without another look it would be late by a whole sleep."""
    loop: Loop
    taken = 0

    async def step() -> timedelta:
        nonlocal taken
        taken += 1
        if taken == 1:
            loop.run_within(timedelta(milliseconds=100))
        return HOUR

    loop = Loop("promote", step)
    async with running(loop):
        async with asyncio.timeout(1):
            while taken < 2:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)

    assert taken == 2, "once more, and not for ever"


async def test_a_loop_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    steps = Steps(timedelta(milliseconds=1))

    async with running(Loop("tidy", steps)):
        await steps.reach(5)
        assert len(asyncio.all_tasks() - before) <= 1 + 2 * 2, "those of one sleep, and those of the last going away"
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before


# --- all of them together


@pytest.fixture
async def own(worker_id: str, migrated: Settings) -> Settings:
    """A database of this test's own, so that every connection to it is ours."""
    from pulse.store.schema.migrate import migrate

    settings = replace(migrated, database_url=await recreate_database(f"loops_{worker_id}"))
    await migrate(settings)
    return settings


async def _sessions(settings: Settings) -> int:
    conn = await asyncpg.connect(settings.database_url)
    try:
        return int(
            await conn.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and backend_type = 'client backend' and pid <> pg_backend_pid()"
            )
        )
    finally:
        conn.terminate()


async def test_an_engine_that_stops_leaves_no_task_and_no_connection_behind(own: Settings) -> None:
    before = asyncio.all_tasks()

    async with open_engine(own) as engine:
        engine.start()
        job_id = await submit_one(engine, delay=timedelta(milliseconds=50))
        await until(lambda: _is(engine, job_id, JobStatus.PENDING))
        await until(lambda: _is_listening(engine))
        assert {task.get_name() for task in asyncio.all_tasks() - before} >= {
            "pulse promote",
            "pulse reap",
            "pulse prune",
            "pulse tally",
            "pulse notification sender",
            "pulse notification listener",
        }
        assert await _sessions(own) > 0
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
    assert not engine.notifications.is_listening

    async def is_alone() -> bool:
        return await _sessions(own) == 0

    await until(is_alone)


async def _is(engine: Engine, job_id: object, status: JobStatus) -> bool:
    return (await engine.jobs.get(job_id)).status is status  # type: ignore[arg-type]


async def _is_listening(engine: Engine) -> bool:
    return engine.notifications.is_listening


async def test_an_engine_that_was_never_started_stops_as_well(own: Settings) -> None:
    before = asyncio.all_tasks()

    async with open_engine(own) as engine:
        await submit_one(engine)

    assert asyncio.all_tasks() == before


async def test_an_engine_stops_when_its_user_fails(own: Settings) -> None:
    before = asyncio.all_tasks()

    with pytest.raises(ZeroDivisionError):
        async with open_engine(own) as engine:
            engine.start()
            await submit_one(engine)
            raise ZeroDivisionError
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
