"""How is the id of a job made, and what does it contain?

The id of a job is made by its submitter, so that a submit can be repeated without harm. It is a version 7 uuid
(time-ordered) whose last twelve bits are the bucket of the job, so that the id alone is enough to find its row. A job
that a schedule makes has a version 8 uuid instead: the second of its occurrence and a hash of schedule and occurrence,
with the bucket in the same place. The job of an Idempotency-Key has a version 8 uuid, too, derived from the key with a
secret of the installation. Callers may not give a job such an id: it could be the id of a job that is yet to come.
`pulse.make_id` and `pulse.bucket_of_topic` in SQL follow the same rules; `tests/vectors/ids.json` tests both.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from uuid import UUID

from pulse.model.errors import InvalidOption

BUCKET_MASK = 0xFFF
_NOISE_MASK = 0x3FFF_FFFF_FFFF_F000  # the 50 bits between variant and bucket
_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62
_HASHED_BITS = (1 << 76) - 1 & ~(0x3 << 62 | BUCKET_MASK)  # below the time, but for version, variant and bucket
_TIME_MASK = (1 << 48) - 1
SERVER_VERSIONS = (5, 8)  # of uuids; until schema 13, the job of an Idempotency-Key had one of version 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=4096)
def bucket_of_topic(topic: str, buckets: int) -> int:
    """Return the bucket of a topic. A topic has one bucket, which holds its whole order and all its unique keys."""
    return int.from_bytes(hashlib.sha256(topic.encode()).digest()[:2]) % buckets


def bucket_of_id(job_id: UUID) -> int:
    return job_id.int & BUCKET_MASK


def by_bucket(ids: Sequence[UUID]) -> list[tuple[int, list[UUID]]]:
    """Return the ids grouped by bucket, sorted, so that all callers lock rows in the same order."""
    groups: dict[int, list[UUID]] = defaultdict(list)
    for job_id in ids:
        groups[bucket_of_id(job_id)].append(job_id)
    return sorted(groups.items())


def in_bucket(own: UUID, bucket: int) -> UUID:
    """Return an id with this bucket in it: its maker may not have known the bucket."""
    return UUID(int=own.int & ~BUCKET_MASK | bucket)


def make_id(nanoseconds: int, bucket: int, noise: int) -> UUID:
    """Return the id made of a Unix time, a bucket and 64 bits of noise, of which 50 are used."""
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    return UUID(int=milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | noise & _NOISE_MASK | bucket)


class Mint:
    """Makes ids that grow within this process, even when the clock stands still or steps back."""

    _STEP = 1_000_000 // 4096 + 1  # nanoseconds: the smallest difference of time that shows in an id

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def ids(self, buckets: list[int]) -> list[UUID]:
        """Return one id for each of the given buckets, in order."""
        noise = struct.unpack(f"{len(buckets)}Q", os.urandom(8 * len(buckets)))
        with self._lock:
            first = max(time.time_ns(), self._last + self._STEP)
            self._last = first + self._STEP * len(buckets)
        times = range(first, self._last, self._STEP)
        return list(map(make_id, times, buckets, noise))


def fire_id(schedule_id: UUID, occurrence: datetime, bucket: int) -> UUID:
    """Return the id of the job that an occurrence makes: the same for every process and every try.

    The id begins with the second of the occurrence, so that lists by id show the job among others of that time. The
    rest is a hash of some 72 bits: among a million schedules at one instant, the chance that two ids are equal is one
    in ten thousand million.
    """
    micros = _micros(occurrence)
    digest = hashlib.sha1(schedule_id.bytes + b"%d" % micros, usedforsecurity=False).digest()
    number = int.from_bytes(digest[:16])
    milliseconds = micros // 1_000_000 * 1_000 + (number >> 80) % 1_000
    return UUID(int=(milliseconds & _TIME_MASK) << 80 | number & _HASHED_BITS | 8 << 76 | _VARIANT | bucket)


def keyed_id(secret: bytes, text: str) -> UUID:
    """Return the id that stands for a text, which cannot be guessed without the secret. Its bucket is not set yet."""
    number = int.from_bytes(hmac.digest(secret, text.encode(), "sha256")[:16])
    return UUID(int=number & ~(0xF << 76 | 0x3 << 62) | 8 << 76 | _VARIANT)


def check_given_id(option: str, given: object) -> None:
    """Refuse an id from a caller if it has a version that only the server makes."""
    if isinstance(given, UUID) and given.version in SERVER_VERSIONS:
        raise InvalidOption(
            option,
            str(given),
            "be a uuid of version 7 or 4 (only the server makes those of version 5 and 8)",
        )


def _micros(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND
