"""Did Pulse send this wake, and what does it say?

For those who receive wakes. Needs the secret, the headers and the very bytes of the body, and nothing but the standard
library. The format is that of Standard Webhooks, so their libraries for other languages verify the same wakes.
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
MAX_SIGNATURES = 16  # of one wake; there are two while a secret is being replaced
TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """What a wake says. `id` is the same each time the same occurrence is sent: deduplicate by it."""

    id: str
    timestamp: datetime  # when it was sent
    alarm_id: str
    occurrence: datetime  # for which it was set, however late it comes
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
    """Return the wake, if one of the secrets has signed it within the tolerance and, where an owner is given, it is of
    that owner's alarm. Raises InvalidSignature otherwise."""
    wake = _read(body, *_verified(body, headers, secrets, tolerance, now))
    if owner is not None and wake.owner != owner:
        raise InvalidSignature(f"the wake is of an alarm of owner {wake.owner!r}, not of {owner!r}")
    return wake


def _read(body: bytes | str, wake_id: str, timestamp: datetime) -> Wake:
    try:
        said = json.loads(body)
        return Wake(
            id=wake_id,
            timestamp=timestamp,
            alarm_id=str(said["alarm_id"]),
            occurrence=datetime.fromisoformat(said["occurrence"]),
            label=said.get("label"),
            owner=said.get("owner"),
            payload=said.get("payload"),
            attempt=int(said["attempt"]),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSignature(f"the body is signed but is not a wake of Pulse: {error!r}") from None


def verify_signature(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    *,
    tolerance: timedelta | float = TOLERANCE,
    now: datetime | None = None,
) -> str:
    """The webhook-id, if one of the secrets has signed these bytes, whatever they say."""
    return _verified(body, headers, secrets, tolerance, now)[0]


def signature(key: bytes, *, id: str, timestamp: int, body: bytes) -> str:  # noqa: A002
    signed = b"%s.%d.%s" % (id.encode(), timestamp, body)
    return VERSION + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def key_of(secret: str) -> bytes:
    """The bytes of a secret. Raises ValueError if it is not base64."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError(f"a secret is {PREFIX} and base64") from None


def _verified(
    body: bytes | str,
    headers: Mapping[str, str],
    secrets: str | Sequence[str],
    tolerance: timedelta | float,
    now: datetime | None,
) -> tuple[str, datetime]:
    given = {name.lower(): value for name, value in headers.items()}
    wake_id, timestamp = _header(given, "webhook-id"), _timestamp(_header(given, "webhook-timestamp"))
    found = _header(given, "webhook-signature").split(" ")[:MAX_SIGNATURES]
    sent_at = datetime.fromtimestamp(timestamp, UTC)
    _check_age(sent_at, tolerance, now)
    content = body.encode() if isinstance(body, str) else body
    keys = [key_of(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    wanted = [signature(key, id=wake_id, timestamp=timestamp, body=content) for key in keys if key]
    if not _has_match(wanted, found):
        raise InvalidSignature(
            "none of the signatures is made with this secret: is it the right one, and the raw body?"
        )
    return wake_id, sent_at


def _header(given: Mapping[str, str], name: str) -> str:
    if not given.get(name):
        raise InvalidSignature(f"header {name} is missing")
    return given[name]


def _timestamp(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 11):
        raise InvalidSignature("header webhook-timestamp is not a number of seconds")
    return int(text)


def _check_age(sent_at: datetime, tolerance: timedelta | float, now: datetime | None) -> None:
    within = tolerance if isinstance(tolerance, timedelta) else timedelta(seconds=tolerance)
    age = (now or datetime.now(UTC)) - sent_at
    if abs(age) > within:
        side = "old" if age > timedelta() else "new"
        raise InvalidSignature(f"the timestamp is too {side}: more than {within.total_seconds():g} s away from now")


def _has_match(wanted: Iterable[str], found: Sequence[str]) -> bool:
    """Compares all with all, each in constant time, so that the time taken says nothing about a secret."""
    matches = [hmac.compare_digest(right.encode(), given.encode()) for right in wanted for given in found]
    return any(matches)
