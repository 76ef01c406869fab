"""Which statements are there for jobs? One function for each, with its name; rows become values here."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from asyncpg import LockNotAvailableError, PostgresError

from pulse.model.jobs import Attempt, Claim, Job, JobHead, JobStatus, Lease, NewJob, Pause, Progress, Report
from pulse.store.connections.pool import may_be_of_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from asyncpg import Record

    from pulse.settings import Settings
    from pulse.store.connections.pool import Connection

T = TypeVar("T")
ClaimKey = tuple[UUID, int]  # id and lease_id: one claim
_CLAIM_KEY = itemgetter("id", "lease_id")


class ClaimRow(NamedTuple):
    """Whose a job's newest claim is, or was."""

    id: UUID
    lease_id: int
    topic: str
    worker: str | None


class PlacedJob(NamedTuple):
    """A new job with its id and the bucket that id carries."""

    bucket: int
    id: UUID
    job: NewJob


class Mark(NamedTuple):
    """A place in a topic's order. Claims start behind it."""

    urgency: int
    ready_at: datetime
    id: UUID


class ReadyTopic(NamedTuple):
    """Jobs became ready: where, and how urgent the most urgent of them is."""

    topic: str
    priority: int


class MovedJob(NamedTuple):
    """A job that a duty moved, where to, and how long it waits there."""

    id: UUID
    status: JobStatus
    wait: timedelta | None


class RowRefused(Exception):
    """The database refuses to move a batch, and one row of it may be to blame."""


class DutyPeek(NamedTuple):
    bucket: int
    until_due: timedelta | None
    until_late: timedelta | None
    until_fire: timedelta | None  # of all buckets
    is_buffering: bool  # an occurrence waits for the job before it
    until_wake: timedelta | None  # until an alarm is due, or the lease of one has run out


async def submit_jobs(
    conn: Connection, placed: Sequence[PlacedJob], *, channel: str, message: str | None
) -> set[UUID] | None:
    """The ids that are new; none: all of them. One statement, whatever the number of jobs."""
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
    """Whether it is new: a freshly minted id cannot be there already, but this may be the second try."""
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
    """Whether it is new, and the worker's claim on it; none: it waits for its turn."""
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
    """For each wanted id, the job that stands for it. One that is missing has just gone."""
    rows = await conn.rows(
        "find_submitted",
        buckets=[item.bucket for item in placed],
        ids=[item.id for item in placed],
        topics=[item.job.routed_topic for item in placed],
        keys=[item.job.unique_key for item in placed],
    )
    return {row["wanted"]: row["id"] for row in rows if row["id"] is not None}


async def claim_jobs(
    conn: Connection, *, bucket: int, topic: str, workers: Sequence[str], limit: int, lease: timedelta, mark: Mark
) -> list[Claim]:
    """Lease up to `limit` jobs in the topic's order, dealt to the workers, round and round."""
    rows = await conn.rows(
        "claim_jobs",
        bucket=bucket,
        topic=topic,
        workers=workers,
        limit=limit,
        lease=lease,
        mark_urgency=mark.urgency,
        mark_ready_at=mark.ready_at,
        mark_id=mark.id,
    )
    return list(starmap(Claim, rows))


async def ready_topics(conn: Connection, *, buckets: Sequence[int], topics: Sequence[str]) -> list[str]:
    return [row["topic"] for row in await conn.rows("ready_topics", buckets=buckets, topics=topics)]


async def heartbeat_jobs(conn: Connection, *, bucket: int, leases: Sequence[Lease], lease: timedelta) -> list[ClaimKey]:
    rows = await conn.rows(
        "heartbeat_jobs",
        bucket=bucket,
        ids=[item.id for item in leases],
        lease_ids=[item.lease_id for item in leases],
        lease=lease,
    )
    return _claim_keys(rows)


