"""Are callers of a server told no more than they need: of its database, and of schedules of other topics?"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.engine.schedules.use_cases import Schedules
from pulse.model.errors import Conflict, DatabaseUnreachable, InvalidDatabaseUrl, ScheduleExists
from pulse.model.schedules import NewSchedule, Schedule
from pulse.settings import Settings
from pulse.store.connections.pool import Database, translate
from pulse.wire.convert_schedules import write_new_schedule
from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.grpc_client import connected
from tests.doors.grpc_client import refused as refused_by_grpc
from tests.doors.http_client import served_http
from tests.factories import a_new_job

HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
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
        await engine.schedules.disclosing_to(lambda topic: topic == "mail").create(a_schedule("mail"))
    with pytest.raises(ScheduleExists, match="another topic"):
        await engine.schedules.create(a_schedule("mail"))

    assert str(blind.value) == "schedule 'report' already exists: choose another name"


async def test_nor_do_the_doors_to_a_token_that_may_not_follow_that_topic(engine: Engine, settings: Settings) -> None:
    await engine.schedules.create(a_schedule("payroll"))
    _, secret = await engine.tokens.create("web", ["submit:mail"])
    body = {"name": "report", "every": "1h", "task": "mail"}

    async with served_http(settings, token=secret) as http, connected(str(http.server.address)) as client:
        over_http = await http.refused("POST", "/v1/schedules", body)
        request = pb.CreateScheduleRequest(schedule=write_new_schedule(a_schedule("mail")))
        metadata = (("authorization", f"Bearer {secret}"),)
        over_grpc = await refused_by_grpc(client.schedules.CreateSchedule(request, metadata=metadata))

    assert over_http[2] == over_grpc.message == "schedule 'report' already exists: choose another name"


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


async def test_the_doors_leave_a_schedule_alone_that_moves_while_they_look_at_it(
    engine: Engine, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.schedules.create(a_schedule("mail"))
    get = Schedules.get
    stretch: dict[str, Any] = {"start": NOON, "end": NOON + HOUR}

    async def get_before_it_moves(schedules: Schedules, name: Any) -> Schedule:
        found = await get(schedules, name)
        await engine.schedules.edit(found.id, {"topic": f"{found.job.routed_topic}-2"})
        return found

    monkeypatch.setattr(Schedules, "get", get_before_it_moves)
    async with served_http(settings) as http, connected(str(http.server.address)) as client:
        path, on = "/v1/schedules/report", client.schedules
        told = [
            (await http.refused("PATCH", path, {"priority": 9}))[2],
            (await http.refused("DELETE", path))[2],
            *[(await http.refused("POST", f"{path}/{move}"))[2] for move in ("pause", "resume", "trigger")],
            (await http.refused("POST", f"{path}/backfill", {each: at.isoformat() for each, at in stretch.items()}))[2],
        ]
        for call, request in (
            (on.EditSchedule, pb.EditScheduleRequest(name="report", fields=["priority"])),
            (on.DeleteSchedule, pb.DeleteScheduleRequest(name="report")),
            (on.PauseSchedule, pb.PauseScheduleRequest(name="report")),
            (on.ResumeSchedule, pb.ResumeScheduleRequest(name="report")),
            (on.TriggerSchedule, pb.TriggerScheduleRequest(name="report")),
            (on.BackfillSchedule, pb.BackfillScheduleRequest(name="report", **stretch)),
        ):
            told.append((await refused_by_grpc(call(request))).message)

    moved = "schedule 'report' was moved to another topic meanwhile: look at it and try again"
    assert told == [moved] * 12
