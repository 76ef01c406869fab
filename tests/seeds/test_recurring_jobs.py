"""Document 001, about scheduled and recurring jobs: a schedule is a row that can be changed, a fire is an ordinary job,
and each occurrence makes exactly one, without a leader."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from pulse.engine.engine import Engine
from pulse.model.errors import InvalidSchedule
from pulse.model.jobs import JobStatus, Outcome, RetryPolicy
from pulse.model.schedules import CatchUp, FireOutcome, ScheduleStatus
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.schedules import fires as fires_store
from pulse.store.statements import load_statements
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.conftest import open_connection
from tests.doors.command_line import call_json
from tests.doors.grpc_client import connected
from tests.doors.http_client import served_http
from tests.factories import a_new_job, a_report, claim_one
from tests.seeds.conftest import Another
from tests.seeds.helpers import HOUR, MINUTE, NOON, SECOND, a_schedule, create, fire, fires_of, jobs_made
from tests.seeds.sayings import says
from tests.store.test_plans import explain, nodes

NAME = "each minute"  # of a schedule that nothing else is said of


async def occurrences(engine: Engine) -> list[datetime | None]:
    return [job.scheduled_for for job in await jobs_made(engine)]


class Crash(Exception):
    """A process dies at this place."""


# --- what a schedule is


@says("001", 46, "A schedule is once, an interval or a cron expression, and has the one field of its kind.")
async def test_a_schedule_has_the_one_field_of_its_kind(engine: Engine, noon: FrozenClock, conn: Connection) -> None:
    given: dict[str, dict[str, Any]] = {"once": {"run_at": NOON + HOUR}, "interval": {"every": MINUTE}, "cron": {}}
    for kind, when in given.items():
        assert (await create(engine, name=kind, **when)).timed.kind == kind

    for kind, column in [("once", "cron = '@daily'"), ("interval", "cron = '@daily'"), ("cron", "every = '1h'")]:
        with pytest.raises(asyncpg.CheckViolationError):
            await conn.fetch(f"update pulse.schedules set {column} where name = $1", kind)
    with pytest.raises(InvalidSchedule, match="give one of cron, every, run_at and delay"):
        a_schedule(cron="@daily", every=HOUR)


@says("001", 47, "Each occurrence makes exactly one job: none is lost in a crash, none is doubled by a second process.")
async def test_each_occurrence_makes_exactly_one_job(
    engine: Engine, another: Another, noon: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        await create(engine, name=f"s{number}", every=MINUTE)
    engines = [engine, await another(), await another()]
    fire_regular = fires_store.fire_regular

    async def crash(*given: Any) -> Any:
        await fire_regular(*given)
        raise Crash

    for minute in range(6):
        await noon.advance(MINUTE)
        if minute % 2:
            with monkeypatch.context() as patched, pytest.raises(Crash):
                patched.setattr(fires_store, "fire_regular", crash)
                await engine.duties.fires.fire_due()
        await asyncio.gather(*(each.duties.fires.fire_due() for each in engines * 2))

    made = [(job.schedule_id, job.scheduled_for) for job in await jobs_made(engine)]
    assert (len(made), len(set(made))) == (60, 60)
    assert {at for _, at in made} == {NOON + MINUTE * n for n in range(1, 7)}


@says("001", 48, "There is no leader and no lock service.")
async def test_any_process_fires_and_none_holds_a_lock_over_its_steps(
    engine: Engine, another: Another, noon: FrozenClock, conn: Connection
) -> None:
    await create(engine)
    for _ in range(3):  # each time a process of its own, which has never seen the others
        await noon.advance(MINUTE)
        assert await fire(await another()) == 1

    locks = await conn.fetch(
        "select locktype from pg_locks join pg_stat_activity using (pid) where datname = current_database() "
        "and application_name = 'pulse' and pid <> pg_backend_pid() and (locktype = 'advisory' or mode like '%Row%')"
    )
    assert (len(await jobs_made(engine)), locks) == (3, [])
    assert not [name for name, each in load_statements("pulse").items() if "advisory" in each.sql]


@says(
    "001", 49, "Next_run_at is the only place of its time, and a partial index on what is not paused serves the loop."
)
async def test_what_is_due_is_read_from_a_partial_index(
    engine: Engine, noon: FrozenClock, conn: Connection, settings: Settings
) -> None:
    await create(engine)
    await create(engine, name="paused")
    await engine.schedules.pause("paused")
    await conn.fetch("update pulse.schedules set next_run_at = $1", NOON - MINUTE)  # and nothing else says when
    async with open_connection(settings) as pinned:
        plan = await explain(pinned._raw, "due_schedules", [100])

    [row] = await conn.fetch("select indexdef from pg_indexes where indexname = 'schedules_due'")
    assert "(next_run_at) WHERE" in row["indexdef"]
    assert "paused_at IS NULL" in row["indexdef"]
    scans = {(node["Node Type"], node.get("Index Name")) for node in nodes(plan) if "Relation Name" in node}
    assert ("Index Scan", "schedules_due") in scans
    assert await fire(engine) == 1
    assert await occurrences(engine) == [NOON - MINUTE]


@says("001", 51, "A schedule that cannot fire is passed over, and cannot stall the rest.")
async def test_one_that_cannot_fire_does_not_stall_the_rest(
    engine: Engine, noon: FrozenClock, conn: Connection
) -> None:
    await create(engine, name="bad", job=a_new_job(task="forbidden"))
    for number in range(20):
        await create(engine, name=f"good {number}", every=MINUTE)
    await noon.advance(MINUTE)
    await conn.execute("alter table pulse.jobs add constraint forbidden check (task <> 'forbidden') not valid")
    try:
        await fire(engine)
    finally:
        await conn.execute("alter table pulse.jobs drop constraint forbidden")

    bad = await engine.schedules.get("bad")
    assert (bad.status, bad.next_run_at) == (ScheduleStatus.BROKEN, None)
    assert "forbidden" in str(bad.error)
    assert len(await jobs_made(engine)) == 20


# --- one job per occurrence


async def fire_once_more(engine: Engine, conn: Connection) -> None:
    """The cursor is where it was before, as after a crash between the insert and the advance."""
    await conn.fetch("update pulse.schedules set next_run_at = last_run_at")
    await fire(engine)


@says(
    "001",
    52,
    "A job's id is the uuid5 of schedule and occurrence.",
    verdict="deviates",
    decision="0025",
    because="it is derived from both, but begins with the second of the occurrence (a version 8), so that lists by "
    "id have it in its place.",
)
async def test_the_id_of_a_job_is_derived_from_schedule_and_occurrence(
    engine: Engine, another: Another, noon: FrozenClock, conn: Connection
) -> None:
    await create(engine)
    await create(engine, name="other")
    await noon.advance(MINUTE)
    await fire(engine)
    first = {job.schedule_id: job.id for job in await jobs_made(engine)}
    for table in ("jobs", "fires"):
        await conn.execute(f"delete from pulse.{table}")  # nobody remembers

    await fire_once_more(await another(), conn)

    assert {job.schedule_id: job.id for job in await jobs_made(engine)} == first
    assert len(set(first.values())) == 2
    assert {job_id.version for job_id in first.values()} == {8}
    seconds = {(job_id.int >> 80) // 1000 for job_id in first.values()}
    assert seconds == {int((noon.instant.replace(second=0)).timestamp())}


@says("001", 53, "Firing an occurrence again does nothing.")
async def test_firing_an_occurrence_again_makes_no_second_job(
    engine: Engine, noon: FrozenClock, conn: Connection
) -> None:
    await create(engine, every=MINUTE)
    await noon.advance(MINUTE)
    await fire(engine)
    before = await jobs_made(engine)

    await fire_once_more(engine, conn)

    assert await jobs_made(engine) == before
    assert len(before) == 1
    assert (await engine.schedules.get(NAME)).next_run_at == NOON + 2 * MINUTE, "and the series goes on"
    await conn.execute("delete from pulse.jobs")  # as retention does
    await fire_once_more(engine, conn)
    assert await jobs_made(engine) == []


@says(
    "001",
    54,
    "The job is inserted before the cursor advances.",
    verdict="deviates",
    decision="0025",
    because="both are one transaction: whatever happens in between, neither has happened.",
)
async def test_the_job_and_the_cursor_are_one_transaction(
    engine: Engine, noon: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(engine, every=MINUTE)
    await noon.advance(MINUTE)
    fire_regular, seen = fires_store.fire_regular, []

    async def crash(conn: Connection, usual: Any) -> Any:
        await fire_regular(conn, usual)
        seen.append((await engine.schedules.get(NAME), await jobs_made(engine)))  # on connections of their own
        raise Crash

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(fires_store, "fire_regular", crash)
        await fire(engine)

    for schedule, jobs in [*seen, (await engine.schedules.get(NAME), await jobs_made(engine))]:
        assert (schedule.next_run_at, schedule.fired, jobs) == (NOON + MINUTE, 0, [])
    assert await fire(engine) == 1
    assert await occurrences(engine) == [NOON + MINUTE]


@says("001", 55, "The advance is a compare-and-set: a stale writer moves nothing.")
async def test_a_stale_cursor_moves_nothing(engine: Engine, noon: FrozenClock, conn: Connection) -> None:
    schedule = await create(engine, every=MINUTE)
    await noon.advance(2 * MINUTE)
    await fire(engine)
    before = await engine.schedules.get(NAME), await jobs_made(engine)

    fired = await fires_store.fire_regular(conn, [(schedule.id, NOON + MINUTE, NOON + 2 * MINUTE, schedule.id)])

    assert fired.moved == 0
    assert (await engine.schedules.get(NAME), await jobs_made(engine)) == before


@says(
    "001",
    56,
    "A once schedule that has fired is deleted.",
    verdict="deviates",
    decision="0025",
    because="it is kept as COMPLETED, with its history.",
)
async def test_a_once_schedule_that_has_fired_is_kept(engine: Engine, noon: FrozenClock) -> None:
    await create(engine, run_at=NOON + MINUTE)
    await noon.advance(MINUTE)
    await fire(engine)

    kept = await engine.schedules.get(NAME)
    assert (kept.status, kept.next_run_at, kept.last_run_at) == (ScheduleStatus.COMPLETED, None, NOON + MINUTE)
    assert [line.outcome for line in await fires_of(engine)] == [FireOutcome.FIRED]
    await noon.advance(HOUR)
    assert await fire(engine) == 0


@says("001", 57, "What was missed is caught up with by one fire, and the timetable goes on from now.")
async def test_what_was_missed_is_one_fire(engine: Engine, noon: FrozenClock) -> None:
    await create(engine)
    await noon.advance(HOUR)  # nobody was there

    await fire(engine)

    assert len(await jobs_made(engine)) == 1
    assert (await engine.schedules.get(NAME)).next_run_at == NOON + HOUR + MINUTE
    missed = [line.occurrences for line in await fires_of(engine) if line.outcome is FireOutcome.COALESCED]
    assert sum(missed) == 59


# --- lineage


@says("001", 58, "Every job that a schedule made carries the schedule's id.")
async def test_a_job_knows_the_schedule_it_comes_from(engine: Engine, noon: FrozenClock, settings: Settings) -> None:
    schedule = await create(engine)
    await noon.advance(MINUTE)
    await fire(engine)
    [job] = await jobs_made(engine)

    async with served_http(settings) as http, connected(str(http.server.address)) as grpc:
        by_http = await http.done("GET", f"/v1/jobs/{job.id}")
        by_grpc = await grpc.jobs.GetJob(pb.GetJobRequest(id=str(job.id)))

    assert (by_http["schedule_id"], by_grpc.schedule_id) == (str(schedule.id), str(schedule.id))
    assert by_http["scheduled_for"] == "2026-03-02T12:01:00Z"
    assert by_grpc.scheduled_for.ToDatetime(UTC) == NOON + MINUTE


# --- changing a schedule


@says("001", 60, "A pause touches one row, and no job that was made.")
async def test_a_pause_touches_no_job(engine: Engine, noon: FrozenClock) -> None:
    await create(engine)
    await create(engine, name="other")
    await noon.advance(MINUTE)
    await fire(engine)
    before, other = await jobs_made(engine), await engine.schedules.get("other")

    await engine.schedules.pause(NAME)

    assert (await jobs_made(engine), await engine.schedules.get("other")) == (before, other)
    await noon.advance(MINUTE)
    await fire(engine)
    assert [job.schedule_id for job in await jobs_made(engine)].count(other.id) == 2
    assert len(await jobs_made(engine)) == 3


@says("001", 62, "An edit is for occurrences to come: what was made stays as it was.")
async def test_an_edit_is_for_what_is_to_come(engine: Engine, noon: FrozenClock) -> None:
    await create(engine, job=a_new_job(priority=1))
    await noon.advance(MINUTE)
    await fire(engine)
    before = await jobs_made(engine)

    await engine.schedules.edit(NAME, {"priority": 9, "payload": '{"to": "eve"}', "every": 10 * MINUTE, "cron": None})
    await noon.advance(10 * MINUTE)
    await fire(engine)

    old, new = await jobs_made(engine)
    assert [old] == before
    assert (new.priority, json.loads(new.payload), new.scheduled_for) == (9, {"to": "eve"}, NOON + 11 * MINUTE)


@says("001", 63, "Deleting a schedule leaves its jobs.")
async def test_deleting_a_schedule_leaves_its_jobs(engine: Engine, noon: FrozenClock) -> None:
    await create(engine)
    await noon.advance(MINUTE)
    await fire(engine)
    before = await jobs_made(engine)

    await engine.schedules.delete(NAME)

    assert len(before) == 1
    assert await jobs_made(engine) == before
    assert (await claim_one(engine)).id == before[0].id


@says("001", 64, "A fire is an ordinary job, with priority, retries, back-off and dead letters.")
async def test_a_fire_is_an_ordinary_job(engine: Engine, noon: FrozenClock) -> None:
    policy = RetryPolicy(kind="fixed", base=5, jitter=0)
    await create(engine, job=a_new_job(priority=7, max_attempts=2, retry=policy))
    await noon.advance(MINUTE)
    await fire(engine)
    [job] = await jobs_made(engine)
    statuses = []
    for _ in range(2):
        await engine.claims.report([a_report(await claim_one(engine), Outcome.FAIL)])
        statuses.append((await engine.jobs.get(job.id)).status)
        await noon.advance(5 * SECOND)
        await engine.duties.promote()

    assert (job.priority, statuses) == (7, [JobStatus.RETRYING, JobStatus.DEAD_LETTERED])
    await noon.advance(MINUTE)
    await fire(engine)
    assert len(await jobs_made(engine)) == 2, "a dead letter does not end the series"


# --- the costs it accepts


@says(
    "001",
    65,
    "A fire may be up to a second late, which is the interval of the loop.",
    verdict="better",
    decision="0025",
    because="the duty sleeps until the very instant.",
)
async def test_the_duty_sleeps_until_the_very_instant(engine: Engine, noon: FrozenClock) -> None:
    await create(engine, every=timedelta(seconds=7, milliseconds=321))

    wait = await engine.duties.fires.step()
    await noon.advance(wait)
    await engine.duties.fires.step()

    assert wait == timedelta(seconds=7, milliseconds=321)
    [line] = await fires_of(engine)
    assert line.late == timedelta()


@says(
    "001",
    66,
    "What happens to missed occurrences cannot be chosen.",
    verdict="better",
    decision="0025",
    because="one fire for all of them, none, or each.",
)
async def test_what_happens_to_missed_occurrences_can_be_chosen(engine: Engine, noon: FrozenClock) -> None:
    for policy in CatchUp:
        await create(engine, name=policy.value, catch_up=policy, replay_limit=10)
    await noon.advance(HOUR + 30 * SECOND)
    await fire(engine)

    lines = {policy: await fires_of(engine, policy.value) for policy in CatchUp}
    fired = {policy: sum(line.outcome is FireOutcome.FIRED for line in log) for policy, log in lines.items()}
    assert fired == {CatchUp.FIRE_ONCE: 1, CatchUp.SKIP: 0, CatchUp.REPLAY: 10}
    assert {sum(line.occurrences for line in log) for log in lines.values()} == {60}, "and nothing is unaccounted for"


@says(
    "001",
    67,
    "An expression that cannot be read is found out when it fires, and its cursor stalls.",
    verdict="deviates",
    decision="0025",
    because="refused when it is written; one that cannot be read later is BROKEN, and the others fire.",
)
async def test_an_unreadable_expression_is_refused_and_later_broken(
    engine: Engine, noon: FrozenClock, conn: Connection
) -> None:
    await create(engine)
    await create(engine, name="gone", tz="Europe/Berlin")
    before = await engine.schedules.get(NAME)
    for bad in ("61 * * * *", "", "0 0 30 2 *"):
        with pytest.raises(InvalidSchedule):
            await create(engine, name="bad", cron=bad)
        with pytest.raises(InvalidSchedule):
            await engine.schedules.edit(NAME, {"cron": bad})
    assert await engine.schedules.get(NAME) == before

    await conn.execute("update pulse.schedules set tz = 'Atlantis/Center' where name = 'gone'")
    for _ in range(2):
        await noon.advance(MINUTE)
        await fire(engine)

    gone = await engine.schedules.get("gone")
    assert (gone.status, gone.next_run_at) == (ScheduleStatus.BROKEN, None)
    assert "Atlantis/Center" in str(gone.error)
    assert [job.schedule_id for job in await jobs_made(engine)].count(before.id) == 2


@says("001", 69, "A pause, an edit or a delete must not be overtaken by a fire.")
async def test_a_pause_and_a_delete_that_came_first_win(engine: Engine, noon: FrozenClock, settings: Settings) -> None:
    for name in ("paused", "deleted", "untouched"):
        await create(engine, name=name)
    async with open_connection(settings) as other, other.transaction():
        await other.execute("update pulse.schedules set paused_at = pulse.now() where name = 'paused'")
        await other.execute("delete from pulse.schedules where name = 'deleted'")
        await noon.advance(MINUTE)
        async with asyncio.timeout(30):
            assert await fire(engine) == 1, "those that somebody is changing are passed over"
    assert await fire(engine) == 0

    untouched = await engine.schedules.get("untouched")
    assert [job.schedule_id for job in await jobs_made(engine)] == [untouched.id]


# --- as it is from this release on


@says(
    "001",
    50,
    "The loop looks every second, and takes at most 100 that are due.",
    verdict="deviates",
    decision="0025",
    because="both are settings, and a batch is larger: it takes a tenth of a second.",
)
async def test_tick_and_batch_are_settings(another: Another, noon: FrozenClock) -> None:
    defaults: Any = Settings.from_env({})
    given: Any = Settings.from_env({"PULSE_SCHEDULE_TICK": "4s", "PULSE_SCHEDULE_BATCH": "3"})
    assert defaults.schedule_tick == SECOND
    assert defaults.schedule_batch >= 100

    engine = await another(schedule_batch=given.schedule_batch)
    for number in range(8):
        await create(engine, name=f"s{number}", every=MINUTE)
    await noon.advance(MINUTE)
    assert [await engine.duties.fires.fire_due() for _ in range(4)] == [3, 3, 2, 0]

    longer = {"notify": False, "tick": HOUR, "alarm_tick": HOUR}  # where nobody is told of schedules
    looking = await another(schedule_tick=given.schedule_tick, **longer)
    assert timedelta() < await looking.duties.promote() <= 4 * SECOND


@says(
    "001",
    68,
    "A tick takes at most 100 schedules, so a larger backlog drains over several ticks.",
    verdict="deviates",
    decision="0025",
    because="a full batch is followed by the next at once.",
)
async def test_a_full_batch_is_followed_by_the_next_at_once(another: Another, noon: FrozenClock) -> None:
    engine = await another(schedule_batch=3)
    for number in range(20):
        await create(engine, name=f"s{number}", every=MINUTE)
    await noon.advance(MINUTE)

    while not await engine.duties.fires.step():  # it asks to be called again without a pause
        pass

    assert len(await jobs_made(engine)) == 20


@says("001", 59, "The fires of a schedule are its jobs, found by its id, and were fired when they were submitted.")
async def test_the_fires_of_a_deleted_schedule_are_found_by_its_id(
    engine: Engine, noon: FrozenClock, settings: Settings
) -> None:
    schedule = await create(engine)
    await create(engine, name="other")
    await noon.advance(MINUTE + SECOND)
    await fire(engine)
    [job] = [job for job in await jobs_made(engine) if job.schedule_id == schedule.id]
    assert (await fires_of(engine))[0].logged_at == job.submitted_at == noon.instant
    await engine.schedules.delete(NAME)

    env = {"PULSE_DATABASE_URL": str(settings.database_url)}
    async with served_http(settings) as http, connected(str(http.server.address)) as grpc:
        fires = await http.done("GET", f"/v1/schedules/{schedule.id}/fires")
        jobs = await http.done("GET", f"/v1/jobs?schedule_id={schedule.id}")
        grpc_fires = await grpc.schedules.ListFires(pb.ListFiresRequest(name=str(schedule.id)))
        job_filter: Any = pb.JobFilter
        wanted = job_filter(schedule_id=str(schedule.id))
        grpc_jobs = await grpc.operate.ListJobs(pb.ListJobsRequest(filter=wanted))
        cli_fires = await asyncio.to_thread(call_json, "schedules", "fires", schedule.id, **env)
        cli_jobs = await asyncio.to_thread(call_json, "jobs", "list", "--schedule", schedule.id, **env)

    assert [each["job_id"] for each in fires["fires"]] == [str(job.id)]
    assert [each["id"] for each in jobs["jobs"]] == [str(job.id)]
    assert [each.job_id for each in grpc_fires.fires] == [str(job.id)]
    assert [each.id for each in grpc_jobs.jobs] == [str(job.id)]
    assert [each["job_id"] for each in cli_fires["fires"]] == [str(job.id)]
    assert [each["id"] for each in cli_jobs["jobs"]] == [str(job.id)]


@says(
    "001",
    61,
    "What fell due during a pause fires when it ends.",
    verdict="deviates",
    decision="0025",
    because="a once schedule runs, unless its catch-up is skip; a series goes on with what is to come, and records "
    "what it passed over.",
)
async def test_a_once_schedule_paused_over_its_instant_runs_on_resume(engine: Engine, noon: FrozenClock) -> None:
    await create(engine, name="once", run_at=NOON + MINUTE)
    await create(engine, name="skip", run_at=NOON + MINUTE, catch_up=CatchUp.SKIP)
    await create(engine)
    for name in ("once", "skip", NAME):
        await engine.schedules.pause(name)
    await noon.advance(HOUR)
    for name in ("once", "skip", NAME):
        await engine.schedules.resume(name)

    await fire(engine)

    once = await engine.schedules.get("once")
    assert [job.schedule_id for job in await jobs_made(engine)] == [once.id]
    assert once.status is ScheduleStatus.COMPLETED
    assert (await engine.schedules.get("skip")).status is ScheduleStatus.COMPLETED
    passed_over = [(line.outcome, line.occurrences, line.reason) for line in await fires_of(engine)]
    assert passed_over == [(FireOutcome.SKIPPED, 60, "paused")]
    assert (await engine.schedules.get(NAME)).next_run_at == NOON + HOUR + MINUTE