async def progress_jobs(conn: Connection, *, bucket: int, progress: Sequence[Progress]) -> list[ClaimKey]:
    rows = await conn.rows(
        "progress_jobs",
        bucket=bucket,
        ids=[item.id for item in progress],
        lease_ids=[item.lease_id for item in progress],
        progress=[item.value for item in progress],
    )
    return _claim_keys(rows)


async def complete_jobs(conn: Connection, *, bucket: int, reports: Sequence[Report]) -> list[ClaimKey]:
    """Complete those whose claim stands. One held by its handler's transaction is passed over, not waited for."""
    parameters: dict[str, Any] = {
        "bucket": bucket,
        "ids": [report.id for report in reports],
        "lease_ids": [report.lease_id for report in reports],
        "results": [report.result for report in reports],
    }
    try:
        moved = (await conn.rows("complete_jobs", **parameters))[0]
    except LockNotAvailableError:
        return _claim_keys(await conn.rows("complete_free_jobs", **parameters))
    if moved["jobs"] == len(reports):
        return list(zip(parameters["ids"], parameters["lease_ids"], strict=True))
    return list(zip(moved["ids"] or (), moved["lease_ids"] or (), strict=True))


async def fail_jobs(
    conn: Connection, *, bucket: int, reports: Sequence[Report]
) -> tuple[list[ClaimKey], list[timedelta]]:
    """Those that were moved, and how long those of them that will be tried again wait."""
    rows = await conn.rows(
        "fail_jobs",
        bucket=bucket,
        ids=[report.id for report in reports],
        lease_ids=[report.lease_id for report in reports],
        outcomes=[report.outcome.value for report in reports],
        errors=[report.clean_error for report in reports],
        tracebacks=[report.clean_traceback for report in reports],
        delays=[report.delay for report in reports],
    )
    return _claim_keys(rows), [row["wait"] for row in rows if row["wait"] is not None]


