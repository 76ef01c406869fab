"""What is to be delivered, and what came of it? Apart from how, which takes a tenth of a second to import."""

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
    status: int | None  # none: there was no answer
    error: str | None  # none: it was a 2xx
    answer: str  # the first KiB
    duration: timedelta
    retry_after: timedelta | None = None
    is_gone: bool = False  # the receiver wants no more of it

    @property
    def is_success(self) -> bool:
        return self.error is None
