"""Are callers of a server told no more than they need: of its database, and of schedules of other topics?"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import Conflict, DatabaseUnreachable, InvalidDatabaseUrl, ScheduleExists
from pulse.model.schedules import NewSchedule
from pulse.settings import Settings
from pulse.store.pool import Database, translate
from tests.doors.http_client import served_http
from tests.factories import a_new_job

HOUR = timedelta(hours=1)
TROUBLE = [
    OSError("Connect call failed ('10.1.2.3', 5432)"),
    asyncpg.InvalidPasswordError('password authentication failed for user "pulse_runtime"'),
]


async def refused(database: Database, error: Exception) -> str:
    async def work(_conn: object) -> None:
        raise error

    with pytest.raises((DatabaseUnreachable, InvalidDatabaseUrl)) as found:
        await database.run(work)
    return str(found.value)


@pytest.mark.parametrize("error", TROUBLE, ids=["address", "user"])
async def test_callers_of_a_server_learn_neither_address_nor_user_of_its_database(
    impatient: Settings, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async with await Database.connect(impatient) as database:
        database.has_callers = True
        with caplog.at_level(logging.WARNING, "pulse.database"):
            told = [await refused(database, error) for _ in range(3)]

    assert told == ["cannot reach the database: the server's log says why"] * 3
    assert [str(error) in line for line in caplog.messages] == [True], "once, and with the reason"


@pytest.mark.parametrize("error", TROUBLE, ids=["address", "user"])
async def test_whoever_connects_themselves_is_told_the_reason(impatient: Settings, error: Exception) -> None:
    async with await Database.connect(impatient) as database:
        assert str(error) in await refused(database, error)


async def test_a_server_has_callers(settings: Settings) -> None:
    async with served_http(settings) as http:
        assert http.server._engine._database.has_callers


@pytest.mark.parametrize("url", ["postgresql://pulse:S3cr/et@db:5432/pulse", "postgresql://pulse:S3cr?et@db/pulse"])
async def test_a_url_that_cannot_be_read_is_not_quoted(url: str) -> None:
    with pytest.raises((InvalidDatabaseUrl, DatabaseUnreachable)) as found:
        await Database.connect(Settings(database_url=url, patience=timedelta(milliseconds=1)))

    assert "S3cr" not in str(found.value)
    assert "%2F" in str(translate(ValueError("invalid literal for int() with base 10: 'S3cr'")))


# --- schedules of other topics


def a_schedule(topic: str, **options: Any) -> NewSchedule:
    return NewSchedule(name="report", every=HOUR, job=a_new_job(topic=topic, payload='{"amount": 42}'), **options)


async def test_a_name_that_is_taken_in_another_topic_says_nothing_of_what_is_there(engine: Engine) -> None:
    await engine.schedules.create(a_schedule("payroll"))

    with pytest.raises(ScheduleExists) as blind:
        await engine.schedules.told_to(lambda topic: topic == "mail").create(a_schedule("mail"))
    with pytest.raises(ScheduleExists, match="another topic"):
        await engine.schedules.create(a_schedule("mail"))

    assert str(blind.value) == "schedule 'report' is there already: choose another name"


@pytest.mark.parametrize("move", ["edit", "pause", "resume", "delete", "trigger"])
async def test_a_schedule_that_was_moved_since_the_right_was_checked_is_left_alone(engine: Engine, move: str) -> None:
    """Whoever may change schedules of one topic must not reach those of another by being quick."""
    schedule, _ = await engine.schedules.create(a_schedule("mail"))
    await engine.schedules.edit(schedule.id, {"topic": "payroll"})
    changes = [{"priority": 9}] if move == "edit" else []

    with pytest.raises(Conflict, match="was moved to another topic meanwhile"):
        await getattr(engine.schedules.checked_for("mail"), move)(schedule.id, *changes)

    after = await engine.schedules.get(schedule.id)
    assert (after.job.priority, after.paused_at) == (schedule.job.priority, None)
