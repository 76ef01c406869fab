"""What happens to an alarm after a delivery of its wake has succeeded or failed? The whole decision, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from pulse.model.alarms import AlarmStatus, DeliveryOutcome, timetable, wake_id
from pulse.timing.cron import InvalidCron

FIRST_RETRY = timedelta(seconds=30)
LONGEST_RETRY = timedelta(minutes=15)
ERROR_LIMIT = 2_000


class AlarmClaim(msgspec.Struct, frozen=True):
    """An alarm leased to this process, whose wake is to be delivered. The fields are the columns of its statement."""

    id: UUID
    lease_id: int
    owner: str
    label: str
    payload: str
    url: str | None
    headers: Mapping[str, str]
    destination: str
    revision: int
    occurrence: datetime
    attempt: int
    failure_count: int
    max_failures: int
    cron: str | None
    tz: str
    lateness: timedelta

    @property
    def key(self) -> tuple[UUID, int]:
        """Return the key that distinguishes it from every other claim, also of the same alarm."""
        return self.id, self.lease_id

    @property
    def wake_id(self) -> str:
        return wake_id(self.id, self.revision, self.occurrence)

    def body(self) -> bytes:
        body = {
            "alarm_id": self.id,
            "occurrence": self.occurrence,
            "label": self.label,
            "owner": self.owner,
            "payload": msgspec.Raw(self.payload.encode()),
            "attempt": self.attempt,
        }
        return msgspec.json.encode(body)


class DeliveryResult(NamedTuple):
    """The result of one delivery."""

    error: str | None  # none: it was delivered
    is_gone: bool = False  # the receiver wants no more wakes of this alarm
    retry_after: timedelta | None = None  # as long as the receiver asked to wait


class Verdict(NamedTuple):
    """The values that the row of the alarm is to have."""

    outcome: DeliveryOutcome
    status: AlarmStatus
    occurrence: datetime
    next_fire_at: datetime | None
    failure_count: int
    error: str | None
    note: str | None = None


def backoff(failure_count: int) -> timedelta:
    """Return 30 s, doubled for each failure before this one, at most 15 minutes."""
    doubled: timedelta = FIRST_RETRY * 2 ** min(failure_count, 5)
    return min(doubled, LONGEST_RETRY)


def decide(claim: AlarmClaim, result: DeliveryResult, now: datetime, *, spread: float = 1.0) -> Verdict:
    """Return the new values of the row. `spread` shortens the wait for a retry, so that alarms that failed together are
    not retried together. No wait is longer than 15 minutes."""
    if result.error is None:
        return _go_on(claim, now)
    if result.is_gone:
        return _end(claim, AlarmStatus.FAILED, f"{result.error}: the receiver wants no more wakes")
    if claim.failure_count >= claim.max_failures:
        return _give_up_occurrence(claim, result.error, now)
    wait = min(backoff(claim.failure_count) * spread, LONGEST_RETRY)
    if result.retry_after is not None:
        wait = max(wait, min(result.retry_after, LONGEST_RETRY))
    return _retry(claim, result.error, now + wait)


def give_up(claim: AlarmClaim, error: str) -> Verdict:
    """Fail the alarm for good, be it a once alarm or a timetable."""
    return _end(claim, AlarmStatus.FAILED, error)


def _go_on(claim: AlarmClaim, now: datetime) -> Verdict:
    """Go on with the next occurrence after a delivery, or end the alarm if there is none."""
    try:
        following, note = _find_next(claim, now)
    except InvalidCron as error:  # for example, its time zone is no longer known
        return _end(claim, AlarmStatus.FAILED, str(error), DeliveryOutcome.DELIVERED)
    if following is None:
        return _end(claim, AlarmStatus.FIRED, None, DeliveryOutcome.DELIVERED)._replace(note=note)
    return Verdict(DeliveryOutcome.DELIVERED, AlarmStatus.ACTIVE, following, following, 0, None, note)


def _give_up_occurrence(claim: AlarmClaim, error: str, now: datetime) -> Verdict:
    """Fail a once alarm. A timetable skips this occurrence and goes on with the next."""
    if claim.cron is None:
        return _end(claim, AlarmStatus.FAILED, error)
    try:
        following, note = _find_next(claim, now)
    except InvalidCron as broken:
        return _end(claim, AlarmStatus.FAILED, f"{broken}; before that: {error}")
    if following is None:
        return _end(claim, AlarmStatus.FAILED, error)._replace(note=note)
    last = "skipped after its last retry" if claim.failure_count else "skipped: max_failures allows no retries"
    skipped = "; ".join(each for each in (last, note) if each)
    return Verdict(DeliveryOutcome.GIVEN_UP, AlarmStatus.ACTIVE, following, following, 0, error, skipped)


def _retry(claim: AlarmClaim, error: str, at: datetime) -> Verdict:
    """Retry at an instant. If a timetable has newer occurrences by then, the retry is for the newest of them: a
    receiver that has seen the older one and deduplicates by id would ignore the wake."""
    newest, note = _find_newest(claim, at)
    failures = claim.failure_count + 1
    return Verdict(DeliveryOutcome.FAILED, AlarmStatus.ACTIVE, newest, at, failures, error, note)


def _end(
    claim: AlarmClaim, status: AlarmStatus, error: str | None, outcome: DeliveryOutcome = DeliveryOutcome.GIVEN_UP
) -> Verdict:
    failures = claim.failure_count + (outcome is DeliveryOutcome.GIVEN_UP)
    return Verdict(outcome, status, claim.occurrence, None, failures if error else 0, error)


def _find_next(claim: AlarmClaim, now: datetime) -> tuple[datetime | None, str | None]:
    """Return the first occurrence after now, and a note about those that have passed meanwhile."""
    if claim.cron is None:
        return None, None
    table = timetable(claim.cron, claim.tz, claim.occurrence)
    start = max(now, claim.occurrence)
    following = table.next_after(start)
    first = table.next_after(claim.occurrence)
    if first is None or first > start:
        return following, None
    missed = table.upto(first, start)
    return following, f"coalesced {_describe_occurrences(missed.total, first, missed.newest[-1])}"


def _find_newest(claim: AlarmClaim, at: datetime) -> tuple[datetime, str | None]:
    """Return the newest occurrence up to an instant, and a note about the older ones that it covers."""
    if claim.cron is None:
        return claim.occurrence, None
    try:
        table = timetable(claim.cron, claim.tz, claim.occurrence)
        first = table.next_after(claim.occurrence)
    except InvalidCron:  # its time zone is no longer known, but this occurrence is still to be delivered
        return claim.occurrence, None
    if first is None or first > at:
        return claim.occurrence, None
    passed = table.upto(first, at, newest=2)
    *before, newest = passed.newest
    last = before[-1] if before else claim.occurrence
    occurrences = _describe_occurrences(passed.total, claim.occurrence, last)
    return newest, f"coalesced {occurrences} into {newest.isoformat()}"


def _describe_occurrences(count: int, first: datetime, last: datetime) -> str:
    if count == 1:
        return f"1 occurrence ({first.isoformat()})"
    return f"{count} occurrences ({first.isoformat()} to {last.isoformat()})"
