"""Are schedules the same through a server as in this process, and is what they are not refused with a code?"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import grpc
import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse import Context, Pulse
from pulse.doors.grpc.port import Port
from pulse.doors.grpc.schedules import SchedulesDoor
from pulse.engine.engine import Engine
from pulse.engine.schedules.use_cases import Schedules
from pulse.links.link import SchedulesLink
from pulse.links.opening import open_link
from pulse.links.remote.jobs import RemoteEngine
from pulse.links.remote.schedules import RemoteSchedules
from pulse.links.remote.servers import Servers
from pulse.model.decisions.schedule_changes import EDITABLE
from pulse.model.errors import (
    Forbidden,
    InvalidInput,
    InvalidName,
    InvalidOption,
    InvalidSchedule,
    PulseError,
    ScheduleExists,
    ScheduleNotFound,
    ScheduleOwned,
    StaleDeploy,
)
from pulse.model.jobs import JobFilter, JobStatus, RetryPolicy
from pulse.model.schedules import (
    JOB_FIELDS,
    CatchUp,
    Declared,
    FireOutcome,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleFilter,
    ScheduleStatus,
)
from pulse.settings import Settings
from pulse.wire import convert_schedules as wire
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.doors.grpc_client import Client, connected, refused
from tests.factories import a_new_job, submit_one
from tests.sdk.apps_here import working
from tests.served import Served
from tests.waiting import until

Status = grpc.StatusCode
SECOND, MINUTE, HOUR, DAY = (timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days"))
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday, half a minute past

STRETCH: dict[str, Any] = {"start": NOON - 5 * MINUTE, "end": NOON}


@pytest.fixture
async def settings(settings: Settings) -> Settings:
    return replace(settings, listen="127.0.0.1:0", patience=timedelta(seconds=5))


@pytest.fixture
async def clock(clock: FrozenClock) -> FrozenClock:
    clock.instant = NOON
    await clock.freeze()
    return clock


@asynccontextmanager
async def serving(engine: Engine, *interceptors: Any, **more: Any) -> AsyncIterator[str]:
    """The door and nothing beside it: no duty fires what a test wants to fire itself. Answers with its address."""
    port = Port(engine.settings, [SchedulesDoor(engine, **more)], interceptors)
    await port.start()
    try:
        yield str(port.address)
    finally:
        await port.stop(0)


@asynccontextmanager
async def remotely(engine: Engine, *interceptors: Any) -> AsyncIterator[RemoteSchedules]:
    async with (
        serving(engine, *interceptors) as address,
        Servers(replace(engine.settings, server_url=f"grpc://{address}")) as servers,
    ):
        yield RemoteEngine(servers).schedules


@pytest.fixture
async def remote(engine: Engine, clock: FrozenClock) -> AsyncIterator[RemoteSchedules]:
    async with remotely(engine) as schedules:
        yield schedules


@pytest.fixture(params=["in this process", "through a server"])
async def schedules(request: pytest.FixtureRequest, engine: Engine, clock: FrozenClock) -> AsyncIterator[SchedulesLink]:
    if request.param == "in this process":
        yield engine.schedules
    else:
        async with remotely(engine) as schedules:
            yield schedules


@pytest.fixture
async def client(engine: Engine, clock: FrozenClock) -> AsyncIterator[Client]:
    async with serving(engine) as address, connected(address) as client:
        yield client


def a_schedule(**given: Any) -> NewSchedule:
    if not {"cron", "every", "run_at", "delay"} & given.keys():
        given["cron"] = "* * * * *"
    defaults: dict[str, Any] = {"name": "tick", "job": a_new_job()}
    return NewSchedule(**defaults | given)


FULL_JOB = a_new_job(
    topic="post",
    payload='{"to": "ada", "größe": [1, 2.5, null]}',
    priority=-7,
    max_attempts=9,
    retry=RetryPolicy(kind="list", delays=(1.5, 60.0)),
    timeout=timedelta(seconds=1, microseconds=500_001),
    result_ttl=DAY,
    tags=("a", "ü"),
)
KINDS: dict[str, dict[str, Any]] = {
    "cron": {"cron": "30 2 * * 1-5", "tz": "Europe/Berlin", "catch_up": CatchUp.REPLAY, "replay_limit": 7},
    "cron with a prefix": {"cron": "CRON_TZ=Asia/Tokyo 0 9 * * *", "overlap": Overlap.BUFFER_ONE},
    "every": {"every": 90 * SECOND, "starts_at": NOON + HOUR, "ends_at": NOON + DAY, "jitter": 5 * SECOND},
    "@every": {"cron": "@every 1h", "max_occurrences": 3, "overlap": Overlap.SKIP},
    "run_at": {"run_at": NOON + timedelta(microseconds=1), "catch_up": CatchUp.SKIP},
    "delay": {"delay": 2 * HOUR, "tz": "America/New_York"},
    "all of the job": {"cron": "@daily", "job": FULL_JOB},
}


# --- what is made is what is there


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_created_is_what_is_there(schedules: SchedulesLink, engine: Engine, kind: str) -> None:
    new = a_schedule(**KINDS[kind])

    created, is_new = await schedules.create(new)
    again, is_new_again = await schedules.create(new)

    there = await engine.schedules.get("tick")
    assert (is_new, is_new_again) == (True, False)
    assert msgspec.structs.replace(created, job=there.job) == again == there  # the database writes JSON in its own way
    for field in ("job", "catch_up", "replay_limit", "overlap", "jitter", "max_occurrences"):
        assert field == "job" or getattr(there, field) == getattr(new, field)


async def test_a_schedule_is_found_by_its_name_and_by_its_id(schedules: SchedulesLink) -> None:
    made, _ = await schedules.create(a_schedule(name="nächtlich / 1"))

    found = [await schedules.get(name) for name in (made.name, made.id, str(made.id), str(made.id).upper())]

    assert {each.id for each in found} == {made.id}


async def test_everything_about_a_schedule_is_told(
    schedules: SchedulesLink, engine: Engine, clock: FrozenClock
) -> None:
    """In each state it can be in."""
    names = ["done", "parked", "paused", "gone", "waiting"]
    await engine.schedules.sync("shop", [Declared(schedule=a_schedule(name="gone"))])
    await engine.schedules.sync("shop", [])
    await engine.schedules.create(a_schedule(name="done", delay=MINUTE))
    await engine.schedules.create(a_schedule(name="parked"))
    await engine.schedules.create(a_schedule(name="paused"))
    await engine.schedules.pause("paused", reason="für immer")
    await engine.schedules.create(a_schedule(name="waiting", overlap=Overlap.BUFFER_ONE))
    await break_zone(engine, "parked")
    for _ in range(2):
        await clock.advance(MINUTE)
        await engine.duties.fires.fire_due()

    found = [await schedules.get(name) for name in names]

    assert found == [await engine.schedules.get(name) for name in names]
    done, parked, paused, gone, waiting = found
    assert [each.status for each in (done, parked, gone)] == [
        ScheduleStatus.COMPLETED,
        ScheduleStatus.BROKEN,
        ScheduleStatus.DISABLED,
    ]
    assert (parked.timed.tz, gone.app, paused.pause_reason) == ("Mars/Base", "shop", "für immer")
    assert parked.error is not None
    assert None not in (done.last_run_at, paused.paused_at, waiting.buffered_for)


async def break_zone(engine: Engine, name: str) -> None:
    """As if the zone had gone from the machine."""
    sql = "update pulse.schedules set tz = 'Mars/Base' where name = $1"
    await engine.duties._database.run(lambda conn: conn.fetch(sql, name))


# --- lists


async def test_lists_are_filtered_and_come_in_pages(schedules: SchedulesLink, engine: Engine) -> None:
    for number in range(5):
        job = a_new_job(task=f"t{number % 2}", topic="post" if number < 3 else "", tags=("x",) if number else ())
        await schedules.create(a_schedule(name=f"s{number}", job=job))
    await schedules.pause("s1")

    async def names(**wanted: Any) -> list[str]:
        return [each.name for each in (await schedules.list_page(ScheduleFilter(**wanted))).schedules]

    assert await names() == ["s0", "s1", "s2", "s3", "s4"]
    assert await names(paused=True) == ["s1"]
    assert await names(paused=False, topic="post") == ["s0", "s2"]
    assert await names(task="t1") == ["s1", "s3"]
    assert await names(tag="x", topic="t1") == ["s3"]
    assert await names(status=ScheduleStatus.ACTIVE, tag="x") == ["s1", "s2", "s3", "s4"]
    assert await names(status=ScheduleStatus.BROKEN) == []
    first = await schedules.list_page(limit=3)
    second = await schedules.list_page(limit=3, after=first.next)
    assert ([len(first.schedules), len(second.schedules)], first.next, second.next) == ([3, 2], "s2", None)
    assert first.schedules + second.schedules == (await engine.schedules.list_page()).schedules


async def test_a_page_is_cut_where_it_would_not_fit_a_message(remote: RemoteSchedules, engine: Engine) -> None:
    large = a_new_job(payload='"' + "x" * 1_000_000 + '"')
    for number in range(10):
        await engine.schedules.create(a_schedule(name=f"s{number}", job=large))

    names: list[str] = []
    page, pages = await remote.list_page(), 1
    names += [each.name for each in page.schedules]
    while page.next:
        page, pages = await remote.list_page(after=page.next), pages + 1
        names += [each.name for each in page.schedules]

    assert (names, pages) == ([f"s{number}" for number in range(10)], 2)


async def test_what_became_of_occurrences_comes_in_pages(
    schedules: SchedulesLink, engine: Engine, clock: FrozenClock
) -> None:
    await schedules.create(a_schedule(catch_up=CatchUp.REPLAY, replay_limit=3))
    await clock.advance(10 * MINUTE)
    await engine.duties.fires.fire_due()
    await schedules.trigger("tick")

    first = await schedules.fires("tick", limit=3)
    second = await schedules.fires("tick", limit=3, after=first.next)

    fires = first.fires + second.fires
    assert (len(first.fires), len(second.fires), second.next) == (3, 2, None)
    assert fires == (await engine.schedules.fires("tick")).fires
    assert [fire.cause for fire in fires] == ["trigger"] + 4 * ["timetable"]
    assert [fire.outcome for fire in fires] == 4 * [FireOutcome.FIRED] + [FireOutcome.SKIPPED]
    assert [fire.job_status for fire in fires] == 4 * [JobStatus.PENDING] + [None]
    assert (fires[-1].occurrences, fires[-1].reason) == (7, "missed, beyond the 3 that are replayed")


# --- previews


async def test_a_preview_tells_local_time_and_clock_changes(
    schedules: SchedulesLink, engine: Engine, clock: FrozenClock
) -> None:
    clock.instant = datetime(2026, 3, 28, 12, tzinfo=UTC)
    await clock.freeze()
    new = a_schedule(cron="30 2 * * *", tz="Europe/Berlin", max_occurrences=3)
    await schedules.create(new)

    found = await schedules.preview("tick")
    would_be = await schedules.preview_new(new, n=2)

    wanted = await engine.schedules.preview("tick")
    assert (found, would_be) == (wanted, wanted[:2])
    assert [each.local.isoformat() for each in found] == [each.local.isoformat() for each in wanted]
    assert [each.local.tzname() for each in found] == ["CEST", "CEST", "CEST"]
    assert [each.offset for each in found] == 3 * [2 * HOUR]
    assert "02:30" in str(found[0].note)
    assert found[1].note is None


async def test_local_time_may_be_behind_and_odd(schedules: SchedulesLink) -> None:
    for tz, offset in (("America/St_Johns", -3.5), ("Asia/Kathmandu", 5.75), ("UTC", 0)):
        [found] = await schedules.preview_new(a_schedule(cron="0 9 * * *", tz=tz), n=1)
        assert (found.local.hour, found.offset) == (9, offset * HOUR)


# --- edits

EDITS: dict[str, Any] = {
    "cron": "0 9 * * *",
    "every": 5 * MINUTE,
    "run_at": NOON + DAY,
    "delay": 3 * HOUR,
    "tz": "Asia/Tokyo",
    "starts_at": NOON + HOUR,
    "ends_at": NOON + 99 * DAY,
    "max_occurrences": 12,
    "jitter": 3 * SECOND,
    "catch_up": CatchUp.REPLAY,
    "replay_limit": 5,
    "overlap": Overlap.SKIP,
    "task": "other",
    "payload": '{"x": 1}',
    "topic": "elsewhere",
    "priority": 100,
    "max_attempts": 1,
    "retry": RetryPolicy(kind="fixed", base=3.0),
    "timeout": MINUTE,
    "result_ttl": HOUR,
    "tags": ("t",),
}
CLEARED: dict[str, Any] = dict.fromkeys(
    ("starts_at", "ends_at", "max_occurrences", "jitter", "retry", "timeout", "result_ttl")
) | {"topic": "", "tags": (), "payload": "{}", "priority": 0}


def values(schedule: Schedule) -> dict[str, Any]:
    """What can be edited, as it stands."""
    definition, job = schedule.definition(), schedule.job
    found = {name: definition.get(name) for name in EDITABLE}
    return found | {name: getattr(job, name) for name in JOB_FIELDS}


def test_every_field_is_edited_below_and_known_on_the_wire() -> None:
    assert set(EDITS) == set(EDITABLE) == {*wire.READERS, *wire.JOB_READERS}


@pytest.mark.parametrize("field", EDITABLE)
async def test_an_edit_changes_the_fields_it_names_and_no_other(
    schedules: SchedulesLink, engine: Engine, field: str
) -> None:
    before, _ = await schedules.create(a_schedule(name="tick", job=FULL_JOB))

    edited = await schedules.edit("tick", {field: EDITS[field]})

    wanted = values(before) | {field: EDITS[field], "payload": msgspec.json.decode(FULL_JOB.payload)}
    if field in ("every", "run_at", "delay"):
        wanted |= {"cron": None}
    if field == "delay":
        wanted |= {"delay": None, "run_at": NOON + EDITS["delay"]}
    if field == "payload":
        wanted |= {"payload": {"x": 1}}
    found = values(edited)
    assert found | {"payload": msgspec.json.decode(found["payload"])} == wanted
    assert edited == await engine.schedules.get("tick")


@pytest.mark.parametrize("field", CLEARED)
async def test_an_edit_takes_away(schedules: SchedulesLink, field: str) -> None:
    full = {name: EDITS[name] for name in ("starts_at", "ends_at", "max_occurrences", "jitter")}
    before, _ = await schedules.create(a_schedule(job=FULL_JOB, **full))

    edited = await schedules.edit("tick", {field: CLEARED[field]})

    assert values(edited) == values(before) | {"payload": values(edited)["payload"], field: CLEARED[field]}


async def test_several_fields_are_edited_together(schedules: SchedulesLink) -> None:
    await schedules.create(a_schedule())

    edited = await schedules.edit("tick", {"every": MINUTE, "cron": None, "task": "other", "topic": ""})

    assert (edited.timed.every, edited.timed.cron) == (MINUTE, None)
    assert (edited.job.task, edited.job.routed_topic) == ("other", "other")
    assert (await schedules.edit("tick", {"cron": None, "priority": 3})).job.priority == 3


# --- acting on it


async def test_a_pause_holds_until_it_is_resumed(schedules: SchedulesLink, clock: FrozenClock) -> None:
    await schedules.create(a_schedule())

    paused = await schedules.pause("tick", reason="quiet")
    await clock.advance(HOUR)
    resumed = await schedules.resume("tick")

    assert (paused.paused_at, paused.pause_reason) == (NOON, "quiet")
    assert (resumed.paused_at, resumed.pause_reason) == (None, "")
    assert resumed.next_run_at == NOON + HOUR + 30 * SECOND


async def test_an_empty_zone_is_utc(schedules: SchedulesLink) -> None:
    made, _ = await schedules.create(a_schedule(tz=""))
    await schedules.edit("tick", {"tz": "Europe/Berlin"})
    edited = await schedules.edit("tick", {"tz": ""})

    assert made.timed.tz == edited.timed.tz == "UTC"


async def test_what_is_deleted_is_gone(schedules: SchedulesLink, engine: Engine) -> None:
    made, _ = await schedules.create(a_schedule())

    assert (await schedules.delete(made.id)).id == made.id

    assert not (await engine.schedules.list_page()).schedules
    with pytest.raises(ScheduleNotFound):
        await schedules.delete("tick")


async def test_the_log_of_what_is_deleted_is_read_by_its_id_as_long_as_it_is_kept(
    schedules: SchedulesLink, engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    made, _ = await schedules.create(a_schedule(catch_up=CatchUp.REPLAY))
    await clock.advance(4 * MINUTE)
    await engine.duties.fires.fire_due()
    before = (await schedules.fires("tick")).fires
    await schedules.delete("tick")

    first = await schedules.fires(made.id, limit=3)
    second = await schedules.fires(str(made.id), limit=3, after=first.next)

    assert (len(first.fires), second.next) == (3, None)
    assert first.fires + second.fires == before
    assert (await schedules.fires(made.id, after=f"{NOON.isoformat()} FIRED")).fires == []  # behind the last one
    with pytest.raises(ScheduleNotFound):
        await schedules.fires("tick")
    await clock.advance(settings.keep_fires + timedelta(days=1))
    await engine.duties.prune()
    with pytest.raises(ScheduleNotFound):
        await schedules.fires(made.id)


async def test_a_trigger_makes_a_job_each_time(schedules: SchedulesLink, engine: Engine) -> None:
    """Also with no time between them."""
    made, _ = await schedules.create(a_schedule())

    fires = [await schedules.trigger("tick") for _ in range(3)]

    jobs = [await engine.jobs.get(fire.job_id or UUID(int=0)) for fire in fires]
    assert [(job.schedule_id, job.scheduled_for) for job in jobs] == [(made.id, fire.occurrence) for fire in fires]
    assert len({job.id for job in jobs}) == 3
    assert {(fire.outcome, fire.cause) for fire in fires} == {(FireOutcome.FIRED, "trigger")}


async def test_a_trigger_repeated_with_its_id_makes_one_job(
    schedules: SchedulesLink, engine: Engine, clock: FrozenClock
) -> None:
    await schedules.create(a_schedule())
    own = uuid4()

    first = await schedules.trigger("tick", job_id=own)
    await clock.advance(SECOND)
    second = await schedules.trigger("tick", job_id=own)

    assert first == second
    assert len((await engine.jobs.list_page()).jobs) == len((await schedules.fires("tick")).fires) == 1


async def test_a_trigger_with_the_id_of_another_job_is_refused(schedules: SchedulesLink, engine: Engine) -> None:
    await schedules.create(a_schedule())
    other = await submit_one(engine)

    with pytest.raises(InvalidOption, match="another job has it"):
        await schedules.trigger("tick", job_id=other)


async def test_a_backfill_makes_what_was_not_made(schedules: SchedulesLink, engine: Engine) -> None:
    await schedules.create(a_schedule())

    planned = await schedules.backfill("tick", **STRETCH, dry_run=True)
    done = await schedules.backfill("tick", **STRETCH)
    again = await schedules.backfill("tick", **STRETCH)

    assert (planned.dry_run, planned.job_ids, len(planned.occurrences)) == (True, [], 5)
    assert (done.dry_run, done.occurrences, len(done.job_ids)) == (False, planned.occurrences, 5)
    assert (again.occurrences, again.job_ids) == ([], [])
    jobs = {job.id: job.scheduled_for for job in (await engine.jobs.list_page(JobFilter())).jobs}
    assert [jobs[job_id] for job_id in done.job_ids] == done.occurrences


# --- what code declares


async def test_a_sync_makes_schedules_what_the_code_says(schedules: SchedulesLink, engine: Engine) -> None:
    def declared(*names: str, **given: Any) -> list[Declared]:
        return [Declared(schedule=a_schedule(name=name, **given)) for name in names]

    first = await schedules.sync("shop", declared("a", "b", "c"), deploy=1)
    renamed = [
        *declared("a"),
        *declared("b", cron="0 9 * * *"),
        Declared(schedule=a_schedule(name="d"), aliases=("c",)),
    ]
    planned = await schedules.sync("shop", renamed, dry_run=True, deploy=2)
    second = await schedules.sync("shop", renamed, deploy=2)
    third = await schedules.sync("shop", declared("a"), deploy=2)
    fourth = await schedules.sync("shop", declared("a", "b"), deploy=2, prune=True)

    assert (first.created, first.dry_run) == (["a", "b", "c"], False)
    assert (second.unchanged, second.changed, second.renamed) == (["a"], ["b"], [("c", "d")])
    assert planned == msgspec.structs.replace(second, dry_run=True)
    assert third.disabled == ["b", "d"]
    assert (fourth.enabled, fourth.deleted) == (["b"], ["d"])
    assert [each.name for each in (await engine.schedules.list_page()).schedules] == ["a", "b"]


# --- what is refused, in the same words

Call = Callable[[SchedulesLink], Any]
REFUSED: dict[str, tuple[type[PulseError], Call]] = {
    "unknown": (ScheduleNotFound, lambda on: on.get("nobody")),
    "unknown id": (ScheduleNotFound, lambda on: on.pause(UUID(int=7))),
    "unknown to fires": (ScheduleNotFound, lambda on: on.fires("nobody")),
    "empty name": (InvalidName, lambda on: on.get("")),
    "name with NUL": (InvalidName, lambda on: on.resume("a\x00")),
    "name with a lone surrogate": (InvalidName, lambda on: on.delete("\ud800")),
    "name that is none": (InvalidName, lambda on: on.preview(7)),  # type: ignore[arg-type]
    "exists": (ScheduleExists, lambda on: on.create(a_schedule(cron="0 9 * * *", overlap=Overlap.SKIP))),
    "owned, created": (ScheduleOwned, lambda on: on.create(a_schedule(name="declared"))),
    "owned, edited": (ScheduleOwned, lambda on: on.edit("declared", {"priority": 1})),
    "owned, deleted": (ScheduleOwned, lambda on: on.delete("declared")),
    "owned, by nobody": (ScheduleOwned, lambda on: on.sync("shop", [Declared(schedule=a_schedule())], deploy=9)),
    "stale": (StaleDeploy, lambda on: on.sync("shop", [], deploy=6)),
    "without its number": (StaleDeploy, lambda on: on.sync("shop", [])),
    "deploy too large": (InvalidInput, lambda on: on.sync("shop", [], deploy=1 << 70)),
    "declared twice": (InvalidSchedule, lambda on: on.sync("app", [Declared(schedule=a_schedule())] * 2)),
    "app without a name": (InvalidName, lambda on: on.sync("", [])),
    "no future": (InvalidSchedule, lambda on: on.create(a_schedule(name="n", cron="0 0 30 2 *"))),
    "past": (InvalidSchedule, lambda on: on.preview_new(a_schedule(run_at=NOON - DAY))),
    "nothing changed": (InvalidSchedule, lambda on: on.edit("tick", {})),
    "unknown field": (InvalidOption, lambda on: on.edit("tick", {"colour": "red"})),
    "name changed": (InvalidOption, lambda on: on.edit("tick", {"name": "tock"})),
    "bad cron": (InvalidSchedule, lambda on: on.edit("tick", {"cron": "61 * * * *"})),
    "bad zone": (InvalidSchedule, lambda on: on.edit("tick", {"tz": "Mars/Base"})),
    "no timetable left": (InvalidSchedule, lambda on: on.edit("tick", {"cron": None})),
    "two timetables": (InvalidSchedule, lambda on: on.edit("tick", {"cron": "@daily", "every": MINUTE})),
    "negative length": (InvalidOption, lambda on: on.edit("tick", {"every": -MINUTE})),
    "no catch-up": (InvalidOption, lambda on: on.edit("tick", {"catch_up": "sometimes"})),
    "limit of replays 0": (InvalidOption, lambda on: on.edit("tick", {"replay_limit": 0})),
    "attempts 0": (InvalidOption, lambda on: on.edit("tick", {"max_attempts": 0})),
    "priority none": (InvalidOption, lambda on: on.edit("tick", {"priority": None})),
    "naive instant": (InvalidOption, lambda on: on.edit("tick", {"run_at": datetime(2027, 1, 1)})),  # noqa: DTZ001
    "ends before it starts": (InvalidSchedule, lambda on: on.edit("bounded", {"ends_at": NOON + MINUTE})),
    "fired as often": (InvalidOption, lambda on: on.edit("fired", {"max_occurrences": 1})),
    "reason too long": (InvalidOption, lambda on: on.pause("tick", reason="x" * 2_001)),
    "preview of 0": (InvalidOption, lambda on: on.preview("tick", n=0)),
    "preview of too many": (InvalidOption, lambda on: on.preview("tick", n=1 << 40)),
    "new preview of too many": (InvalidOption, lambda on: on.preview_new(a_schedule(), n=1_001)),
    "page of 0": (InvalidOption, lambda on: on.list_page(limit=0)),
    "page of -1": (InvalidOption, lambda on: on.fires("tick", limit=-1)),
    "page of too many": (InvalidOption, lambda on: on.fires("tick", limit=501)),
    "cursor": (InvalidInput, lambda on: on.fires("tick", after="yesterday")),
    "cursor before time": (InvalidInput, lambda on: on.fires("tick", after="0001-01-01T00:00:00+14:00 FIRED")),
    "naive backfill": (InvalidOption, lambda on: on.backfill("tick", start=datetime(2026, 1, 1), end=NOON)),  # noqa: DTZ001
    "backfill backwards": (InvalidOption, lambda on: on.backfill("tick", start=NOON, end=NOON - MINUTE)),
    "backfill of the future": (InvalidOption, lambda on: on.backfill("tick", start=NOON, end=NOON + DAY)),
    "backfill of too many": (InvalidOption, lambda on: on.backfill("tick", start=NOON - DAY, end=NOON)),
    "backfill of 0": (InvalidOption, lambda on: on.backfill("tick", start=NOON - DAY, end=NOON, limit=0)),
    "backfill before time": (
        InvalidOption,
        lambda on: on.backfill("tick", start=datetime.min.replace(tzinfo=UTC), end=NOON),
    ),
}


@pytest.fixture
async def some(engine: Engine, clock: FrozenClock) -> None:
    """Schedules for the calls above."""
    await engine.schedules.create(a_schedule())
    await engine.schedules.create(a_schedule(name="bounded", starts_at=NOON + HOUR))
    await engine.schedules.create(a_schedule(name="fired", every=MINUTE))
    await engine.schedules.sync("shop", [Declared(schedule=a_schedule(name="declared"))], deploy=7)
    await clock.advance(MINUTE)
    await engine.duties.fires.fire_due()


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_refused_is_refused_in_the_same_words(
    remote: RemoteSchedules, engine: Engine, some: None, what: str
) -> None:
    kind, call = REFUSED[what]

    with pytest.raises(kind) as here:
        await call(engine.schedules)
    with pytest.raises(kind) as there:
        await call(remote)

    assert (type(there.value), type(there.value).code) == (type(here.value), type(here.value).code)
    assert str(there.value) == str(here.value)


async def test_a_schedule_that_is_broken_is_refused_in_the_same_words(
    remote: RemoteSchedules, engine: Engine, some: None
) -> None:
    await break_zone(engine, "tick")

    calls: list[Call] = [lambda on: on.preview("tick"), lambda on: on.backfill("tick", **STRETCH)]
    for call in calls:
        with pytest.raises(InvalidSchedule, match="Mars/Base") as here:
            await call(engine.schedules)
        with pytest.raises(InvalidSchedule) as there:
            await call(remote)
        assert str(there.value) == str(here.value)


def test_both_have_the_same_methods_with_the_same_parameters() -> None:
    names = [name for name, _ in inspect.getmembers(SchedulesLink, inspect.isfunction) if not name.startswith("_")]
    assert len(names) == 13
    for name in names:
        signatures = {
            str(inspect.signature(getattr(kind, name))) for kind in (SchedulesLink, Schedules, RemoteSchedules)
        }
        assert len(signatures) == 1, name


# --- bad messages


def a_definition(**given: Any) -> pb.NewSchedule:
    defaults: dict[str, Any] = {"name": "n", "cron": "@daily", "job": pb.NewJob(task="mail")}
    return pb.NewSchedule(**defaults | given)


def create(**given: Any) -> tuple[str, Any]:
    return "CreateSchedule", pb.CreateScheduleRequest(schedule=a_definition(**given))


def edit(*fields: str, **given: Any) -> tuple[str, Any]:
    return "EditSchedule", pb.EditScheduleRequest(name="tick", definition=pb.NewSchedule(**given), fields=fields)


def backfill(**given: Any) -> tuple[str, Any]:
    stretch = {"start": Timestamp(seconds=1_770_000_000), "end": Timestamp(seconds=1_770_000_060)}
    return "BackfillSchedule", pb.BackfillScheduleRequest(**{"name": "tick"} | stretch | given)


ABSURD = Timestamp(seconds=1 << 61)
BEFORE_TIME = Timestamp(seconds=-62_135_596_800)  # the first instant that Python has
LARGEST = (1 << 32) - 1
BAD: dict[str, tuple[tuple[str, Any], Status, str]] = {
    "nothing": (("CreateSchedule", pb.CreateScheduleRequest()), Status.INVALID_ARGUMENT, "invalid_name"),
    "no name": (create(name=""), Status.INVALID_ARGUMENT, "invalid_name"),
    "long name": (create(name="x" * 201), Status.INVALID_ARGUMENT, "invalid_name"),
    "no task": (create(job=pb.NewJob()), Status.INVALID_ARGUMENT, "invalid_name"),
    "no timetable": (create(cron=""), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "two timetables": (create(every=Duration(seconds=60)), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "bad cron": (create(cron="* * *"), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "bad zone": (create(tz="../etc/passwd"), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "negative every": (create(cron="", every=Duration(seconds=-5)), Status.INVALID_ARGUMENT, "invalid_option"),
    "absurd every": (create(cron="", every=Duration(seconds=1 << 61)), Status.INVALID_ARGUMENT, "invalid_option"),
    "negative after": (create(cron="", delay=Duration(seconds=-5)), Status.INVALID_ARGUMENT, "invalid_option"),
    "negative jitter": (create(jitter=Duration(nanos=-1)), Status.INVALID_ARGUMENT, "invalid_option"),
    "absurd at": (create(cron="", run_at=ABSURD), Status.INVALID_ARGUMENT, "invalid_option"),
    "at before time": (create(cron="", run_at=BEFORE_TIME), Status.INVALID_ARGUMENT, "invalid_option"),
    "absurd start": (create(starts_at=ABSURD), Status.INVALID_ARGUMENT, "invalid_option"),
    "starts when it ends": (
        create(starts_at=Timestamp(seconds=1_900_000_000), ends_at=Timestamp(seconds=1_900_000_000)),
        Status.INVALID_ARGUMENT,
        "invalid_schedule",
    ),
    "absurd occurrences": (create(max_occurrences=LARGEST), Status.INVALID_ARGUMENT, "invalid_option"),
    "absurd replays": (create(replay_limit=LARGEST), Status.INVALID_ARGUMENT, "invalid_option"),
    "unknown catch-up": (create(catch_up=99), Status.INVALID_ARGUMENT, "invalid_option"),
    "unknown overlap": (create(overlap=-1), Status.INVALID_ARGUMENT, "invalid_option"),
    "job with a key": (create(job=pb.NewJob(task="m", unique_key="k")), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "job with an id": (create(job=pb.NewJob(task="m", id=str(uuid4()))), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "job with a delay": (
        create(job=pb.NewJob(task="m", delay=Duration(seconds=1))),
        Status.INVALID_ARGUMENT,
        "invalid_schedule",
    ),
    "taken": (create(name="tick"), Status.ALREADY_EXISTS, "schedule_exists"),
    "owned": (create(name="declared"), Status.FAILED_PRECONDITION, "schedule_owned"),
    "get nothing": (("GetSchedule", pb.GetScheduleRequest()), Status.INVALID_ARGUMENT, "invalid_name"),
    "get nobody": (("GetSchedule", pb.GetScheduleRequest(name="x")), Status.NOT_FOUND, "schedule_not_found"),
    "unknown status": (
        ("ListSchedules", pb.ListSchedulesRequest(filter=pb.ScheduleFilter(status=77))),  # type: ignore[arg-type]
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "absurd page": (
        ("ListSchedules", pb.ListSchedulesRequest(limit=LARGEST)),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "NUL as a cursor": (
        ("ListSchedules", pb.ListSchedulesRequest(after="\x00")),
        Status.INVALID_ARGUMENT,
        "invalid_input",
    ),
    "edit nothing": (edit(cron="@hourly"), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "edit what is not": (edit("cron", "colour"), Status.INVALID_ARGUMENT, "invalid_option"),
    "edit its name": (edit("name", name="x"), Status.INVALID_ARGUMENT, "invalid_option"),
    "edit by a path": (edit("job.task"), Status.INVALID_ARGUMENT, "invalid_option"),
    "edit when to nothing": (edit("cron"), Status.INVALID_ARGUMENT, "invalid_schedule"),
    "edit task to nothing": (edit("task"), Status.INVALID_ARGUMENT, "invalid_name"),
    "edit to an unknown overlap": (edit("overlap", overlap=9), Status.INVALID_ARGUMENT, "invalid_option"),
    "edit to a bad retry": (edit("retry", job=pb.NewJob(retry="{")), Status.INVALID_ARGUMENT, "invalid_option"),
    "edit to a bad payload": (edit("payload", job=pb.NewJob(payload="{")), Status.INVALID_ARGUMENT, "invalid_payload"),
    "edit nobody": (
        ("EditSchedule", pb.EditScheduleRequest(name="x", fields=["cron"])),
        Status.NOT_FOUND,
        "schedule_not_found",
    ),
    "pause with NUL": (
        ("PauseSchedule", pb.PauseScheduleRequest(name="tick", reason="\x00")),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "resume nobody": (("ResumeSchedule", pb.ResumeScheduleRequest(name="x")), Status.NOT_FOUND, "schedule_not_found"),
    "delete nothing": (("DeleteSchedule", pb.DeleteScheduleRequest()), Status.INVALID_ARGUMENT, "invalid_name"),
    "delete what is owned": (
        ("DeleteSchedule", pb.DeleteScheduleRequest(name="declared")),
        Status.FAILED_PRECONDITION,
        "schedule_owned",
    ),
    "trigger with no id": (
        ("TriggerSchedule", pb.TriggerScheduleRequest(name="tick", id="7")),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "backfill nothing": (
        ("BackfillSchedule", pb.BackfillScheduleRequest(name="tick")),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "backfill from before time": (backfill(start=BEFORE_TIME), Status.INVALID_ARGUMENT, "invalid_option"),
    "backfill to an absurd end": (backfill(end=ABSURD), Status.INVALID_ARGUMENT, "invalid_option"),
    "backfill an absurd number": (backfill(limit=LARGEST), Status.INVALID_ARGUMENT, "invalid_option"),
    "preview nothing": (("PreviewSchedule", pb.PreviewScheduleRequest()), Status.INVALID_ARGUMENT, "invalid_input"),
    "preview an empty name": (
        ("PreviewSchedule", pb.PreviewScheduleRequest(name="")),
        Status.INVALID_ARGUMENT,
        "invalid_name",
    ),
    "preview an absurd number": (
        ("PreviewSchedule", pb.PreviewScheduleRequest(name="tick", n=LARGEST)),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "preview an empty definition": (
        ("PreviewSchedule", pb.PreviewScheduleRequest(definition=pb.NewSchedule())),
        Status.INVALID_ARGUMENT,
        "invalid_name",
    ),
    "a cursor that is none": (
        ("ListFires", pb.ListFiresRequest(name="tick", after="0001-01-01T00:00:00+14:00 FIRED")),
        Status.INVALID_ARGUMENT,
        "invalid_filter",
    ),
    "an absurd page of fires": (
        ("ListFires", pb.ListFiresRequest(name="tick", limit=LARGEST)),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
    "sync for nobody": (("SyncSchedules", pb.SyncSchedulesRequest()), Status.INVALID_ARGUMENT, "invalid_name"),
    "sync with a bad one": (
        ("SyncSchedules", pb.SyncSchedulesRequest(app="app", schedules=[pb.DeclaredSchedule()])),
        Status.INVALID_ARGUMENT,
        "invalid_name",
    ),
    "sync too many": (
        ("SyncSchedules", pb.SyncSchedulesRequest(app="app", schedules=[pb.DeclaredSchedule()] * 10_001)),
        Status.INVALID_ARGUMENT,
        "batch_too_large",
    ),
    "sync late": (
        ("SyncSchedules", pb.SyncSchedulesRequest(app="shop", deploy=6)),
        Status.FAILED_PRECONDITION,
        "stale_deploy",
    ),
    "sync from before the first": (
        ("SyncSchedules", pb.SyncSchedulesRequest(app="shop", deploy=-(1 << 63))),
        Status.INVALID_ARGUMENT,
        "invalid_option",
    ),
}


@pytest.mark.parametrize("what", BAD)
async def test_a_bad_message_is_refused_with_a_code_and_changes_nothing(
    client: Client, engine: Engine, some: None, what: str
) -> None:
    (method, request), status, code = BAD[what]
    before = (await engine.schedules.list_page()).schedules

    answer = await refused(getattr(client.schedules, method)(request))

    assert (answer.status, answer.code) == (status, code)
    assert answer.message
    assert (await engine.schedules.list_page()).schedules == before


async def test_what_is_left_out_has_its_default(client: Client, engine: Engine) -> None:
    answer = await client.schedules.CreateSchedule(create()[1])

    made = await engine.schedules.get("n")
    assert answer.created
    assert NewSchedule(**made.definition()) == NewSchedule(name="n", cron="@daily", job=a_new_job(payload="{}"))
    assert wire.read_schedule(answer.schedule) == made


async def test_numbers_left_out_have_their_defaults(client: Client, some: None) -> None:
    preview = await client.schedules.PreviewSchedule(pb.PreviewScheduleRequest(name="tick"))
    fires = await client.schedules.ListFires(pb.ListFiresRequest(name="tick"))
    filled = await client.schedules.BackfillSchedule(backfill()[1])
    fire = await client.schedules.TriggerSchedule(pb.TriggerScheduleRequest(name="tick"))

    assert (len(preview.occurrences), len(fires.fires), len(filled.job_ids)) == (10, 1, 1)
    assert fire.job_id


# --- who may


class NotYours(InvalidInput):
    code = "not_yours"


async def test_every_call_is_checked_for_the_topic_it_leads_to_before_it_does_anything(
    engine: Engine, some: None
) -> None:
    asked: list[tuple[str, str]] = []
    allowed: set[tuple[str, str]] = set()

    def check(scope: str, topic: str) -> None:
        asked.append((scope, topic))
        if (scope, topic) not in allowed:
            raise NotYours(f"no {scope} for {topic}")

    follow, manage = [("follow", "mail")], [("manage", "mail")]
    submit, move = [("submit", "mail")], [("submit", "mail"), ("submit", "post")]
    calls: list[tuple[tuple[str, Any], list[tuple[str, str]]]] = [
        (create(), submit),
        (create(job=pb.NewJob(topic="post", task="m")), [("submit", "post")]),
        (("GetSchedule", pb.GetScheduleRequest(name="tick")), follow),
        (("ListSchedules", pb.ListSchedulesRequest()), [("view", "*")]),
        (("ListSchedules", pb.ListSchedulesRequest(filter=pb.ScheduleFilter(topic="mail"))), [("view", "mail")]),
        (edit("priority"), submit),
        (("PauseSchedule", pb.PauseScheduleRequest(name="tick")), manage),
        (("ResumeSchedule", pb.ResumeScheduleRequest(name="tick")), manage),
        (("DeleteSchedule", pb.DeleteScheduleRequest(name="tick")), manage),
        (("TriggerSchedule", pb.TriggerScheduleRequest(name="tick")), manage),
        (backfill(), manage),
        (("PreviewSchedule", pb.PreviewScheduleRequest(name="tick")), follow),
        (("PreviewSchedule", pb.PreviewScheduleRequest(definition=a_definition())), follow),
        (("ListFires", pb.ListFiresRequest(name="tick")), follow),
        (("SyncSchedules", pb.SyncSchedulesRequest(app="shop", deploy=8, prune=True)), [("submit", "*")]),
    ]
    before = await seen(engine)
    async with serving(engine, check=check) as address, connected(address) as client:
        methods = {method for (method, _), _ in calls}
        assert methods == {method.name for method in pb.DESCRIPTOR.services_by_name["Schedules"].methods}
        for (method, request), expected in calls:
            asked.clear()
            assert (await refused(getattr(client.schedules, method)(request))).code == "not_yours"
            assert asked == expected
        allowed.add(("submit", "mail"))
        for method, request in (
            edit("topic", job=pb.NewJob(topic="post")),
            edit("task", job=pb.NewJob(task="post")),
            edit("task", "topic", job=pb.NewJob(task="x", topic="post")),
        ):
            asked.clear()
            assert (await refused(getattr(client.schedules, method)(request))).code == "not_yours"
            assert asked == move

    assert await seen(engine) == before


@pytest.fixture
def servers(settings: Settings) -> Iterator[Served]:
    found = Served(settings)
    yield found
    found.stop()


async def test_a_token_schedules_what_it_may_submit(engine: Engine, servers: Served) -> None:
    secrets = {
        scopes: (await engine.tokens.create(scopes.replace(":", "-"), scopes.split()))[1]
        for scopes in ("submit", "submit:mail", "operate", "work")
    }
    through = servers.start()
    yearly, other = a_schedule(cron="@yearly"), a_schedule(name="other", cron="@yearly", job=a_new_job(topic="other"))

    async def may(scopes: str, call: Call) -> bool:
        async with open_link(replace(through, token=secrets[scopes])) as link:
            try:
                await call(link.schedules)
            except Forbidden:
                return False
            return True

    def declare(on: SchedulesLink) -> Any:
        return on.sync("shop", [])

    assert await may("submit", lambda on: on.create(other))
    assert await may("submit:mail", lambda on: on.create(yearly))
    assert not await may("submit:mail", lambda on: on.get("other"))
    assert not await may("submit:mail", lambda on: on.edit("tick", {"topic": "other"}))
    assert not await may("submit:mail", lambda on: on.edit("other", {"topic": "mail"}))
    assert await may("submit:mail", lambda on: on.edit("tick", {"priority": 1}))
    assert [await may(scopes, declare) for scopes in secrets] == [True, False, False, False]
    assert [await may(scopes, lambda on: on.list_page()) for scopes in secrets] == [False, False, True, False]
    assert [await may(scopes, lambda on: on.create(yearly)) for scopes in ("operate", "work")] == [False, False]
    assert [await may(scopes, lambda on: on.trigger("tick")) for scopes in secrets] == [True, True, True, False]
    assert await may("operate", lambda on: on.delete("other"))


async def test_the_log_of_what_is_deleted_is_for_those_who_may_follow_every_topic(
    engine: Engine, servers: Served
) -> None:
    secrets = {
        scopes: (await engine.tokens.create(scopes.replace(":", "-"), scopes.split()))[1]
        for scopes in ("submit", "submit:mail", "operate", "work:mail")
    }
    made, _ = await engine.schedules.create(a_schedule(cron="@yearly"))
    await engine.schedules.trigger(made.id)
    through = servers.start()

    async def lines(scopes: str) -> int | type[PulseError]:
        async with open_link(replace(through, token=secrets[scopes])) as link:
            try:
                return len((await link.schedules.fires(made.id)).fires)
            except PulseError as error:
                return type(error)

    there = [await lines(scopes) for scopes in secrets]
    await engine.schedules.delete(made.id)
    gone = [await lines(scopes) for scopes in secrets]

    assert there == [1, 1, 1, Forbidden]
    assert gone == [1, ScheduleNotFound, 1, Forbidden]


# --- answers that are lost


class Losing(grpc.aio.ServerInterceptor):
    """Does what the first call of a method asks, and then tells nobody."""

    def __init__(self, method: str) -> None:
        self._method = f"/pulse.v1.Schedules/{method}"
        self.lost = 0

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if details.method != self._method or self.lost:
            return handler
        self.lost += 1

        async def lose(request: Any, context: Any) -> None:
            await handler.unary_unary(request, context)
            await context.abort(Status.UNAVAILABLE, "the line was cut")

        return grpc.unary_unary_rpc_method_handler(lose, handler.request_deserializer, handler.response_serializer)


REPEATED: dict[str, Call] = {
    "CreateSchedule": lambda on: on.create(a_schedule(name="n")),
    "EditSchedule": lambda on: on.edit("tick", {"every": MINUTE, "tags": ("x",)}),
    "PauseSchedule": lambda on: on.pause("tick", reason="r"),
    "ResumeSchedule": lambda on: on.resume("tick"),
    "DeleteSchedule": lambda on: on.delete("tick"),
    "TriggerSchedule": lambda on: on.trigger("tick"),
    "BackfillSchedule": lambda on: on.backfill("tick", **STRETCH),
    "SyncSchedules": lambda on: on.sync("shop", [Declared(schedule=a_schedule(name="d"))], deploy=7, prune=True),
}


async def seen(engine: Engine) -> Any:
    """All there is, but ids: what was done, and how often."""
    page = await engine.schedules.list_page()
    nobody = UUID(int=0)
    fires = {each.name: (await engine.schedules.fires(each.id)).fires for each in page.schedules}
    return (
        [msgspec.structs.replace(each, id=nobody) for each in page.schedules],
        {name: [msgspec.structs.replace(fire, job_id=None) for fire in lines] for name, lines in fires.items()},
        sorted(str(job.scheduled_for) for job in (await engine.jobs.list_page()).jobs),
    )


@pytest.mark.parametrize("method", REPEATED)
async def test_a_call_whose_answer_is_lost_is_repeated_without_harm(
    engine: Engine, settings: Settings, clock: FrozenClock, method: str
) -> None:
    async def told(*interceptors: Any) -> tuple[Any, Any]:
        await engine.duties._database.run(
            lambda conn: conn.execute("delete from pulse.schedules; delete from pulse.jobs")
        )
        await engine.schedules.create(a_schedule())
        await engine.schedules.sync("shop", [Declared(schedule=a_schedule(name="e"))], deploy=7)
        async with remotely(engine, *interceptors) as remote:
            return await REPEATED[method](remote), await seen(engine)

    losing = Losing(method)

    answer, wanted = await told()
    again, found = await told(losing)

    assert losing.lost == 1
    assert found == wanted
    assert type(again) is type(answer)


# --- the job knows


async def test_a_handler_knows_the_instant_it_was_made_for(settings: Settings, servers: Served, engine: Engine) -> None:
    app = Pulse(settings=servers.start(tick=timedelta(milliseconds=100)))
    told: list[Any] = []

    @app.task(name="mail")
    async def mail(ctx: Context) -> None:
        told.append((ctx.job_id, ctx.scheduled_for))

    async with working(app), open_link(app.settings) as link:
        [plain] = await link.submit([a_new_job(payload="{}")])
        await link.schedules.create(a_schedule(name="hourly", cron="@hourly", job=a_new_job(payload="{}")))
        await link.schedules.create(a_schedule(name="soon", delay=SECOND, job=a_new_job(payload="{}")))
        soon = (await link.schedules.get("soon")).timed.run_at
        fire = await link.schedules.trigger("hourly")

        async def all_told() -> bool:
            return len(told) == 3

        await until(all_told)
        jobs = {scheduled_for: await link.wait(job_id, seconds=20) for job_id, scheduled_for in told}

    assert set(jobs) == {None, fire.occurrence, soon}
    assert (jobs[None].id, jobs[fire.occurrence].id) == (plain.id, fire.job_id)
    assert jobs[None].schedule_id is None
    assert jobs[soon].schedule_id == (await engine.schedules.get("soon")).id
    for at, job in jobs.items():
        assert (job, job.scheduled_for) == (await engine.jobs.get(job.id), at)


async def test_a_direct_link_has_the_schedules_of_its_engine(settings: Settings) -> None:
    async with open_link(settings) as link:
        assert isinstance(link.schedules, Schedules)
