"""How does a row become a schedule, and a schedule a row?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.model.jobs import NewJob, RetryPolicy
from pulse.model.schedules import CatchUp, Overlap, Schedule, ScheduleStatus, Timed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record

TIMED = ("kind", "cron", "every", "anchor", "run_at", "tz", "starts_at", "ends_at")
OF_JOB = ("task", "topic", "payload", "priority", "max_attempts", "timeout", "result_ttl")
_RETRY_POLICIES = msgspec.json.Decoder(RetryPolicy)


def write_schedules(schedules: Sequence[Schedule], buckets: Sequence[int]) -> str:
    rows = [_row(schedule, bucket) for schedule, bucket in zip(schedules, buckets, strict=True)]
    return msgspec.json.encode(rows).decode()


def _row(schedule: Schedule, bucket: int) -> dict[str, Any]:
    """Return the values by column name, as JSON that Postgres reads."""
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


def read_schedule(row: Record) -> Schedule:
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
        values["retry"] = _RETRY_POLICIES.decode(row["retry"])
    if row["tags"] is not None:
        values["tags"] = tuple(msgspec.json.decode(row["tags"]))
    return NewJob(**values)
