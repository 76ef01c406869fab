"""Did Pulse send this wake, and what does it say?

This module is for receivers of wakes. It needs the secret, the headers and the unchanged bytes of the body, and nothing
but the standard library. The format is that of Standard Webhooks, so their libraries for other languages verify the
same wakes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pulse.model.errors import InvalidSignature

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PREFIX = "whsec_"
VERSION = "v1,"
MAX_SIGNATURES = 16  # checked for one wake; there are two while a secret is being replaced
TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """The content of a wake. `id` is the same each time the same occurrence is sent: deduplicate by it."""

    id: str
    timestamp: datetime  # when it was sent
    alarm_id: str
    occurrence: datetime  # the instant that the alarm was set for, however late the wake comes
    label: str | None
    owner: str | None
    payload: Any
    attempt: int


def verify(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    owner: str | None = None,
    tolerance: timedelta | float = TOLERANCE,
    now: datetime | None = None,
) -> Wake:
    """Return the wake if one of the secrets has signed it within the tolerance and, where an owner is given, its alarm
    belongs to that owner. Raise InvalidSignature otherwise."""
    wake = _read(body, *_check_signature(body, headers, secrets, tolerance, now))
    if owner is not None and wake.owner != owner:
        raise InvalidSignature(f"the alarm of this wake belongs to owner {wake.owner!r}, not to {owner!r}")
    return wake


def _read(body: bytes | str, wake_id: str, timestamp: datetime) -> Wake:
    try:
        content = json.loads(body)
        return Wake(
            id=wake_id,
            timestamp=timestamp,
            alarm_id=str(content["alarm_id"]),
            occurrence=datetime.fromisoformat(content["occurrence"]),
            label=content.get("label"),
            owner=content.get("owner"),
            payload=content.get("payload"),
            attempt=int(content["attempt"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSignature(f"the body is signed, but it is not a wake of Pulse: {error!r}") from None


def verify_signature(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance: timedelta | float = TOLERANCE,
    now: datetime | None = None,
) -> str:
    """Return the webhook-id if one of the secrets has signed these bytes, whatever they mean."""
    return _check_signature(body, headers, secrets, tolerance, now)[0]


def signature(key: bytes, *, id: str, timestamp: int, body: bytes) -> str:  # noqa: A002
    signed = b"%s.%d.%s" % (id.encode(), timestamp, body)
    return VERSION + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret. Raise ValueError if it is not base64."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"secret must be {PREFIX} and base64") from None


def _check_signature(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    tolerance: timedelta | float,
    now: datetime | None,
) -> tuple[str, datetime]:
    lower = {name.lower(): value for name, value in headers.items()}
    wake_id, timestamp = _header(lower, "webhook-id"), _timestamp(_header(lower, "webhook-timestamp"))
    given = _header(lower, "webhook-signature").split(" ")[:MAX_SIGNATURES]
    sent_at = datetime.fromtimestamp(timestamp, UTC)
    _check_age(sent_at, tolerance, now)
    content = body.encode() if isinstance(body, str) else body
    keys = [key_of(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    valid = [signature(key, id=wake_id, timestamp=timestamp, body=content) for key in keys if key]
    if not _has_match(valid, given):
        raise InvalidSignature(
            "none of the signatures was made with this secret: is it the right secret, and is this the raw body?"
        )
    return wake_id, sent_at


def _header(headers: Mapping[str, str], name: str) -> str:
    if not headers.get(name):
        raise InvalidSignature(f"header {name} is missing")
    return headers[name]


def _timestamp(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 11):
        raise InvalidSignature("header webhook-timestamp must be a number of seconds")
    return int(text)


def _check_age(sent_at: datetime, tolerance: timedelta | float, now: datetime | None) -> None:
    within = tolerance if isinstance(tolerance, timedelta) else timedelta(seconds=tolerance)
    age = (now or datetime.now(UTC)) - sent_at
    if abs(age) > within:
        side = "old" if age > timedelta() else "new"
        raise InvalidSignature(f"the timestamp is too {side}: it is more than {within.total_seconds():g} s from now")


def _has_match(valid: Iterable[str], given: Sequence[str]) -> bool:
    """Compare all with all, each in constant time, so that the time this takes reveals nothing about a secret."""
    matches = [hmac.compare_digest(one.encode(), other.encode()) for one in valid for other in given]
    return any(matches)
