"""How is an id made, and what does it carry?

A job's id is minted by whoever submits it, so that a submit can be repeated without harm. It is a version 7
uuid (time-ordered) whose last twelve bits are the bucket the job lives in, so that an id alone is enough to
find its row. `pulse.make_id` and `pulse.bucket_of_topic` in SQL follow the same rules; `tests/vectors/ids.json`
holds both to them.
"""

from __future__ import annotations

import hashlib
import os
import struct
import threading
import time
from functools import lru_cache
from uuid import UUID

BUCKET_MASK = 0xFFF
_NOISE_MASK = 0x3FFF_FFFF_FFFF_F000  # the 50 bits between variant and bucket
_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62


@lru_cache(maxsize=4096)
def bucket_of_topic(topic: str, buckets: int) -> int:
    """A topic lives in one bucket, so that its order and its unique keys are a single row's business."""
    return int.from_bytes(hashlib.sha256(topic.encode()).digest()[:2]) % buckets


def bucket_of_id(job_id: UUID) -> int:
    return job_id.int & BUCKET_MASK


def make_id(nanoseconds: int, bucket: int, noise: int) -> UUID:
    """Assemble an id from a Unix time, a bucket and 64 bits of noise (of which 50 are used)."""
    milliseconds, rest = divmod(nanoseconds, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    return UUID(int=milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | noise & _NOISE_MASK | bucket)


class Mint:
    """Mints ids that grow within this process, even where the clock stands still or steps back."""

    _STEP = 1_000_000 // 4096 + 1  # the shortest time two ids can tell apart, in nanoseconds

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def ids(self, buckets: list[int]) -> list[UUID]:
        """One id for each of the given buckets, in order."""
        noise = struct.unpack(f"{len(buckets)}Q", os.urandom(8 * len(buckets)))
        with self._lock:
            first = max(time.time_ns(), self._last + self._STEP)
            self._last = first + self._STEP * len(buckets)
        times = range(first, self._last, self._STEP)
        return list(map(make_id, times, buckets, noise))
