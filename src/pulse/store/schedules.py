"""Which statements are there for schedules? Rows become values here, and values rows."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from pulse.model.decisions.firing import DueSchedule
from pulse.model.errors import ScheduleExists
from pulse.model.jobs import JobStatus, NewJob, RetryPolicy
from pulse.model.schedules import (
    CatchUp,
    Fire,
    FireOutcome,
    Overlap,
    Schedule,
    ScheduleFilter,
    ScheduleStatus,
    Timed,
)
from pulse.model.text import NAME_LIMIT
from pulse.store.jobs import ReadyTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncpg import Record

    from pulse.model.list_filters import ScheduleSearch
    from pulse.store.connections.pool import Connection

LAST_NAME = "\U0010ffff" * NAME_LIMIT  # after it, none that begins the same can come
TIMED = ("kind", "cron", "every", "anchor", "run_at", "tz", "starts_at", "ends_at")
OF_JOB = ("task", "topic", "payload", "priority", "max_attempts", "timeout", "result_ttl")
REFUSALS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.PLPGSQLError,
    asyncpg.UnknownPostgresError,  # a code that Postgres does not know: only a trigger of someone's can have it
)
_TEMPLATES = msgspec.json.Decoder(RetryPolicy)


RegularFire = tuple[UUID, datetime, datetime, UUID]
"""A schedule that fires its cursor's occurrence at once and goes on: id, cursor, next one, and the id of the job."""


class Plan(NamedTuple):
    """How the row of any other schedule moves."""

    id: UUID
    cursor: datetime | None
    next: datetime | None
    status: str
    error: str | None
    buffered: datetime | None
    fired: int  # jobs
    last: datetime | None  # none: as it was


class JobToFire(NamedTuple):
    """One occurrence that makes a job."""

    schedule_id: UUID
    occurrence: datetime
    job_id: UUID
    run_at: datetime | None  # none: at once


class FireNoteRow(NamedTuple):
    """One line about occurrences that made none."""

    schedule_id: UUID
    occurrence: datetime
    outcome: str
    reason: str | None
    occurrences: int
    newest: datetime


class FireResult(NamedTuple):
    moved: int
    ready: list[ReadyTopic]


class SchedulePeek(NamedTuple):
    until_due: timedelta | None
    is_buffering: bool


class RefusedByDatabase(Exception):
    """A row would break a rule of the database. Trouble of any other kind is nobody's row's."""


class Deploy(NamedTuple):
    """What is known of an app's newest sync."""

    deploy: int | None
    synced_at: datetime


async def due_schedules(conn: Connection, *, limit: int) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("due_schedules", limit=limit)))


async def due_among(conn: Connection, *, ids: Sequence[UUID]) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("due_among", ids=ids)))


async def unbuffered_schedules(conn: Connection, *, limit: int) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("unbuffered_schedules", limit=limit)))


async def busy_schedules(conn: Connection, *, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await conn.rows("busy_schedules", ids=ids)}


async def fire_regular(conn: Connection, regular: Sequence[RegularFire]) -> FireResult:
    """Refused if one of them has fired already."""
    ids, cursors, nexts, job_ids = zip(*regular, strict=True)
    with _refusing():
        [row] = await conn.rows("fire_regular", ids=ids, cursors=cursors, nexts=nexts, job_ids=job_ids)
    return _fired(row)


async def fire_schedules(
    conn: Connection, *, plans: Sequence[Plan], jobs: Sequence[JobToFire], notes: Sequence[FireNoteRow], cause: str
) -> FireResult:
    """What has fired already makes no job again."""
    plan, fire, note = _columns(plans, Plan), _columns(jobs, JobToFire), _columns(notes, FireNoteRow)
    parameters: dict[str, Any] = {
        "cause": cause,
        "ids": plan[0],
        "cursors": plan[1],
        "nexts": plan[2],
        "statuses": plan[3],
        "errors": plan[4],
        "buffered": plan[5],
        "counts": plan[6],
        "lasts": plan[7],
        "fired_by": fire[0],
        "occurrences": fire[1],
        "job_ids": fire[2],
        "run_ats": fire[3],
        "noted_by": note[0],
        "noted": note[1],
        "outcomes": note[2],
        "reasons": note[3],
        "missed": note[4],
        "newest": note[5],
    }
    with _refusing():
        [row] = await conn.rows("fire_schedules", **parameters)
    return _fired(row)


