"""How does a repeated request find the job that the first one made?

The id of the job is computed from its Idempotency-Key. So the row itself remembers the key, in the same transaction and
for as long as the job is kept. The same key of another token gives another id, and nobody can compute an id without the
secret of the database. Before schema 13 anybody could; jobs from that time are still found.
"""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid5

import msgspec
from fastapi import Header

from pulse.doors.access import caller
from pulse.doors.http.errors import HttpRefusal
from pulse.model.ids import bucket_of_id, bucket_of_topic, in_bucket
from pulse.model.jobs import WAITING, RetryPolicy

if TYPE_CHECKING:
    from pulse.engine.jobs.use_cases import Jobs
    from pulse.model.jobs import Job, NewJob
    from pulse.model.schedules import Schedule

NAMESPACE = UUID("6d1e1a0e-7c1f-5d0b-9a52-3f0c6f1b8a11")
COMPARED_FIELDS = ("task", "priority", "max_attempts", "timeout", "deadline", "result_ttl")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="A request that is repeated with the same key is done once.",
        examples=["order-42-receipt"],
    ),
]


async def with_id_of_key(jobs: Jobs, key: str, new: NewJob) -> NewJob:
    """Return the job with the id that its key gives.

    An earlier request may have used the key for another topic, whose job may be in another bucket. So every bucket is
    searched.
    """
    own, older = await _ids_of_key(jobs, key, "job")
    own_bucket = bucket_of_topic(new.routed_topic, jobs.buckets)
    possible = [in_bucket(each, bucket) for each in (own, older) for bucket in range(jobs.buckets)]
    found = await jobs.topics_of(possible)
    job_id = next((each for each in found if bucket_of_id(each) == own_bucket), None)
    if found and job_id is None:
        raise _key_reused()
    keyed = copy(new)  # it has been checked already; NewJob would refuse this id as the id of a caller
    msgspec.structs.force_setattr(keyed, "id", job_id or in_bucket(own, own_bucket))
    return keyed


async def id_of_trigger(jobs: Jobs, key: str, schedule: Schedule) -> UUID:
    """Return the id of the job that a trigger with this key has made or will make."""
    own, older = await _ids_of_key(jobs, key, f"trigger {schedule.id}")
    known = await jobs.topics_of([in_bucket(older, bucket) for bucket in range(jobs.buckets)])
    return older if known else own


async def _ids_of_key(jobs: Jobs, key: str, purpose: str) -> tuple[UUID, UUID]:
    """Return the id that this key of the caller gives, and the one that it gave before schema 13.

    The same key gives different ids for different purposes.
    """
    text = "\x00".join((caller.get().name, purpose, key))
    return await jobs.id_of_text(text), uuid5(NAMESPACE, text)


async def check_same(jobs: Jobs, job: Job, new: NewJob) -> None:
    """Check that the job with this key is the job that is submitted now."""
    is_same = (
        all(getattr(job, name) == getattr(new, name) for name in COMPARED_FIELDS)
        and job.topic == new.routed_topic
        and tuple(_read(job.tags) or ()) == new.tags
        and _read(job.trace) == new.trace
        and _retry(job) == new.retry
        and job.unique_key in (None, new.unique_key)  # a job loses its unique key when another job takes it
        and (_has_moved(job) or job.run_at == (new.run_at or job.submitted_at + (new.delay or timedelta())))
        and await jobs.is_same_payload(job.payload, new.payload)
    )
    if not is_same:
        raise _key_reused()


def _has_moved(job: Job) -> bool:
    """Tell whether the job's time may have changed since it was submitted: by a claim, or by its end."""
    return job.attempt > 0 or job.status not in WAITING or job.last_error is not None


def _retry(job: Job) -> RetryPolicy | None:
    return None if job.retry is None else msgspec.json.decode(job.retry, type=RetryPolicy)


def _read(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)


def _key_reused() -> HttpRefusal:
    return HttpRefusal(409, "idempotency_key_reused", "this Idempotency-Key was used for another job: choose a new one")