async def release_jobs(
    conn: Connection, *, bucket: int, leases: Sequence[Lease]
) -> tuple[list[ClaimKey], list[ReadyTopic]]:
    rows = await conn.rows(
        "release_jobs",
        bucket=bucket,
        ids=[item.id for item in leases],
        lease_ids=[item.lease_id for item in leases],
    )
    return _claim_keys(rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def release_unheld(
    conn: Connection, *, bucket: int, workers: Sequence[str], held: Sequence[Lease], after: datetime, before: datetime
) -> tuple[list[ClaimKey], list[ReadyTopic]]:
    """What of these workers' claims is not among these."""
    rows = await conn.rows(
        "release_unheld",
        bucket=bucket,
        workers=workers,
        ids=[item.id for item in held],
        lease_ids=[item.lease_id for item in held],
        after=after,
        before=before,
    )
    return _claim_keys(rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def read_leases(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, tuple[JobStatus, int]]:
    rows = await conn.rows("read_leases", bucket=bucket, ids=ids)
    return {row["id"]: (JobStatus(row["status"]), row["lease_id"]) for row in rows}


async def compare_payloads(conn: Connection, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Return of each pair whether both say the same. Postgres compares what is spelled differently: to build two values
    of a mebibyte of keys here would take 0.1 s of the event loop."""
    asked = [pair for pair in pairs if pair[0] != pair[1]]
    if not asked:
        return [True] * len(pairs)
    ones, others = zip(*asked, strict=True)
    answers = iter(await conn.rows("compare_payloads", ones=ones, others=others))
    return [one == other or next(answers)["is_same"] for one, other in pairs]


async def read_clock(conn: Connection) -> datetime:
    [row] = await conn.rows("read_clock")
    now: datetime = row["now"]
    return now


async def read_claims(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> list[ClaimRow]:
    rows = await conn.rows("read_claims", bucket=bucket, ids=ids)
    return [ClaimRow(row["id"], row["lease_id"], row["topic"], row["locked_by"]) for row in rows]


async def reap_jobs(conn: Connection, *, bucket: int, limit: int, ended_before: datetime) -> list[MovedJob]:
    with _refusing_a_row():
        return _moved(await conn.rows("reap_jobs", bucket=bucket, limit=limit, ended_before=ended_before))


async def promote_jobs(conn: Connection, *, bucket: int, limit: int) -> tuple[int, list[ReadyTopic]]:
    with _refusing_a_row():
        return _promoted(await conn.rows("promote_jobs", bucket=bucket, limit=limit))


async def expire_jobs(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    with _refusing_a_row():
        return [row["id"] for row in await conn.rows("expire_jobs", bucket=bucket, limit=limit)]


async def ids_to_reap(conn: Connection, *, bucket: int, limit: int, ended_before: datetime) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_reap", bucket=bucket, limit=limit, ended_before=ended_before)]


async def ids_to_promote(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_promote", bucket=bucket, limit=limit)]


async def ids_to_expire(conn: Connection, *, bucket: int, limit: int) -> list[UUID]:
    return [row["id"] for row in await conn.rows("ids_to_expire", bucket=bucket, limit=limit)]


# The limit of these three ends the scan once all are found: they are the first of their index.


async def reap_jobs_among(
    conn: Connection, *, bucket: int, ended_before: datetime, ids: Sequence[UUID]
) -> list[MovedJob]:
    with _refusing_a_row():
        rows = await conn.rows("reap_jobs_among", bucket=bucket, limit=len(ids), ended_before=ended_before, ids=ids)
    return _moved(rows)


async def promote_jobs_among(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> tuple[int, list[ReadyTopic]]:
    with _refusing_a_row():
        return _promoted(await conn.rows("promote_jobs_among", bucket=bucket, limit=len(ids), ids=ids))


async def expire_jobs_among(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> list[UUID]:
    with _refusing_a_row():
        return [row["id"] for row in await conn.rows("expire_jobs_among", bucket=bucket, limit=len(ids), ids=ids)]


def _moved(rows: Sequence[Record]) -> list[MovedJob]:
    return [MovedJob(row["id"], JobStatus(row["status"]), row["wait"]) for row in rows]


def _promoted(rows: Sequence[Record]) -> tuple[int, list[ReadyTopic]]:
    return sum(row["jobs"] for row in rows), [ReadyTopic(row["topic"], row["priority"]) for row in rows]


@contextmanager
def _refusing_a_row() -> Iterator[None]:
    try:
        yield
    except PostgresError as error:
        if not may_be_of_one(error):
            raise
        # Not its detail: that is the whole row, with the payload, and this is logged.
        raise RowRefused(f"{type(error).__name__}: {error.message}") from error


async def peek_duties(
    conn: Connection, *, buckets: Sequence[int], schedules: bool = True, alarms: bool = True
) -> list[DutyPeek]:
    rows = await conn.rows("peek_duties", buckets=buckets, schedules=schedules, alarms=alarms)
    return [DutyPeek(*row) for row in rows]


async def peek_jobs(conn: Connection, *, buckets: Sequence[int]) -> list[DutyPeek]:
    return [DutyPeek(*row) for row in await conn.rows("peek_jobs", buckets=buckets)]


async def cancel_jobs(conn: Connection, *, bucket: int, ids: Sequence[UUID], reason: str) -> set[UUID]:
    rows = await conn.rows("cancel_jobs", bucket=bucket, ids=ids, reason=reason)
    return {row["id"] for row in rows}


async def free_replayed_keys(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> None:
    await conn.rows("free_replayed_keys", bucket=bucket, ids=ids)


async def replay_jobs(
    conn: Connection, *, bucket: int, ids: Sequence[UUID], before: datetime
) -> tuple[set[UUID], list[ReadyTopic]]:
    rows = await conn.rows("replay_jobs", bucket=bucket, ids=ids, before=before)
    return {row["id"] for row in rows}, [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def run_jobs_now(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> tuple[set[UUID], list[ReadyTopic]]:
    rows = await conn.rows("run_jobs_now", bucket=bucket, ids=ids)
    return {row["id"] for row in rows}, [ReadyTopic(row["topic"], row["priority"]) for row in rows]


async def prune_jobs(conn: Connection, *, bucket: int, keep: Settings, limit: int) -> int:
    rows = await conn.rows(
        "prune_jobs",
        bucket=bucket,
        keep_completed=keep.keep_completed,
        keep_cancelled=keep.keep_cancelled,
        keep_dead_lettered=keep.keep_dead_lettered,
        limit=limit,
    )
    return int(rows[0][0])


async def prune_results(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("prune_results", bucket=bucket, limit=limit))[0][0])


async def roll_tallies(conn: Connection, *, bucket: int, limit: int) -> int:
    return int((await conn.rows("roll_tallies", bucket=bucket, limit=limit))[0][0])


async def forget_counts(conn: Connection) -> None:
    await conn.rows("forget_counts")


async def tallied_buckets(conn: Connection) -> list[int]:
    return [row["bucket"] for row in await conn.rows("tallied_buckets")]


async def count_jobs(conn: Connection) -> dict[str, dict[JobStatus, int]]:
    counts: dict[str, dict[JobStatus, int]] = {}
    for row in await conn.rows("count_jobs"):
        counts.setdefault(row["topic"], {})[JobStatus(row["status"])] = row["jobs"]
    return counts


async def pause_topic(conn: Connection, *, topic: str, reason: str) -> Pause:
    return Pause(*(await conn.rows("pause_topic", topic=topic, reason=reason))[0])


async def resume_topic(conn: Connection, *, topic: str) -> bool:
    return bool(await conn.rows("resume_topic", topic=topic))


async def list_pauses(conn: Connection) -> list[Pause]:
    return [Pause(*row) for row in await conn.rows("list_pauses")]


async def get_jobs(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, Job]:
    rows = await conn.rows("get_jobs", bucket=bucket, ids=ids)
    return {row["id"]: _job(row) for row in rows}


async def get_job_heads(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, JobHead]:
    rows = await conn.rows("get_job_heads", bucket=bucket, ids=ids)
    return {row["id"]: JobHead(**dict(row) | {"status": JobStatus(row["status"])}) for row in rows}


async def finished_ids(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> set[UUID]:
    return {row["id"] for row in await conn.rows("finished_ids", bucket=bucket, ids=ids)}


async def read_topics(conn: Connection, *, bucket: int, ids: Sequence[UUID]) -> dict[UUID, str]:
    return {row["id"]: row["topic"] for row in await conn.rows("read_topics", bucket=bucket, ids=ids)}


async def list_attempts(conn: Connection, *, bucket: int, id: UUID) -> list[Attempt]:  # noqa: A002
    return [Attempt(*row) for row in await conn.rows("list_attempts", bucket=bucket, id=id)]


async def read_installation(conn: Connection) -> int:
    return int((await conn.rows("read_installation"))[0]["buckets"])


async def list_ids(conn: Connection, statement: str, **parameters: object) -> list[Record]:
    """One of the list_… statements: ids that match, and last the row the scan ended on."""
    return await conn.rows(statement, **parameters)


def _claim_keys(rows: Sequence[Record]) -> list[ClaimKey]:
    return list(map(_CLAIM_KEY, rows))


def _job(row: Record) -> Job:
    values = dict(row)
    values["status"] = JobStatus(values["status"])
    if values["key_held_until"] is not None:  # the driver reads infinity as an instant without a zone
        values["key_held_until"] = values["key_held_until"].replace(tzinfo=UTC)
    return Job(**values)


def _once(values: list[T]) -> list[T]:
    """A column in which every row says the same, said once."""
    return values[:1] if values.count(values[0]) == len(values) else values


def _if_any(values: list[T | None]) -> list[T | None]:
    """A column that no row uses is not sent."""
    return [] if values.count(None) == len(values) else values


def _json(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
