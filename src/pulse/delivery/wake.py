"""What is the request for a delivery, and what is its result? webhook.py delivers, and takes 0.1 s to import."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import msgspec


class WakeRequest(msgspec.Struct, frozen=True):
    id: str
    url: str | None  # none: the default target
    body: bytes
    headers: Mapping[str, str] = {}
    owner: str = ""


class WakeResult(msgspec.Struct, frozen=True, kw_only=True):
    status: int | None  # of the answer; none: there was no answer
    error: str | None  # none: the status was 2xx
    answer: str  # the first KiB of the body
    duration: timedelta
    retry_after: timedelta | None = None
    is_gone: bool = False  # the receiver wants no more wakes of this alarm

    @property
    def is_success(self) -> bool:
        return self.error is None
