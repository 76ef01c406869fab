"""Does a token that may only read see everything over every door, and change nothing?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse.doors.access import Caller
from pulse.doors.mcp.tools import TOOLS as LISTED
from pulse.doors.mcp.tools import AlarmCancel, AlarmList, AlarmSet, JobQuery, JobSubmit, Tool, ToolContext
from pulse.doors.owners import find_to_manage, find_to_see
from pulse.engine.engine import Engine
from pulse.links.direct import DirectLink
from pulse.links.opening import open_link
from pulse.links.remote.jobs import open_remote_engine
from pulse.model.alarms import NewAlarm
from pulse.model.errors import AlarmNotFound, Forbidden
from pulse.model.jobs import JobFilter, NewJob
from pulse.model.schedules import NewSchedule
from pulse.model.tokens import Scope
from pulse.settings import Settings
from tests.doors.http_client import served_http

TOOLS: dict[str, Tool] = {tool.name: tool for tool in LISTED}
ROWS = "jobs", "attempts", "pauses", "schedules", "fires", "alarms", "deliveries", "tokens"
DAILY = NewSchedule(name="daily", job=NewJob(task="mail"), cron="0 9 * * *")
SOON = NewAlarm(owner="ada", name="tea", delay=timedelta(hours=1), url="http://127.0.0.1:9/")
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, alarm_networks="127.0.0.0/8")


async def snapshot(settings: Settings) -> list[Any]:
    conn = await asyncpg.connect(settings.database_url)
    rows = [await conn.fetch(f"select to_jsonb(row) as row from pulse.{table} as row order by 1") for table in ROWS]
    await conn.close()
    return rows


async def test_over_grpc_a_reader_sees_everything_and_changes_nothing(settings: Settings, engine: Engine) -> None:
    [job] = await engine.jobs.submit([NewJob(task="mail")])
    await engine.schedules.create(DAILY)
    alarm = (await engine.alarms.set(SOON)).alarm
    _, secret = await engine.tokens.create("eye", ["read"])
    before = await snapshot(settings)

    async with served_http(settings) as http:
        reading = replace(settings, server_url=f"grpc://{http.server.address}", token=secret)
        async with open_remote_engine(reading) as seen, open_link(reading) as link:
            assert (await seen.jobs.get(job.id)).task == "mail"
            assert len((await seen.jobs.list_page(JobFilter())).jobs) == len(await seen.jobs.counts()) == 1
            empty: list[Any] = [await seen.jobs.attempts(job.id), await seen.jobs.pauses(), await seen.workers.list()]
            assert empty == [[], [], []]
            assert (await seen.schedules.get("daily")).name == (await seen.schedules.list_page()).schedules[0].name
            assert (await seen.schedules.fires("daily")).fires == []
            assert len(await seen.schedules.preview("daily", n=2)) == 2
            assert (await seen.alarms.list_page()).alarms == [await seen.alarms.get("tea", owner="ada")]
            assert (await seen.alarms.deliveries(alarm.id)).deliveries == []
            assert (await link.wait(job.id, seconds=0)).status == "PENDING"

            acts: dict[str, Callable[[], Awaitable[Any]]] = {
                "submit": lambda: link.submit([NewJob(task="mail")]),
                "cancel": lambda: link.cancel(job.id, reason=""),
                "cancel many": lambda: seen.jobs.cancel_many([job.id]),
                "replay": lambda: seen.jobs.replay_many([job.id]),
                "replay matching": lambda: seen.jobs.replay_matching(JobFilter()),
                "pause topic": lambda: seen.jobs.pause("mail"),
                "resume topic": lambda: seen.jobs.resume("mail"),
                "create": lambda: seen.schedules.create(replace_name(DAILY, "other")),
                "edit": lambda: seen.schedules.edit("daily", {"priority": 3}),
                "pause": lambda: seen.schedules.pause("daily"),
                "resume": lambda: seen.schedules.resume("daily"),
                "delete": lambda: seen.schedules.delete("daily"),
                "trigger": lambda: seen.schedules.trigger("daily"),
                "backfill": lambda: seen.schedules.backfill("daily", start=YESTERDAY, end=datetime.now(UTC)),
                "sync": lambda: seen.schedules.sync("app", []),
                "set alarm": lambda: seen.alarms.set(SOON),
                "cancel alarm": lambda: seen.alarms.cancel(alarm.id),
                "pause alarm": lambda: seen.alarms.pause(alarm.id),
                "resume alarm": lambda: seen.alarms.resume(alarm.id),
                "fire alarm": lambda: seen.alarms.fire(alarm.id),
                "secrets": lambda: seen.alarms.secrets(),
                "rotate": lambda: seen.alarms.rotate_secret(),
            }
            for name, act in acts.items():
                with pytest.raises(Forbidden, match=r"token 'eye' lacks the scope .+; it has read$"):
                    await act()
                    pytest.fail(name)

    assert await snapshot(settings) == before


def replace_name(schedule: NewSchedule, name: str) -> NewSchedule:
    return NewSchedule(name=name, job=schedule.job, cron=schedule.cron)


async def test_over_mcp_a_reader_looks_and_does_not_touch(settings: Settings, engine: Engine) -> None:
    [job] = await engine.jobs.submit([NewJob(task="mail")])
    eye = ToolContext(DirectLink(engine), Caller("eye", (Scope.parse("read"),)), "ada")
    await engine.alarms.set(SOON)
    before = await snapshot(settings)

    looked: Any = await TOOLS["job_status"].run(eye, JobQuery(id=str(job.id)))
    listed: Any = await TOOLS["alarm_list"].run(eye, AlarmList())
    for tool, given in {
        "alarm_set": AlarmSet(delay_seconds=1),
        "alarm_cancel": AlarmCancel(alarm="tea"),
        "job_submit": JobSubmit(task="mail"),
    }.items():
        with pytest.raises(Forbidden, match=r"it has read$"):
            await TOOLS[tool].run(eye, given)

    assert (looked.status, [alarm.name for alarm in listed.alarms]) == ("PENDING", ["tea"])
    assert await snapshot(settings) == before


async def test_what_one_may_see_and_not_tend_is_forbidden_and_what_one_may_not_see_is_not_there(
    engine: Engine,
) -> None:
    alarm = (await engine.alarms.set(SOON)).alarm
    both = Caller("web", (Scope.parse("read"), Scope.parse("alarms:bob")))
    other = Caller("web", (Scope.parse("alarms:bob"),))

    assert await find_to_see(engine.alarms, both, alarm.id) == alarm
    with pytest.raises(Forbidden, match=r"lacks the scope alarms:ada or operate, .*; it has read, alarms:bob"):
        await find_to_manage(engine.alarms, both, alarm.id)
    for find in (find_to_see, find_to_manage):
        with pytest.raises(AlarmNotFound):
            await find(engine.alarms, other, alarm.id)