async def taken_occurrences(conn: Connection, jobs: Sequence[JobToFire]) -> set[UUID]:
    """Return the ids of these that some other job has."""
    rows = await conn.rows(
        "taken_occurrences",
        job_ids=[each.job_id for each in jobs],
        schedule_ids=[each.schedule_id for each in jobs],
        occurrences=[each.occurrence for each in jobs],
    )
    return {row["id"] for row in rows}


async def count_schedules(conn: Connection, *, limit: int) -> dict[str, int]:
    return {row["state"]: row["schedules"] for row in await conn.rows("count_schedules", limit=limit)}


async def peek_schedules(conn: Connection) -> SchedulePeek:
    return SchedulePeek(*(await conn.rows("peek_schedules"))[0])


async def insert_schedules(
    conn: Connection, schedules: Sequence[Schedule], *, buckets: Sequence[int]
) -> list[Schedule]:
    """Those that are new."""
    return [_schedule(row) for row in await conn.rows("insert_schedules", rows=_rows(schedules, buckets))]


async def update_schedules(conn: Connection, schedules: Sequence[Schedule], *, buckets: Sequence[int]) -> None:
    try:
        await conn.rows("update_schedules", rows=_rows(schedules, buckets))
    except asyncpg.UniqueViolationError:
        raise ScheduleExists(schedules[0].name, "owner, since a moment ago") from None


async def pause_schedule(conn: Connection, *, id: UUID, reason: str) -> None:  # noqa: A002
    await conn.rows("pause_schedule", id=id, reason=reason)


async def resume_schedule(conn: Connection, *, id: UUID, next: datetime | None, status: str) -> None:  # noqa: A002
    await conn.rows("resume_schedule", id=id, next=next, status=status)


async def delete_schedules(conn: Connection, *, ids: Sequence[UUID]) -> None:
    await conn.rows("delete_schedules", ids=ids)


async def lock_schedules(
    conn: Connection, names: Sequence[str] = (), ids: Sequence[UUID] = (), *, app: str | None = None
) -> list[Schedule]:
    return [_schedule(row) for row in await conn.rows("lock_schedules", names=names, ids=ids, app=app)]


async def find_schedules(conn: Connection, names: Sequence[str] = (), ids: Sequence[UUID] = ()) -> list[Schedule]:
    return [_schedule(row) for row in await conn.rows("find_schedules", names=names, ids=ids)]


async def list_schedules(conn: Connection, wanted: ScheduleFilter, *, after: str, limit: int) -> list[Schedule]:
    rows = await conn.rows(
        "list_schedules",
        after=after,
        status=wanted.status,
        paused=wanted.paused,
        task=wanted.task,
        topic=wanted.topic,
        tag=wanted.tag,
        limit=limit,
    )
    return [_schedule(row) for row in rows]


class Seen(NamedTuple):
    """One schedule of a search; the last one is where the scan ended, and how many it has seen."""

    id: UUID
    name: str
    matches: bool
    seen: int


async def search_schedules(
    conn: Connection,
    wanted: ScheduleSearch,
    *,
    after: str,
    status: ScheduleStatus | None,
    paused: bool | None,
    scan: int,
    limit: int,
) -> list[Seen]:
    rows = await conn.rows(
        "search_schedules",
        after=after,
        first=wanted.start,
        last=wanted.start + LAST_NAME,
        status=status,
        paused=paused,
        task=wanted.task,
        topic=wanted.topic,
        part=wanted.part,
        scan=scan,
        limit=limit,
    )
    return list(starmap(Seen, rows))


async def search_broken(conn: Connection, wanted: ScheduleSearch, *, after: str, scan: int, limit: int) -> list[Seen]:
    rows = await conn.rows(
        "search_broken",
        after=after,
        first=wanted.start,
        last=wanted.start + LAST_NAME,
        task=wanted.task,
        topic=wanted.topic,
        part=wanted.part,
        scan=scan,
        limit=limit,
    )
    return list(starmap(Seen, rows))


async def next_schedules(conn: Connection, *, until: datetime, limit: int) -> list[Schedule]:
    return [_schedule(row) for row in await conn.rows("next_schedules", until=until, limit=limit)]


async def last_fires(conn: Connection, *, ids: Sequence[UUID], occurrences: Sequence[datetime]) -> dict[UUID, datetime]:
    """When they were seen to, by schedule."""
    rows = await conn.rows("last_fires", ids=ids, occurrences=occurrences)
    return {row["schedule_id"]: row["logged_at"] for row in rows}


