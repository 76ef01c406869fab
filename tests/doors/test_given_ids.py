"""Can anybody take the id of a job that is yet to come? Ids that only the server makes are refused at every door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import copy
from datetime import datetime, timedelta
from uuid import UUID, uuid4, uuid5

import asyncpg
import grpc
import msgspec
import pytest

from pulse.doors.access import LOCAL
from pulse.doors.http.idempotency import NAMESPACE
from pulse.engine.engine import Engine
from pulse.model.errors import InvalidOption
from pulse.model.ids import bucket_of_topic, check_given_id, fire_id, in_bucket, keyed_id
from pulse.model.jobs import NewJob
from pulse.model.schedules import FireOutcome, Overlap, Schedule
from pulse.server import Server
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.wire.v1 import pulse_pb2 as pb
from tests.clock import FrozenClock
from tests.doors.grpc_client import Client, refused, served
from tests.doors.http_client import Http, served_http
from tests.engine.test_schedules import create, fire, log, made
from tests.factories import a_new_job, submit_one
from tests.waiting import until

MINUTE = timedelta(minutes=1)
KEY = {"idempotency-key": "order-42"}


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    async with served(Server(engine), engine) as client:
        yield client


@pytest.fixture
async def http(settings: Settings) -> AsyncIterator[Http]:
    async with served_http(settings) as http:
        yield http


def next_id(schedule: Schedule, settings: Settings) -> UUID:
    assert schedule.next_run_at is not None
    return fire_id(schedule.id, schedule.next_run_at, bucket_of_topic("mail", settings.buckets))


def with_id(job_id: UUID, **given: object) -> NewJob:
    """A job as no door lets it in."""
    job = copy(a_new_job(**given))
    msgspec.structs.force_setattr(job, "id", job_id)
    return job


# --- at the doors


@pytest.mark.parametrize(
    "own", [fire_id(NAMESPACE, datetime.fromisoformat("2030-01-01T00:00Z"), 0), uuid5(NAMESPACE, "x")]
)
def test_an_id_that_only_the_server_makes_is_refused_with_those_that_are_not(own: UUID) -> None:
    with pytest.raises(InvalidOption, match=r"must be a uuid of version 7 or 4 \(only the server makes"):
        NewJob(task="mail", id=own)
    with pytest.raises(InvalidOption, match="only the server makes"):
        check_given_id("id", own)
    with pytest.raises(InvalidOption):
        NewJob(task="mail", id=keyed_id(b"secret", "text"))
    NewJob(task="mail", id=uuid4())


async def test_a_caller_of_grpc_cannot_hold_the_place_of_an_occurrence(
    client: Client, engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    schedule = await create(engine, every=MINUTE)
    wanted = str(next_id(schedule, settings))

    code, _, text = await refused(
        client.jobs.SubmitJobs(pb.SubmitJobsRequest(jobs=[pb.NewJob(task="mail", id=wanted)]))
    )
    trigger = await refused(client.schedules.TriggerSchedule(pb.TriggerScheduleRequest(name=schedule.name, id=wanted)))
    await clock.advance(MINUTE)
    await fire(engine)
    await until(lambda: made(engine), within=30)  # a duty of the server may have been faster, and not yet done

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "only the server makes" in text
    assert trigger[0] is grpc.StatusCode.INVALID_ARGUMENT
    [job] = await made(engine)
    assert (str(job.id), job.schedule_id) == (wanted, schedule.id)


async def test_sql_refuses_them_too_and_takes_the_others(conn: Connection, settings: Settings) -> None:
    bucket = bucket_of_topic("mail", settings.buckets)
    sql = "select pulse.enqueue('mail', '{}', jsonb_build_object('id', $1::text))"

    for own in (uuid5(uuid4(), "x"), keyed_id(b"secret", "x")):
        with pytest.raises(asyncpg.PostgresError, match=r"of version 7 or 4 \(only the server makes"):
            await conn.fetch(sql, str(in_bucket(own, bucket)))

    allowed = in_bucket(uuid4(), bucket)
    assert (await conn.fetch(sql, str(allowed)))[0][0] == allowed


# --- ids that others have already


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.BUFFER_ONE], ids=["the usual way", "the other way"])
async def test_an_occurrence_whose_id_another_job_has_is_not_called_fired(
    engine: Engine, settings: Settings, clock: FrozenClock, overlap: Overlap
) -> None:
    schedule = await create(engine, every=MINUTE, overlap=overlap)
    other = await create(engine, name="other", every=MINUTE)
    await engine.jobs.submit([with_id(next_id(schedule, settings), payload='{"junk": 1}')])
    await clock.advance(MINUTE)

    await fire(engine)

    [line] = await log(engine)
    assert (line.outcome, line.job_id) == (FireOutcome.SKIPPED, None)
    assert line.reason == f"error: another job has its id, {next_id(schedule, settings)}"
    assert [job.schedule_id for job in await made(engine)] == [other.id]
    after = await engine.schedules.get(schedule.name)
    assert (after.fired, after.last_run_at, after.status) == (0, None, schedule.status)

    await clock.advance(MINUTE)
    await fire(engine)
    assert [line.outcome for line in await log(engine)] == [FireOutcome.SKIPPED, FireOutcome.FIRED]


async def test_a_backfill_whose_id_another_job_has_is_refused(
    engine: Engine, settings: Settings, clock: FrozenClock
) -> None:
    schedule = await create(engine, every=MINUTE)
    await engine.schedules.pause(schedule.name)
    await engine.jobs.submit([with_id(next_id(schedule, settings))])
    await clock.advance(2 * MINUTE)

    assert schedule.next_run_at is not None
    with pytest.raises(Exception, match="refuses a job"):
        await engine.schedules.backfill(
            schedule.name, start=schedule.next_run_at, end=schedule.next_run_at + timedelta(microseconds=1)
        )
    assert await log(engine) == []


# --- Idempotency-Keys


async def test_nobody_can_compute_the_id_of_an_idempotency_key(http: Http, settings: Settings, engine: Engine) -> None:
    bucket = bucket_of_topic("mail", settings.buckets)
    guess = in_bucket(uuid5(NAMESPACE, "\x00".join((LOCAL.name, "job", "order-42"))), bucket)

    job = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=201, headers=KEY)

    assert UUID(job["id"]) != guess
    assert UUID(job["id"]).version == 8
    assert UUID(job["id"]) == in_bucket(
        await engine.jobs.id_of_text("\x00".join((LOCAL.name, "job", "order-42"))), bucket
    )


async def test_a_job_of_an_older_schema_still_answers_to_its_key(
    http: Http, settings: Settings, engine: Engine
) -> None:
    bucket = bucket_of_topic("mail", settings.buckets)
    older = in_bucket(uuid5(NAMESPACE, "\x00".join((LOCAL.name, "job", "order-42"))), bucket)
    await engine.jobs.submit([with_id(older, payload="{}")])

    again = await http.done("POST", "/v1/jobs", {"task": "mail"}, status=200, headers=KEY)
    reused = await http.refused("POST", "/v1/jobs", {"task": "mail", "priority": 7}, headers=KEY)
    elsewhere = await http.refused("POST", "/v1/jobs", {"task": "mail", "topic": "other"}, headers=KEY)

    assert UUID(again["id"]) == older
    assert (reused[:2], elsewhere[:2]) == ((409, "idempotency_key_reused"),) * 2


async def test_a_trigger_of_an_older_schema_still_answers_to_its_key(
    http: Http, settings: Settings, engine: Engine
) -> None:
    schedule = await create(engine, name="daily", cron="0 9 * * *")
    text = "\x00".join((LOCAL.name, f"trigger {schedule.id}", "order-42"))
    older = await engine.schedules.trigger(schedule.id, job_id=uuid5(NAMESPACE, text))

    again = await http.done("POST", "/v1/schedules/daily/trigger", headers=KEY)
    new = await http.done("POST", "/v1/schedules/daily/trigger", headers={"idempotency-key": "other"})
    new_again = await http.done("POST", "/v1/schedules/daily/trigger", headers={"idempotency-key": "other"})

    assert UUID(again["job_id"]) == older.job_id
    assert new["job_id"] == new_again["job_id"] != again["job_id"]
    assert UUID(new["job_id"]).version == 8


async def test_each_installation_has_a_secret_of_its_own(engine: Engine, conn: Connection) -> None:
    before = await engine.jobs.id_of_text("text")
    [row] = await conn.fetch("select secret from pulse.secrets where name = 'ids'")

    assert len(row["secret"]) == 32
    assert before == keyed_id(row["secret"], "text") != keyed_id(b"other", "text")
    await submit_one(engine)
