"""Which statements submit jobs?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pulse.model.jobs import Claim, NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from uuid import UUID

    from pulse.store.connections.pool import Connection
    from pulse.store.jobs.rows import Mark


T = TypeVar("T")


class PlacedJob(NamedTuple):
    """A new job with its id and the bucket that its id carries."""

    bucket: int
    id: UUID
    job: NewJob


async def submit_jobs(
    conn: Connection, placed: Sequence[PlacedJob], *, channel: str, message: str | None
) -> set[UUID] | None:
    """Return the ids that are new, or None if all are. It takes one statement, however many jobs there are."""
    if len(placed) == 1 and placed[0].job.unique_key is None and placed[0].job.id is None:
        return None if await submit_job(conn, placed[0], channel=channel, message=message) else set()
    jobs = [item.job for item in placed]
    [moved] = await conn.rows(
        "submit_jobs",
        buckets=_once([item.bucket for item in placed]),
        ids=[item.id for item in placed],
        topics=_once([job.topic or job.task for job in jobs]),
        tasks=_once([job.task for job in jobs]),
        payloads=[job.payload for job in jobs],
        priorities=_once([job.priority for job in jobs]),
        delays=_if_any([job.delay for job in jobs]),
        run_ats=_if_any([job.run_at for job in jobs]),
        max_attempts=_once([job.max_attempts for job in jobs]),
        retries=[_json(retry) for retry in _if_any([job.retry for job in jobs])],
        timeouts=_if_any([job.timeout for job in jobs]),
        deadlines=_if_any([job.deadline for job in jobs]),
        unique_keys=_if_any([job.unique_key for job in jobs]),
        unique_windows=_if_any([job.unique_window for job in jobs]),
        result_ttls=_if_any([job.result_ttl for job in jobs]),
        tags=[_json(tags) for tags in _if_any([job.tags or None for job in jobs])],
        traces=[_json(trace) for trace in _if_any([job.trace for job in jobs])],
        channel=channel,
        message=message,
    )
    return None if moved["jobs"] == len(placed) else set(moved["ids"] or ())


async def submit_job(conn: Connection, placed: PlacedJob, *, channel: str, message: str | None) -> bool:
    """Return whether the job is new. Nobody else has its fresh id, but this may be the second try to insert it."""
    bucket, job_id, job = placed
    rows = await conn.rows(
        "submit_job",
        bucket=bucket,
        id=job_id,
        topic=job.topic or job.task,
        task=job.task,
        payload=job.payload,
        priority=job.priority,
        delay=job.delay,
        run_at=job.run_at,
        max_attempts=job.max_attempts,
        retry=_json(job.retry),
        timeout=job.timeout,
        deadline=job.deadline,
        result_ttl=job.result_ttl,
        tags=_json(job.tags or None),
        trace=_json(job.trace),
        channel=channel,
        message=message,
    )
    return bool(rows)


async def submit_claimed(
    conn: Connection, placed: PlacedJob, *, worker: str, lease: timedelta, mark: Mark
) -> tuple[bool, Claim | None]:
    """Return whether the job is new, and the worker's claim on it, or None if the job waits for its turn."""
    bucket, job_id, job = placed
    rows = await conn.rows(
        "submit_claimed",
        bucket=bucket,
        id=job_id,
        topic=job.topic or job.task,
        task=job.task,
        payload=job.payload,
        priority=job.priority,
        max_attempts=job.max_attempts,
        retry=_json(job.retry),
        timeout=job.timeout,
        deadline=job.deadline,
        result_ttl=job.result_ttl,
        tags=_json(job.tags or None),
        trace=_json(job.trace),
        worker=worker,
        lease=lease,
        mark_urgency=mark.urgency,
        mark_ready_at=mark.ready_at,
        mark_id=mark.id,
    )
    claims = [Claim(*row) for row in rows if row["lease_until"] is not None]
    return bool(rows), claims[0] if claims else None


async def find_own_claim(conn: Connection, placed: PlacedJob, *, worker: str) -> Claim | None:
    rows = await conn.rows("find_own_claim", bucket=placed.bucket, id=placed.id, worker=worker)
    return Claim(*rows[0]) if rows else None


async def free_keys(conn: Connection, placed: Sequence[PlacedJob]) -> None:
    await conn.rows(
        "free_keys",
        buckets=[item.bucket for item in placed],
        topics=[item.job.routed_topic for item in placed],
        keys=[item.job.unique_key for item in placed],
    )


async def find_submitted(conn: Connection, placed: Sequence[PlacedJob]) -> dict[UUID, UUID]:
    """Return the job that stands for each wanted id. If an id is missing, its job has just gone."""
    rows = await conn.rows(
        "find_submitted",
        buckets=[item.bucket for item in placed],
        ids=[item.id for item in placed],
        topics=[item.job.routed_topic for item in placed],
        keys=[item.job.unique_key for item in placed],
    )
    return {row["wanted"]: row["id"] for row in rows if row["id"] is not None}


async def compare_payloads(conn: Connection, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Return for each pair whether both texts mean the same value.

    Postgres compares the pairs that are spelled differently: to build two values of a mebibyte of keys here would hold
    up the event loop for 0.1 s.
    """
    asked = [pair for pair in pairs if pair[0] != pair[1]]
    if not asked:
        return [True] * len(pairs)
    ones, others = zip(*asked, strict=True)
    answers = iter(await conn.rows("compare_payloads", ones=ones, others=others))
    return [one == other or next(answers)["is_same"] for one, other in pairs]


def _once(values: list[T]) -> list[T]:
    """Return a column, or only its first value if all are the same."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _if_any(values: list[T | None]) -> list[T | None]:
    """Return a column, or nothing if no row has a value in it."""
    return [] if values.count(None) == len(values) else values


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
