"""Which facts are read to explain why a job does not run? Only those that its state calls for."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from pulse.engine.masks import mask_job, mask_one
from pulse.model.errors import JobNotFound
from pulse.model.explain.facts import MAX_COUNTED, MAX_NAMED, Explanation, Facts
from pulse.model.explain.reasons import explain
from pulse.model.ids import bucket_of_id
from pulse.model.jobs import FINISHED, Job, JobStatus
from pulse.store import explain as explain_store
from pulse.store.installation import read_clock
from pulse.store.jobs.changes import list_pauses
from pulse.store.jobs.lookups import get_jobs
from pulse.store.jobs.rows import Mark
from pulse.store.workers import list_workers

if TYPE_CHECKING:
    from datetime import datetime

    from pulse.model.explain.facts import Holder
    from pulse.model.redaction import Redaction
    from pulse.store.connections.pool import Connection, Database

RECENTLY = timedelta(minutes=5)
MAX_ENDS = 1_000  # ended jobs from which a pace is computed
LOCK_TRIES = 4  # Pulse's own statements unlock a row within 50 ms
LOCK_PAUSE = 0.025  # seconds
VERSIONS = (7, 8, 5)  # of ids: from submits, from schedules, and from the schedules of older releases


async def explain_job(database: Database, job_id: UUID, *, buckets: int) -> Explanation:
    bucket = bucket_of_id(job_id)

    async def work(conn: Connection) -> Explanation:
        found = await get_jobs(conn, bucket=bucket, ids=[job_id])
        if job_id not in found:
            raise JobNotFound(job_id, hint=_hint(job_id, bucket, buckets))
        job = await mask_one(redaction, _masked, found[job_id])
        facts = await _gather(conn, job, bucket, database.settings.watchdog)
        return explain(_without_queries(facts) if redaction else facts)

    redaction = database.settings.redaction
    return await database.run(work)


def _masked(redaction: Redaction, job: Job) -> Job:
    """Mask the job and its progress, which the explanation quotes and which may repeat a marked field."""
    progress = None if job.progress is None else redaction.json(job.progress)
    return msgspec.structs.replace(mask_job(redaction, job), progress=progress)


def _without_queries(facts: Facts) -> Facts:
    """Return the facts without the queries of sessions: that of a submit contains its payload."""
    holders = [msgspec.structs.replace(holder, query=None) for holder in facts.holders]
    return msgspec.structs.replace(facts, holders=holders)


def _hint(job_id: UUID, bucket: int, buckets: int) -> str:
    if job_id.version not in VERSIONS:
        return "the id of a job must be a uuid of version 7, or 8 if a schedule made it"
    if bucket >= buckets:
        return f"its id has bucket {bucket}, but this installation has {buckets}, so it is from another one"
    return ""


async def _gather(conn: Connection, job: Job, bucket: int, watchdog: timedelta) -> Facts:
    now = await read_clock(conn)
    if job.status in FINISHED:
        return Facts(job=job, now=now, watchdog=watchdog)
    holders = await _find_lock_holders(conn, job, bucket) if _is_stuck_if_locked(job, now) else None
    if job.status is JobStatus.RUNNING:
        return Facts(
            job=job,
            now=now,
            watchdog=watchdog,
            workers=await list_workers(conn),
            is_locked=holders is not None,
            holders=holders or [],
        )
    is_in_line = job.status is JobStatus.PENDING
    return Facts(
        job=job,
        now=now,
        watchdog=watchdog,
        pauses=[pause for pause in await list_pauses(conn) if pause.topic in ("*", job.topic)],
        workers=await list_workers(conn),
        ahead=await _count_ahead(conn, job, bucket) if is_in_line else None,
        pace=await explain_store.read_pace(
            conn, bucket=bucket, topic=job.topic, now=now, within=RECENTLY, limit=MAX_ENDS
        )
        if is_in_line
        else None,
        is_locked=holders is not None,
        holders=holders or [],
    )


def _is_stuck_if_locked(job: Job, now: datetime) -> bool:
    """Tell whether a lock on its row keeps it from being moved. A handler may lock the row of its own job."""
    if job.status is JobStatus.RUNNING:
        return job.lease_until is not None and job.lease_until < now
    return job.status is JobStatus.PENDING or job.run_at <= now


async def _find_lock_holders(conn: Connection, job: Job, bucket: int) -> list[Holder] | None:
    """Return the sessions that may have locked its row, or None if it is not locked for longer than by Pulse itself."""
    for number in range(LOCK_TRIES):
        if await explain_store.is_row_free(conn, bucket=bucket, id=job.id):
            return None
        if number < LOCK_TRIES - 1:
            await asyncio.sleep(LOCK_PAUSE)
    return await explain_store.list_holders(conn, limit=MAX_NAMED)


async def _count_ahead(conn: Connection, job: Job, bucket: int) -> int | None:
    """Return how many jobs are before it, or None if more than are counted from either end."""
    assert job.ready_at is not None
    place, limit = Mark(-job.priority, job.ready_at, job.id), MAX_COUNTED + 1
    ahead = await explain_store.count_ahead(conn, bucket=bucket, topic=job.topic, place=place, limit=limit)
    if ahead <= MAX_COUNTED:
        return ahead
    behind = await explain_store.count_behind(conn, bucket=bucket, topic=job.topic, place=place, limit=limit)
    if behind > MAX_COUNTED:
        return None
    pending = await explain_store.count_pending(conn, bucket=bucket, topic=job.topic)
    return max(pending - behind - 1, MAX_COUNTED + 1)
