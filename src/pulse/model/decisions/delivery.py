"""What becomes of an alarm once its wake was delivered, or was not? The whole decision, without any I/O."""

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
    """An alarm whose wake is to be delivered, leased to this process; in the order of its statement's columns."""

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
        """What tells it from every other claim, also of the same alarm."""
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


class Answered(NamedTuple):
    """What a delivery came to."""

    error: str | None  # none: it was delivered
    is_gone: bool = False  # the receiver wants no more of them, ever
    retry_after: timedelta | None = None  # as the receiver asked


class Verdict(NamedTuple):
    """How the alarm's row is to stand."""

    outcome: DeliveryOutcome
    status: AlarmStatus
    occurrence: datetime
    next_fire_at: datetime | None
    failure_count: int
    error: str | None
    note: str | None = None


def backoff(failure_count: int) -> timedelta:
    """30 s, doubling with each failure before this one, at most 15 minutes."""
    doubled: timedelta = FIRST_RETRY * 2 ** min(failure_count, 5)
    return min(doubled, LONGEST_RETRY)


def decide(claim: AlarmClaim, answered: Answered, now: datetime, *, spread: float = 1.0) -> Verdict:
    """Answers with how the row is to stand. `spread` shortens a retry's wait, so that many that failed together do not
    come back together; nothing makes it longer than 15 minutes."""
    if answered.error is None:
        return _delivered(claim, now)
    if answered.is_gone:
        return _ended(claim, AlarmStatus.FAILED, f"{answered.error}: the receiver wants no more wakes")
    if claim.failure_count >= claim.max_failures:
        return _given_up(claim, answered.error, now)
    wait = min(backoff(claim.failure_count) * spread, LONGEST_RETRY)
    if answered.retry_after is not None:
        wait = max(wait, min(answered.retry_after, LONGEST_RETRY))
    return _retried(claim, answered.error, now + wait)


def give_up(claim: AlarmClaim, error: str) -> Verdict:
    """For good, whatever it is."""
    return _ended(claim, AlarmStatus.FAILED, error)


def _delivered(claim: AlarmClaim, now: datetime) -> Verdict:
    try:
        following, note = _next_of(claim, now)
    except InvalidCron as error:  # its zone has gone, say
        return _ended(claim, AlarmStatus.FAILED, str(error), DeliveryOutcome.DELIVERED)
    if following is None:
        return _ended(claim, AlarmStatus.FIRED, None, DeliveryOutcome.DELIVERED)._replace(note=note)
    return Verdict(DeliveryOutcome.DELIVERED, AlarmStatus.ACTIVE, following, following, 0, None, note)


def _given_up(claim: AlarmClaim, error: str, now: datetime) -> Verdict:
    """A once alarm has failed; one of a timetable skips this occurrence and goes on with the next."""
    if claim.cron is None:
        return _ended(claim, AlarmStatus.FAILED, error)
    try:
        following, note = _next_of(claim, now)
    except InvalidCron as broken:
        return _ended(claim, AlarmStatus.FAILED, f"{broken}; before that: {error}")
    if following is None:
        return _ended(claim, AlarmStatus.FAILED, error)._replace(note=note)
    last = "skipped after its last retry" if claim.failure_count else "skipped: it is to have no retries"
    skipped = "; ".join(each for each in (last, note) if each)
    return Verdict(DeliveryOutcome.GIVEN_UP, AlarmStatus.ACTIVE, following, following, 0, error, skipped)


def _retried(claim: AlarmClaim, error: str, at: datetime) -> Verdict:
    """Climb the ladder. Where a timetable has newer occurrences by then, the retry is for the newest of them: a
    receiver that has seen the older one, and tells repetitions by their id, would take the wake for nothing new."""
    newest, note = _newest_by(claim, at)
    failures = claim.failure_count + 1
    return Verdict(DeliveryOutcome.FAILED, AlarmStatus.ACTIVE, newest, at, failures, error, note)


def _ended(
    claim: AlarmClaim, status: AlarmStatus, error: str | None, outcome: DeliveryOutcome = DeliveryOutcome.GIVEN_UP
) -> Verdict:
    failures = claim.failure_count + (outcome is DeliveryOutcome.GIVEN_UP)
    return Verdict(outcome, status, claim.occurrence, None, failures if error else 0, error)


def _next_of(claim: AlarmClaim, now: datetime) -> tuple[datetime | None, str | None]:
    """The first occurrence after now, and what is to be said of those that have passed meanwhile."""
    if claim.cron is None:
        return None, None
    table = timetable(claim.cron, claim.tz, claim.occurrence)
    start = max(now, claim.occurrence)
    following = table.next_after(start)
    first = table.next_after(claim.occurrence)
    if first is None or first > start:
        return following, None
    missed = table.upto(first, start)
    return following, f"coalesced {_several(missed.total, first, missed.newest[-1])}"


def _newest_by(claim: AlarmClaim, at: datetime) -> tuple[datetime, str | None]:
    """The newest occurrence up to an instant, and what is to be said of those it stands for."""
    if claim.cron is None:
        return claim.occurrence, None
    try:
        table = timetable(claim.cron, claim.tz, claim.occurrence)
        first = table.next_after(claim.occurrence)
    except InvalidCron:  # its zone has gone: this occurrence is owed all the same
        return claim.occurrence, None
    if first is None or first > at:
        return claim.occurrence, None
    passed = table.upto(first, at, newest=2)
    *before, newest = passed.newest
    last = before[-1] if before else claim.occurrence
    return newest, f"coalesced {_several(passed.total, claim.occurrence, last)} into {newest.isoformat()}"


def _several(count: int, first: datetime, last: datetime) -> str:
    if count == 1:
        return f"1 occurrence ({first.isoformat()})"
    return f"{count} occurrences ({first.isoformat()} to {last.isoformat()})"