async def list_fires(conn: Connection, *, schedule_id: UUID, before: tuple[datetime, str], limit: int) -> list[Fire]:
    rows = await conn.rows(
        "list_fires", schedule_id=schedule_id, before_occurrence=before[0], before_outcome=before[1], limit=limit
    )
    return [_fire(row) for row in rows]


async def fired_occurrences(conn: Connection, *, schedule_id: UUID, occurrences: Sequence[datetime]) -> set[datetime]:
    rows = await conn.rows("fired_occurrences", schedule_id=schedule_id, occurrences=occurrences)
    return {row["occurrence"] for row in rows}


async def prune_fires(
    conn: Connection, *, after: UUID, schedules: int, keep: timedelta, limit: int
) -> tuple[UUID | None, int]:
    """Where the next call goes on (none: at the beginning), and how many lines were removed."""
    [row] = await conn.rows("prune_fires", after=after, schedules=schedules, keep=keep, limit=limit)
    return row["last"], row["lines"]


async def note_deploy(conn: Connection, *, app: str) -> Deploy:
    return Deploy(*(await conn.rows("note_deploy", app=app))[0])


async def find_deploy(conn: Connection, *, app: str) -> Deploy | None:
    rows = await conn.rows("find_deploy", app=app)
    return Deploy(*rows[0]) if rows else None


async def confirm_deploy(conn: Connection, *, app: str, deploy: int | None) -> None:
    await conn.rows("confirm_deploy", app=app, deploy=deploy)


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except REFUSALS as error:
        # Not its detail: that is the whole row, with the payload, and this is kept and logged.
        raise RefusedByDatabase(f"{type(error).__name__}: {error.message}") from error


def _fired(row: Record) -> FireResult:
    ready = [ReadyTopic(item["topic"], item["priority"]) for item in msgspec.json.decode(row["ready"])]
    return FireResult(row["moved"], ready)


def _columns(rows: Sequence[tuple[Any, ...]], kind: Any) -> list[Sequence[Any]]:  # noqa: ANN401
    """What the rows have in each place."""
    return list(zip(*rows, strict=True)) if rows else [()] * len(kind._fields)


def _rows(schedules: Sequence[Schedule], buckets: Sequence[int]) -> str:
    rows = [_row(schedule, bucket) for schedule, bucket in zip(schedules, buckets, strict=True)]
    return msgspec.json.encode(rows).decode()


def _row(schedule: Schedule, bucket: int) -> dict[str, Any]:
    """By column name, as JSON that Postgres reads."""
    row: dict[str, Any] = {
        name: getattr(schedule, name) for name in schedule.__struct_fields__ if name not in ("timed", "job")
    }
    row |= {name: getattr(schedule.timed, name) for name in TIMED}
    job = schedule.job
    row |= {name: getattr(job, name) for name in OF_JOB}
    row |= {
        "topic": job.routed_topic,
        "bucket": bucket,
        "payload": msgspec.Raw(job.payload.encode()),
        "retry": job.retry,
        "tags": list(job.tags) or None,
    }
    return {name: _plain(value) for name, value in row.items()}


def _plain(value: object) -> object:
    return f"{value // timedelta(microseconds=1)} microseconds" if isinstance(value, timedelta) else value


def _schedule(row: Record) -> Schedule:
    return Schedule(
        id=row["id"],
        name=row["name"],
        status=ScheduleStatus(row["status"]),
        timed=Timed(**{name: row[name] for name in TIMED}),
        job=_template(row),
        next_run_at=row["next_run_at"],
        buffered_for=row["buffered_for"],
        last_run_at=row["last_run_at"],
        fired=row["fired"],
        paused_at=row["paused_at"],
        pause_reason=row["pause_reason"],
        error=row["error"],
        app=row["app"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        max_occurrences=row["max_occurrences"],
        jitter=row["jitter"],
        catch_up=CatchUp(row["catch_up"]),
        replay_limit=row["replay_limit"],
        overlap=Overlap(row["overlap"]),
    )


def _template(row: Record) -> NewJob:
    values = {name: row[name] for name in OF_JOB}
    if values["topic"] == values["task"]:
        values["topic"] = ""
    if row["retry"] is not None:
        values["retry"] = _TEMPLATES.decode(row["retry"])
    if row["tags"] is not None:
        values["tags"] = tuple(msgspec.json.decode(row["tags"]))
    return NewJob(**values)


def _fire(row: Record) -> Fire:
    values = dict(row)
    values["outcome"] = FireOutcome(values["outcome"])
    values["job_status"] = JobStatus(values["job_status"]) if values["job_status"] else None
    return Fire(**values)
