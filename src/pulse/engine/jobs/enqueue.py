"""How are new jobs stored? Each gets an id and a bucket, unless its id or unique key belongs to an earlier job."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.engine.masks import refuse_masked_each
from pulse.model.errors import Conflict, InvalidOption
from pulse.model.ids import Mint, bucket_of_id, bucket_of_topic
from pulse.model.jobs import NewJob, Submitted
from pulse.model.text import PAYLOAD_WARNING
from pulse.store.connections.notifications import most_urgent
from pulse.store.jobs import submits
from pulse.store.jobs.submits import PlacedJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.model.redaction import Redaction
    from pulse.store.connections.pool import Connection
    from pulse.store.jobs.rows import ReadyTopic

log = logging.getLogger("pulse.jobs")

SUBMIT_TRIES = 3


async def place(jobs: Sequence[NewJob], mint: Mint, *, buckets: int, redaction: Redaction) -> list[PlacedJob]:
    """Return the jobs with their ids and buckets. Refuse those that may not be stored."""
    await refuse_masked_each(redaction, [job.payload for job in jobs])
    for job in jobs:
        if len(job.payload) > PAYLOAD_WARNING:
            size = len(job.payload) >> 10
            log.warning("the payload of a %s job has %d KiB: store large data elsewhere", job.task, size)
    job_buckets = [bucket_of_topic(job.routed_topic, buckets) for job in jobs]
    placed = [PlacedJob(*each) for each in zip(job_buckets, mint.ids(job_buckets), jobs, strict=True)]
    return [_with_own_id(item) if item.job.id else item for item in placed]


def _with_own_id(item: PlacedJob) -> PlacedJob:
    job_id = item.job.id
    if not isinstance(job_id, UUID) or bucket_of_id(job_id) != item.bucket:
        raise InvalidOption(
            "id", str(job_id), f"be a uuid whose last twelve bits are {item.bucket}, the bucket of its topic"
        )
    return item._replace(id=job_id)


def hints(jobs: Sequence[NewJob]) -> tuple[list[ReadyTopic], timedelta | None]:
    """Return the topics that become ready, and how long until more do, by this process's clock. These are only hints:
    the database's clock decides, and polling finds what they miss."""
    if not any(job.delay or job.run_at for job in jobs):
        return most_urgent({(job.topic or job.task, job.priority) for job in jobs}), None
    waits = [_wait_of(job) for job in jobs]
    ready = (job for job, wait in zip(jobs, waits, strict=True) if wait <= timedelta())
    later = min((wait for wait in waits if wait > timedelta()), default=None)
    return most_urgent((job.routed_topic, job.priority) for job in ready), later


def _wait_of(job: NewJob) -> timedelta:
    if job.run_at is not None:
        return job.run_at - datetime.now(UTC)
    return job.delay or timedelta()


async def submit_placed(
    conn: Connection, placed: Sequence[PlacedJob], channel: str = "", message: str | None = None
) -> list[Submitted]:
    """Insert the jobs, and return the id for each: that of an earlier job if its id or unique key is taken. The holder
    of a key may finish meanwhile, so this is tried several times."""
    created: set[UUID] = set()
    existing: dict[UUID, UUID] = {}
    left: Sequence[PlacedJob] = placed
    if any(item.job.unique_key for item in placed):
        left = sorted(placed, key=lambda item: (item.job.unique_key or "", item.id))  # one order prevents deadlocks
    for _ in range(SUBMIT_TRIES):
        if keyed := [item for item in left if item.job.unique_key]:
            await submits.free_keys(conn, keyed)
        new = await submits.submit_jobs(conn, left, channel=channel, message=message)
        if new is None and left is placed:
            return [Submitted(item.id, created=True) for item in placed]
        created |= {item.id for item in left} if new is None else new
        if not (left := [item for item in left if item.id not in created]):
            break
        existing |= await submits.find_submitted(conn, left)
        if not (left := [item for item in left if item.id not in existing]):
            break
    else:
        raise Conflict(f"the job that holds unique key {left[0].job.unique_key!r} keeps changing: try again")
    answers = []
    for item in placed:
        answers.append(Submitted(existing.get(item.id, item.id), item.id in created))
        created.discard(item.id)  # if the batch has one id twice, only the first job is new
    return answers
