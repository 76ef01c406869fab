"""How does a repeated request find what the first one made?

An Idempotency-Key becomes the id of the job, so that the row itself remembers it: for as long as the job is kept, and
in the same transaction. Keys of different tokens never meet, and which id a key will have nobody else can tell. Until
schema 13 the id could be computed by anyone; jobs from that time are still found.
"""

from __future__ import annotations

from copy import copy
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid5

import msgspec
from fastapi import Header

from pulse.doors.access import caller
from pulse.doors.http.errors import Refused
from pulse.model.ids import bucket_of_id, bucket_of_topic, in_bucket
from pulse.model.jobs import WAITING, RetryPolicy

if TYPE_CHECKING:
    from pulse.engine.jobs.use_cases import Jobs
    from pulse.model.jobs import Job, NewJob
    from pulse.model.schedules import Schedule

NAMESPACE = UUID("6d1e1a0e-7c1f-5d0b-9a52-3f0c6f1b8a11")
SAME = ("task", "priority", "max_attempts", "timeout", "deadline", "result_ttl")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        description="Repeat a request with the same key, and it is done once.",
        examples=["order-42-receipt"],
    ),
]


async def with_id_of_key(jobs: Jobs, key: str, new: NewJob) -> NewJob:
    """Give the job the id that its key has. Under another topic it may be in another bucket, so that is looked for."""
    own, older = await _ids_of_key(jobs, key, "job")
    home = bucket_of_topic(new.routed_topic, jobs.buckets)
    places = [in_bucket(each, bucket) for each in (own, older) for bucket in range(jobs.buckets)]
    found = await jobs.topics_of(places)
    job_id = next((each for each in found if bucket_of_id(each) == home), None)
    if found and job_id is None:
        raise _reused()
    keyed = copy(new)  # it has been checked; as a caller's own, this id would be refused
    msgspec.structs.force_setattr(keyed, "id", job_id or in_bucket(own, home))
    return keyed


async def id_of_trigger(jobs: Jobs, key: str, schedule: Schedule) -> UUID:
    """Return the id that the job has which this key triggered, or will trigger."""
    own, older = await _ids_of_key(jobs, key, f"trigger {schedule.id}")
    known = await jobs.topics_of([in_bucket(older, bucket) for bucket in range(jobs.buckets)])
    return older if known else own


async def _ids_of_key(jobs: Jobs, key: str, of: str) -> tuple[UUID, UUID]:
    """Return this caller's own id of the key, and the one it had in older schemas; `of` keeps keys of different things
    apart."""
    text = "\x00".join((caller.get().name, of, key))
    return await jobs.id_of_text(text), uuid5(NAMESPACE, text)


async def check_same(jobs: Jobs, job: Job, new: NewJob) -> None:
    """That a job which was there already is the one that was asked for."""
    is_same = (
        all(getattr(job, name) == getattr(new, name) for name in SAME)
        and job.topic == new.routed_topic
        and tuple(_read(job.tags) or ()) == new.tags
        and _read(job.trace) == new.trace
        and _retry(job) == new.retry
        and job.unique_key in (None, new.unique_key)  # it loses the key when another takes it
        and (_has_moved(job) or job.run_at == (new.run_at or job.submitted_at + (new.delay or timedelta())))
        and await jobs.is_same_payload(job.payload, new.payload)
    )
    if not is_same:
        raise _reused()


def _has_moved(job: Job) -> bool:
    """Whether its time may have been changed since it was submitted: by a claim, or by its end."""
    return job.attempt > 0 or job.status not in WAITING or job.last_error is not None


def _retry(job: Job) -> RetryPolicy | None:
    return None if job.retry is None else msgspec.json.decode(job.retry, type=RetryPolicy)


def _read(text: str | None) -> Any:  # noqa: ANN401
    return None if text is None else msgspec.json.decode(text)


def _reused() -> Refused:
    return Refused(409, "idempotency_key_reused", "this Idempotency-Key was used for another job: choose a new one")
