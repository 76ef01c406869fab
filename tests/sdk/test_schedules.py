"""Can a program make schedules, look at them, change them, fire them by hand, and sync those its code declares?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from pulse import CatchUp, Context, JobStatus, Overlap, Pulse, Retry, Schedule, ScheduleStatus
from pulse.errors import (
    InvalidArguments,
    InvalidFilter,
    InvalidName,
    InvalidOption,
    InvalidSchedule,
    InvalidTask,
    PulseError,
    ScheduleExists,
    ScheduleNotFound,
    ScheduleOwned,
    StaleDeploy,
)
from pulse.settings import Settings
from tests.sdk.apps import in_processes
from tests.sdk.apps_here import closing, working

# "server" joins when servers speak of schedules.
pytestmark = pytest.mark.parametrize("settings", ["direct", "server"], indirect=True)

HOUR = timedelta(hours=1)
LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(settings: Settings) -> Iterator[Pulse]:
    with closing(Pulse(settings=settings)) as app:
        yield app


@pytest.fixture
def report(app: Pulse) -> Any:
    @app.task(name="shop.report", topic="reports", priority=3, retry=Retry(7), timeout="30s", tags=["daily"])
    async def report(city: str, *, copies: int = 1) -> str:
        return f"{city} x {copies}"

    return report


def names(app: Pulse, **wanted: Any) -> list[str]:
    return [schedule.name for schedule in app.schedules.list(**wanted).schedules]


# --- making


def test_a_schedule_has_the_options_of_its_task(app: Pulse, report: Any) -> None:
    app.schedules.create("monday", report, payload={"city": "Rome"}, cron="0 9 * * 1", tz="Europe/Rome")

    made = app.schedules.get("monday")
    assert made == app.schedules.get(made.id) == app.schedules.get(str(made.id))
    assert (made.timed.cron, made.timed.tz, made.status) == ("0 9 * * 1", "Europe/Rome", ScheduleStatus.ACTIVE)
    assert (made.job.task, made.job.topic, made.job.payload) == ("shop.report", "reports", '{"city": "Rome"}')
    assert (made.job.priority, made.job.max_attempts, made.job.timeout) == (3, 7, timedelta(seconds=30))
    assert made.job.tags == ("daily",)


def test_other_options_may_be_given_for_one_schedule(app: Pulse, report: Any) -> None:
    urgent = report.using(priority=9, topic="urgent", result_ttl="1h", retry=1)

    made = app.schedules.create("urgent", urgent, payload={"city": "Rome"}, every="5m")

    assert (made.job.priority, made.job.topic, made.job.max_attempts, made.job.result_ttl) == (9, "urgent", 1, HOUR)


def test_everything_about_time_and_lateness_can_be_said(app: Pulse, report: Any) -> None:
    made = app.schedules.create(
        "all",
        report,
        payload={"city": "Rome"},
        every=90,
        starts_at=LATER,
        ends_at=LATER + HOUR,
        max_occurrences=3,
        jitter="5s",
        catch_up="replay",
        replay_limit=7,
        overlap=Overlap.BUFFER_ONE,
    )

    assert (made.timed.every, made.jitter) == (timedelta(seconds=90), timedelta(seconds=5))
    assert (made.timed.starts_at, made.timed.ends_at, made.next_run_at) == (LATER, LATER + HOUR, LATER)
    assert (made.max_occurrences, made.catch_up, made.replay_limit) == (3, CatchUp.REPLAY, 7)
    assert made.overlap is Overlap.BUFFER_ONE


@pytest.mark.parametrize("when", [{"run_at": LATER}, {"delay": "36000d"}, {"delay": timedelta(days=3)}, {"delay": 60}])
def test_a_schedule_may_happen_once(app: Pulse, report: Any, when: Any) -> None:
    if when.get("delay") == "36000d":
        with pytest.raises(InvalidOption, match="delay"):
            app.schedules.create("once", report, payload={"city": "Rome"}, **when)
        return

    made = app.schedules.create("once", report, payload={"city": "Rome"}, **when)

    assert made.timed.kind == "once"
    assert [each.at for each in app.schedules.preview("once")] == [made.next_run_at]


def test_a_task_may_be_given_by_its_name(app: Pulse, report: Any) -> None:
    known = app.schedules.create("known", "shop.report", payload={"city": "Rome"}, every=60)
    app.schedules.create("foreign", "crm.import", payload={"anything": [1]}, every=60)
    foreign = app.schedules.get("foreign")

    assert known.job.topic == "reports"
    assert (foreign.job.task, foreign.job.routed_topic) == ("crm.import", "crm.import")
    assert foreign.job.payload == '{"anything": [1]}'
    with pytest.raises(InvalidArguments, match=r"shop\.report: missing a required argument: 'city'"):
        app.schedules.create("wrong", "shop.report", every=60)
    with pytest.raises(InvalidArguments, match=r"crm\.import: .*object is not JSON"):
        app.schedules.create("wrong", "crm.import", payload={"what": object()}, every=60)


def test_saying_the_same_again_changes_nothing(app: Pulse, report: Any) -> None:
    app.schedules.create("same", report, payload={"city": "Rome"}, every="60s")
    first = app.schedules.get("same")
    again = app.schedules.create("same", report, payload={"city": "Rome"}, every=timedelta(minutes=1))

    assert again == first
    with pytest.raises(ScheduleExists, match="another overlap and payload: edit it"):
        app.schedules.create("same", report, payload={"city": "Oslo"}, every=60, overlap="skip")
    assert app.schedules.get("same") == first


ARGS = {"city": "Rome"}


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({}, InvalidSchedule, "give one of cron, every, run_at and delay"),
        ({"cron": "@daily", "every": 60}, InvalidSchedule, "not cron and every"),
        ({"run_at": LATER, "delay": 60}, InvalidSchedule, "either delay or run_at"),
        ({"cron": "0 25 * * *"}, InvalidSchedule, "25"),
        ({"cron": "0 0 31 2 *"}, InvalidSchedule, "no future time"),
        ({"cron": 5}, InvalidOption, "must be text, such as"),
        ({"cron": "@daily", "tz": "europe/berlin"}, InvalidSchedule, "Europe/Berlin"),
        ({"cron": "@daily", "tz": "Europe/Berlim"}, InvalidSchedule, "Europe/Berlin"),
        ({"cron": "@daily", "tz": None}, InvalidOption, "must be text, such as"),
        ({"every": "500ms"}, InvalidOption, "from 1s to ten years"),
        ({"every": -5}, InvalidOption, "from 1s to ten years"),
        ({"every": "3660d"}, InvalidOption, "ten years"),
        ({"every": 1e300}, InvalidOption, "ten years"),
        ({"every": "soon"}, InvalidOption, "soon"),
        ({"every": True}, InvalidOption, "a length of time"),
        ({"run_at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidSchedule, "not in the future"),
        ({"run_at": datetime(2030, 1, 1)}, InvalidOption, "time zone"),  # noqa: DTZ001  that is the mistake
        ({"run_at": "tomorrow"}, InvalidOption, "run_at"),
        ({"every": 60, "starts_at": LATER, "ends_at": LATER}, InvalidSchedule, "not before ends_at"),
        ({"every": 60, "ends_at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidSchedule, "no future time"),
        ({"every": 60, "max_occurrences": 0}, InvalidOption, "max_occurrences"),
        ({"every": 60, "jitter": 0}, InvalidOption, "jitter"),
        ({"every": 60, "catch_up": "all"}, InvalidOption, "fire_once, skip or replay"),
        ({"every": 60, "catch_up": None}, InvalidOption, "fire_once, skip or replay"),
        ({"every": 60, "replay_limit": 5000}, InvalidOption, "replay_limit"),
        ({"every": 60, "overlap": ["skip"]}, InvalidOption, "allow, skip or buffer_one"),
        (
            {"every": 60, "zone": "UTC"},
            InvalidOption,
            "option of a schedule must be one of cron, every, run_at, delay, tz",
        ),
        ({"every": 60, "payload": {"city": 5}}, InvalidArguments, "argument 'city'"),
        ({"every": 60, "payload": {"city": "Rome", "town": 1}}, InvalidArguments, "town"),
        ({"every": 60, "payload": ["Rome"]}, InvalidArguments, "by name"),
        ({"every": 60, "payload": {5: "Rome"}}, InvalidArguments, "by name"),
        ({"every": 60, "name": ""}, InvalidName, "not none"),
        ({"every": 60, "name": 5}, InvalidName, "text"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_made(
    app: Pulse, report: Any, given: dict[str, Any], error: type[PulseError], says: str
) -> None:
    with pytest.raises(error, match=says):
        app.schedules.create(**{"name": "wrong", "task": report, "payload": ARGS} | given)

    assert names(app) == []


@pytest.mark.parametrize(
    "option",
    [{"delay": 5}, {"run_at": LATER}, {"deadline": LATER}, {"deadline": "1h"}, {"unique_key": "k"}, {"conn": object()}],
)
def test_an_option_of_a_single_job_is_refused(app: Pulse, report: Any, option: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchedule, match=f"the job of a schedule must have no {next(iter(option))}"):
        app.schedules.create("wrong", report.using(**option), payload=ARGS, every=60)

    assert names(app) == []


def test_only_tasks_of_the_app_are_taken(app: Pulse, settings: Settings) -> None:
    other = Pulse(settings=settings)

    @other.task(name="theirs")
    def theirs() -> None: ...

    with pytest.raises(InvalidTask, match="'theirs' belongs to another app"):
        app.schedules.create("wrong", theirs, every=60)
    with pytest.raises(InvalidTask, match="is not a task"):
        app.schedules.create("wrong", len, every=60)  # type: ignore[arg-type]
    assert names(app) == []


# --- looking


def test_a_list_comes_in_pages_and_can_be_narrowed(app: Pulse, report: Any) -> None:
    for name in ("a", "b", "c"):
        app.schedules.create(name, report, payload=ARGS, every=60)
    app.schedules.create("d", "crm.import", every=60)
    app.schedules.pause("b", reason="month end")

    first = app.schedules.list(limit=3)
    second = app.schedules.list(limit=3, after=first.next)

    assert [schedule.name for page in (first, second) for schedule in page.schedules] == ["a", "b", "c", "d"]
    assert second.next is None
    assert names(app, paused=True) == ["b"]
    assert names(app, paused=False, task="shop.report") == ["a", "c"]
    assert names(app, topic="crm.import") == ["d"]
    assert names(app, tag="daily", status="active") == ["a", "b", "c"]
    assert names(app, status=ScheduleStatus.BROKEN) == []
    wrong: Any
    for wrong in ("asleep", 5):
        with pytest.raises(InvalidFilter, match="active, completed, broken, disabled"):
            app.schedules.list(status=wrong)
    with pytest.raises(InvalidFilter, match=r"filter of schedules must be one of status, .*, not 'tags'"):
        app.schedules.list(tags="daily")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match="limit"):
        app.schedules.list(limit=0)


def test_a_preview_shows_what_comes(app: Pulse, report: Any) -> None:
    app.schedules.create("hourly", report, payload=ARGS, cron="30 * * * *", tz="Asia/Kolkata")

    found = app.schedules.preview("hourly", n=3)

    assert [each.at.minute for each in found] == [0, 0, 0]
    assert [b.at - a.at for a, b in pairwise(found)] == [HOUR, HOUR]


def test_what_is_not_there_is_not_found(app: Pulse) -> None:
    ways: list[Any] = [
        app.schedules.get,
        lambda name: app.schedules.edit(name, tz="UTC"),
        app.schedules.pause,
        app.schedules.resume,
        app.schedules.delete,
        app.schedules.trigger,
        app.schedules.preview,
        app.schedules.fires,
    ]

    for way in ways:
        with pytest.raises(ScheduleNotFound, match="no schedule 'nothing'"):
            way("nothing")
    with pytest.raises(ScheduleNotFound):
        app.schedules.edit(uuid4(), payload={})


# --- changing


def test_an_edit_changes_what_is_given_and_nothing_else(app: Pulse, report: Any) -> None:
    app.schedules.create("x", report, payload=ARGS, cron="0 9 * * *", tz="Europe/Rome", jitter="1m", max_occurrences=5)

    changed = app.schedules.edit("x", tz="Asia/Tokyo", payload={"city": "Oslo"}, catch_up="skip")

    assert (changed.timed.cron, changed.timed.tz) == ("0 9 * * *", "Asia/Tokyo")
    assert (changed.job.payload, changed.job.topic, changed.job.priority) == ('{"city": "Oslo"}', "reports", 3)
    assert (changed.catch_up, changed.jitter, changed.max_occurrences) == (CatchUp.SKIP, timedelta(minutes=1), 5)
    assert app.schedules.get("x") == changed


def test_none_takes_back_what_may_be_missing(app: Pulse, report: Any) -> None:
    given: Any = {"starts_at": LATER, "ends_at": LATER + HOUR, "max_occurrences": 5, "jitter": 5}
    app.schedules.create("x", report, payload=ARGS, every="1h", **given)

    nothing: Any = dict.fromkeys(given)
    changed = app.schedules.edit("x", **nothing)

    assert (changed.timed.starts_at, changed.timed.ends_at, changed.max_occurrences, changed.jitter) == (None,) * 4
    assert changed.timed.every == HOUR


def test_an_edit_may_say_another_when_and_another_task(app: Pulse, report: Any) -> None:
    @app.task(name="shop.digest", topic="mail")
    def digest(city: str) -> None: ...

    app.schedules.create("x", report, payload=ARGS, cron="@daily")

    app.schedules.edit("x", every="2h")
    changed = app.schedules.edit("x", task=digest.using(priority=-5))
    elsewhere = app.schedules.edit("x", task="crm.import")

    assert (changed.timed.cron, changed.timed.every) == (None, 2 * HOUR)
    assert (changed.job.task, changed.job.topic, changed.job.priority) == ("shop.digest", "mail", -5)
    assert changed.job.payload == '{"city": "Rome"}'
    assert elsewhere.job.task == "crm.import"


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"payload": {}}, InvalidArguments, "missing a required argument: 'city'"),
        ({"payload": {"city": 1}}, InvalidArguments, "argument 'city'"),
        ({"task": "shop.count"}, InvalidArguments, "'city'"),
        ({"task": len}, InvalidTask, "not a task"),
        ({"cron": None}, InvalidSchedule, "give one of cron"),
        ({"cron": "@daily", "every": 5}, InvalidSchedule, "not cron and every"),
        ({"tz": "Rome"}, InvalidSchedule, "time zone"),
        ({"every": "0s"}, InvalidOption, "from 1s"),
        ({"ends_at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidSchedule, "no future time"),
        ({"catch_up": "always"}, InvalidOption, "fire_once"),
        ({"catch-up": "skip"}, InvalidOption, "option of a schedule"),
    ],
)
def test_a_wrong_edit_changes_nothing(
    app: Pulse, report: Any, given: dict[str, Any], error: type[PulseError], says: str
) -> None:
    @app.task(name="shop.count")
    def count(number: int = 0) -> None: ...

    app.schedules.create("x", report, payload=ARGS, cron="0 9 * * *")
    before = app.schedules.get("x")

    with pytest.raises(error, match=says):
        app.schedules.edit("x", **given)

    assert app.schedules.get("x") == before


def test_a_pause_holds_until_it_is_resumed(app: Pulse, report: Any) -> None:
    app.schedules.create("x", report, payload=ARGS, every="1h")

    paused = app.schedules.pause("x", reason="month end")
    resumed = app.schedules.resume("x")

    assert paused.paused_at is not None
    assert (paused.pause_reason, resumed.pause_reason, resumed.paused_at) == ("month end", "", None)


def test_what_is_deleted_is_gone(app: Pulse, report: Any) -> None:
    made = app.schedules.create("x", report, payload=ARGS, every="1h")
    handle = app.schedules.trigger("x")

    app.schedules.delete("x")

    assert names(app) == []
    assert [fire.job_id for fire in app.schedules.fires(made.id).fires] == [handle.id]
    assert handle.status() is JobStatus.PENDING


# --- firing


@dataclass
class Total:
    euros: float


async def test_a_triggered_job_is_a_job_like_any_other(app: Pulse) -> None:
    @app.task(name="shop.total")
    async def total(ctx: Context) -> Total:
        assert ctx.scheduled_for is not None
        return Total((datetime.now(UTC) - ctx.scheduled_for).total_seconds())

    await app.schedules.acreate("x", total, every="1h")
    async with working(app):
        handle = await app.schedules.atrigger("x")
        result = await handle.aresult(timeout=20)
        fires = (await app.schedules.afires("x")).fires

    assert isinstance(result, Total)
    assert 0 <= result.euros < 20
    assert [(fire.cause, fire.job_id, fire.job_status) for fire in fires] == [
        ("trigger", handle.id, JobStatus.COMPLETED)
    ]


async def test_a_worker_runs_what_its_schedules_make(app: Pulse) -> None:
    came: list[datetime | None] = []

    @app.task(name="shop.tick")
    async def tick(ctx: Context) -> None:
        came.append(ctx.scheduled_for)

    await app.schedules.acreate("tick", tick, every="1s", max_occurrences=2)
    async with working(app):
        for _ in range(200):
            if len(came) == 2:
                break
            await asyncio.sleep(0.05)
        schedule = await app.schedules.aget("tick")

    first, second = came
    assert first is not None
    assert second == first + timedelta(seconds=1)
    assert (schedule.status, schedule.fired) == (ScheduleStatus.COMPLETED, 2)


async def test_a_handler_in_a_process_knows_what_it_was_scheduled_for(settings: Settings) -> None:
    app = in_processes.app
    app.settings = settings

    await app.schedules.acreate("x", in_processes.scheduled_for, every="1h")
    async with working(app, processes=1):
        handle = await app.schedules.atrigger("x")
        said = await handle.aresult(timeout=30)
        [fire] = (await app.schedules.afires("x")).fires
        unscheduled = await (await in_processes.scheduled_for.aenqueue()).aresult(timeout=30)

    assert said == fire.occurrence.isoformat()
    assert unscheduled is None


def test_a_backfill_makes_what_was_not_made_then(app: Pulse, report: Any) -> None:
    app.schedules.create("x", report, payload=ARGS, cron="0 * * * *")
    end = datetime(2026, 1, 1, 3, tzinfo=UTC)
    stretch: Any = {"start": end - 3 * HOUR, "end": end}

    planned = app.schedules.backfill("x", **stretch, dry_run=True)
    done = app.schedules.backfill("x", **stretch)
    again = app.schedules.backfill("x", **stretch)

    assert planned.occurrences == done.occurrences == [end - 3 * HOUR, end - 2 * HOUR, end - HOUR]
    assert (len(planned.job_ids), len(done.job_ids), again.job_ids) == (0, 3, [])
    assert app.handle(done.job_ids[0]).job().scheduled_for == end - 3 * HOUR
    with pytest.raises(InvalidOption, match="must be before end"):
        app.schedules.backfill("x", start=end, end=end)
    with pytest.raises(InvalidOption, match="limit must be large enough"):
        app.schedules.backfill("x", **stretch, limit=2)


async def test_coroutines_have_a_twin_of_everything(app: Pulse, report: Any) -> None:
    there = app.schedules
    await there.acreate("x", report, payload=ARGS, cron="0 * * * *")
    made: Schedule = await there.aget("x")
    end = datetime(2026, 1, 1, 3, tzinfo=UTC)

    assert made.job.payload == '{"city": "Rome"}'
    assert (await there.alist(task="shop.report")).schedules == [made]
    assert (await there.aedit("x", payload={"city": "Oslo"}, overlap="skip")).overlap is Overlap.SKIP
    assert (await there.apause("x")).paused_at
    assert (await there.aresume("x")).paused_at is None
    assert len(await there.apreview("x", n=2)) == 2
    assert len((await there.abackfill("x", start=end - HOUR, end=end)).job_ids) == 1
    assert isinstance((await there.atrigger("x")).id, UUID)
    assert len((await there.afires("x")).fires) == 2
    await there.adelete("x")
    with pytest.raises(ScheduleNotFound):
        await there.aget("x")
    app.schedules.declare("y", report, payload=ARGS, every=60)
    assert (await there.async_("shop")).created == ["y"]


# --- what code declares


def test_a_sync_makes_them_what_the_code_says(app: Pulse, report: Any, settings: Settings) -> None:
    app.schedules.declare("rome", report, payload=ARGS, cron="0 9 * * *")
    app.schedules.declare("oslo", report, payload={"city": "Oslo"}, cron="0 9 * * *")

    planned = app.schedules.sync("shop", dry_run=True)
    assert names(app) == []
    first = app.schedules.sync("shop")
    second = app.schedules.sync("shop")

    assert (planned.created, first.created, second.unchanged) == (["rome", "oslo"],) * 3
    assert app.schedules.get("rome").app == "shop"
    with pytest.raises(ScheduleOwned, match="change it in the code and sync"):
        app.schedules.edit("rome", every=60)

    with closing(Pulse(settings=settings)) as newer:
        newer.schedules.declare("roma", "shop.report", payload=ARGS, cron="0 9 * * *", aliases="rome")
        third = newer.schedules.sync("shop")

    assert (third.renamed, third.disabled) == ([("rome", "roma")], ["oslo"])
    assert app.schedules.get("oslo").status is ScheduleStatus.DISABLED


def test_a_sync_touches_nobody_elses_and_no_pause(app: Pulse, report: Any, settings: Settings) -> None:
    app.schedules.create("made at run time", report, payload=ARGS, every="1h")
    app.schedules.declare("rome", report, payload=ARGS, cron="0 9 * * *")
    app.schedules.sync("shop")
    app.schedules.pause("rome", reason="month end")

    with closing(Pulse(settings=settings)) as other:
        other.schedules.declare("theirs", "crm.import", every=60)
        other.schedules.sync("crm", prune=True)
        other.schedules.sync("crm", prune=True)
    before = app.schedules.list().schedules
    report_of_ours = app.schedules.sync("shop", prune=True)

    assert report_of_ours.unchanged == ["rome"]
    assert app.schedules.list().schedules == before
    assert [schedule.name for schedule in before] == ["made at run time", "rome", "theirs"]
    assert app.schedules.get("rome").pause_reason == "month end"
    with (
        closing(Pulse(settings=settings)) as third,
        pytest.raises(ScheduleOwned, match=r"give the one in .* another name"),
    ):
        third.schedules.declare("made at run time", "crm.import", every=60)
        third.schedules.sync("third")


def test_an_older_deploy_does_not_undo_a_newer_one(app: Pulse, report: Any) -> None:
    app.schedules.declare("rome", report, payload=ARGS, cron="0 9 * * *")

    app.schedules.sync("shop", deploy=7)

    with pytest.raises(StaleDeploy, match="this is 6"):
        app.schedules.sync("shop", deploy=6)


def test_what_is_no_longer_declared_may_be_removed(app: Pulse, report: Any, settings: Settings) -> None:
    app.schedules.declare("rome", report, payload=ARGS, cron="0 9 * * *")
    app.schedules.sync("shop")

    with closing(Pulse(settings=settings)) as newer:
        assert newer.schedules.sync("shop", prune=True).deleted == ["rome"]

    assert names(app) == []
