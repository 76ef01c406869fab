"""Which statements find due schedules, and fire them?"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from pulse.model.decisions.firing import DueSchedule
from pulse.store.jobs.rows import ReadyTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncpg import Record

    from pulse.store.connections.pool import Connection


REFUSALS = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.PLPGSQLError,
    asyncpg.UnknownPostgresError,  # a code that Postgres does not know: only somebody's trigger can have raised it
)


RegularFire = tuple[UUID, datetime, datetime, UUID]
"""A schedule that fires its cursor's occurrence at once and goes on: id, cursor, next one, and the id of the job."""


class Plan(NamedTuple):
    """How the row of a schedule moves that does not simply fire and go on."""

    id: UUID
    cursor: datetime | None
    next: datetime | None
    status: str
    error: str | None
    buffered: datetime | None
    fired: int  # how many jobs
    last: datetime | None  # None: as it was


class JobToFire(NamedTuple):
    """An occurrence that makes a job."""

    schedule_id: UUID
    occurrence: datetime
    job_id: UUID
    run_at: datetime | None  # None: at once


class FireNoteRow(NamedTuple):
    """A line in the log about occurrences that made no job."""

    schedule_id: UUID
    occurrence: datetime
    outcome: str
    reason: str | None
    occurrences: int
    newest: datetime


class FireResult(NamedTuple):
    moved: int
    ready: list[ReadyTopic]


class RefusedByDatabase(Exception):
    """A row would break a rule of the database. Errors that no single row can cause are raised as they are."""


async def due_schedules(conn: Connection, *, limit: int) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("due_schedules", limit=limit)))


async def due_among(conn: Connection, *, ids: Sequence[UUID]) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("due_among", ids=ids)))


async def unbuffered_schedules(conn: Connection, *, limit: int) -> list[DueSchedule]:
    return list(starmap(DueSchedule, await conn.rows("unbuffered_schedules", limit=limit)))


async def busy_schedules(conn: Connection, *, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await conn.rows("busy_schedules", ids=ids)}


async def fire_regular(conn: Connection, regular: Sequence[RegularFire]) -> FireResult:
    """Fire these schedules. Raise `RefusedByDatabase` if one of their occurrences is in the log as fired."""
    ids, cursors, nexts, job_ids = zip(*regular, strict=True)
    with _catch_refusals():
        [row] = await conn.rows("fire_regular", ids=ids, cursors=cursors, nexts=nexts, job_ids=job_ids)
    return _read_result(row)


async def fire_schedules(
    conn: Connection, *, plans: Sequence[Plan], jobs: Sequence[JobToFire], notes: Sequence[FireNoteRow], cause: str
) -> FireResult:
    """Move the cursors, make the jobs, and log the notes. An occurrence that has fired makes no job again."""
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
    with _catch_refusals():
        [row] = await conn.rows("fire_schedules", **parameters)
    return _read_result(row)


async def taken_occurrences(conn: Connection, jobs: Sequence[JobToFire]) -> set[UUID]:
    """Return the ids of these occurrences that another job has."""
    rows = await conn.rows(
        "taken_occurrences",
        job_ids=[each.job_id for each in jobs],
        schedule_ids=[each.schedule_id for each in jobs],
        occurrences=[each.occurrence for each in jobs],
    )
    return {row["id"] for row in rows}


@contextmanager
def _catch_refusals() -> Iterator[None]:
    """Raise `RefusedByDatabase` instead of an error that a rule of the database has caused."""
    try:
        yield
    except REFUSALS as error:
        # Without the detail of the error: it quotes the whole row, with its payload, and this is kept and logged.
        raise RefusedByDatabase(f"{type(error).__name__}: {error.message}") from error


def _read_result(row: Record) -> FireResult:
    ready = [ReadyTopic(item["topic"], item["priority"]) for item in msgspec.json.decode(row["ready"])]
    return FireResult(row["moved"], ready)


def _columns(rows: Sequence[tuple[Any, ...]], kind: Any) -> list[Sequence[Any]]:  # noqa: ANN401
    """Return the columns of these rows, each as a sequence."""
    return list(zip(*rows, strict=True)) if rows else [()] * len(kind._fields)
