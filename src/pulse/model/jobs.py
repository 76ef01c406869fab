"""What is a job, which states can it be in, and which moves between them are legal?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from pulse.model.any_case import AnyCase
from pulse.model.errors import NOT_SHOWN, BatchTooLarge, InvalidFilter, InvalidOption, InvalidReport
from pulse.model.ids import check_given_id
from pulse.model.text import check_json, check_name, check_text, check_topic, clean_error
from pulse.timing.duration import format_duration

MAX_ATTEMPTS = 1_000
LONGEST = timedelta(days=3653)  # ten years
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # an earlier instant is a value that somebody forgot to set
MAX_TAGS = 32
MAX_TRACE_FIELDS = 64
KEY_LIMIT = 500
KEY_BYTES = 1_600  # together with the longest topic, as much as an index entry can hold
PAGE_LIMIT = 500
BATCH_LIMIT = 10_000  # items of one call
CLAIM_LIMIT = 500  # jobs of one claim
_LARGEST = (1 << 63) - 1


class JobStatus(AnyCase):
    SCHEDULED = "SCHEDULED"  # its time has not come
    PENDING = "PENDING"  # ready to be claimed
    RUNNING = "RUNNING"  # a worker holds a lease on it
    RETRYING = "RETRYING"  # failed, waiting for its back-off
    COMPLETED = "COMPLETED"
    DEAD_LETTERED = "DEAD_LETTERED"
    CANCELLED = "CANCELLED"


class JobEvent(StrEnum):
    PROMOTE = "PROMOTE"  # its time has come
    CLAIM = "CLAIM"
    HEARTBEAT = "HEARTBEAT"
    COMPLETE = "COMPLETE"
    RETRY = "RETRY"  # failed or reaped, with attempts left
    SNOOZE = "SNOOZE"  # the handler asks to be called later, uncharged
    RELEASE = "RELEASE"  # claimed, not started, given back uncharged
    DEAD_LETTER = "DEAD_LETTER"  # failed or reaped for the last time, or discarded
    EXPIRE = "EXPIRE"  # its deadline passed before it could run
    CANCEL = "CANCEL"
    REPLAY = "REPLAY"
    RUN_NOW = "RUN_NOW"  # an operator does not want to wait for its time


WAITING = frozenset({JobStatus.SCHEDULED, JobStatus.PENDING, JobStatus.RETRYING})
FINISHED = frozenset({JobStatus.COMPLETED, JobStatus.DEAD_LETTERED, JobStatus.CANCELLED})

# The only legal moves. The store's statements are tested against this table, pair by pair.
TRANSITIONS: dict[tuple[JobStatus, JobEvent], JobStatus] = {
    (JobStatus.SCHEDULED, JobEvent.PROMOTE): JobStatus.PENDING,
    (JobStatus.RETRYING, JobEvent.PROMOTE): JobStatus.PENDING,
    (JobStatus.PENDING, JobEvent.CLAIM): JobStatus.RUNNING,
    (JobStatus.RUNNING, JobEvent.HEARTBEAT): JobStatus.RUNNING,
    (JobStatus.RUNNING, JobEvent.COMPLETE): JobStatus.COMPLETED,
    (JobStatus.RUNNING, JobEvent.RETRY): JobStatus.RETRYING,
    (JobStatus.RUNNING, JobEvent.SNOOZE): JobStatus.SCHEDULED,
    (JobStatus.RUNNING, JobEvent.RELEASE): JobStatus.PENDING,
    (JobStatus.RUNNING, JobEvent.DEAD_LETTER): JobStatus.DEAD_LETTERED,
    (JobStatus.SCHEDULED, JobEvent.EXPIRE): JobStatus.DEAD_LETTERED,
    (JobStatus.PENDING, JobEvent.EXPIRE): JobStatus.DEAD_LETTERED,
    (JobStatus.RETRYING, JobEvent.EXPIRE): JobStatus.DEAD_LETTERED,
    (JobStatus.SCHEDULED, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.PENDING, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.RUNNING, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.RETRYING, JobEvent.CANCEL): JobStatus.CANCELLED,
    (JobStatus.DEAD_LETTERED, JobEvent.REPLAY): JobStatus.PENDING,
    (JobStatus.SCHEDULED, JobEvent.RUN_NOW): JobStatus.PENDING,
    (JobStatus.RETRYING, JobEvent.RUN_NOW): JobStatus.PENDING,
}


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rule for how long to wait after the nth failure. `pulse.backoff` in SQL reads exactly this, as JSON.

    quadratic: base × n² · exponential: base × factor^(n-1) · fixed: base · list: the nth of `delays`, or the last.
    """

    kind: str = "quadratic"
    base: float = 1.0  # seconds, like all lengths here
    factor: float = 2.0
    delays: tuple[float, ...] = ()
    max_delay: float = 86_400.0
    jitter: float = 0.1  # a share: 0.1 spreads the wait over ±10 %

    def __post_init__(self) -> None:
        if self.kind not in ("quadratic", "exponential", "fixed", "list"):
            raise InvalidOption("retry kind", self.kind, "be quadratic, exponential, fixed or list")
        if len(self.delays) > MAX_ATTEMPTS:
            raise InvalidOption("retry delays", len(self.delays), f"number at most {MAX_ATTEMPTS}")
        if (self.kind == "list") != bool(self.delays):
            raise InvalidOption("retry delays", NOT_SHOWN, "be given for the kind list, and for no other kind")
        if not 0 <= self.jitter <= 1:
            raise InvalidOption("retry jitter", self.jitter, "be a share from 0 to 1")
        longest = LONGEST.total_seconds()
        for name, seconds in [("base", self.base), ("max_delay", self.max_delay), *(("delay", d) for d in self.delays)]:
            if not 0 <= seconds <= longest:
                raise InvalidOption(f"retry {name}", seconds, "be a number of seconds from 0 to ten years")
        if not 1 <= self.factor <= 100:
            raise InvalidOption("retry factor", self.factor, "be a number from 1 to 100")


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be submitted. It is checked on construction, so that an invalid one never reaches a statement."""

    task: str
    payload: str = "{}"  # JSON text
    topic: str = ""  # empty: the task's name
    id: UUID | None = None  # none: made on submit
    priority: int = 0
    delay: timedelta | None = None
    run_at: datetime | None = None
    max_attempts: int = 3
    retry: RetryPolicy | None = None
    timeout: timedelta | None = None
    deadline: datetime | None = None
    unique_key: str | None = None
    unique_window: timedelta | None = None  # none: while the job is unfinished
    result_ttl: timedelta | None = None  # none: as long as the job is kept
    tags: tuple[str, ...] = ()
    trace: dict[str, str] | None = None

    def __post_init__(self) -> None:
        check_name("task", self.task)
        check_kind("payload", self.payload, str)
        check_kind("retry", self.retry, RetryPolicy, None)
        check_kind("tags", self.tags, tuple)
        check_given_id("id", self.id)
        check_topic(self.routed_topic)
        check_json("payload", self.payload)
        check_int("priority", self.priority, -100, 100)
        check_int("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.delay is not None and self.run_at is not None:
            raise InvalidOption("delay", NOT_SHOWN, "be left out where run_at is given")
        check_length("delay", self.delay, timedelta())
        for name in ("timeout", "unique_window", "result_ttl"):
            check_length(name, getattr(self, name), timedelta(milliseconds=1))
        check_instant("run_at", self.run_at)
        check_instant("deadline", self.deadline)
        if self.unique_key is not None:
            check_text("unique_key", self.unique_key, KEY_LIMIT)
            if len(self.unique_key.encode()) > KEY_BYTES:
                raise InvalidOption("unique_key", self.unique_key[:40], f"have at most {KEY_BYTES} bytes of UTF-8")
        elif self.unique_window is not None:
            raise InvalidOption("unique_window", NOT_SHOWN, "come with a unique_key")
        _check_tags(self.tags)
        if self.trace is not None:
            if len(self.trace) > MAX_TRACE_FIELDS:
                raise InvalidOption("trace", len(self.trace), f"have at most {MAX_TRACE_FIELDS} fields")
            check_json("trace", msgspec.json.encode(self.trace).decode())

    @property
    def routed_topic(self) -> str:
        return self.topic or self.task


class Submitted(msgspec.Struct, frozen=True):
    id: UUID
    created: bool  # false: the first job with this id or key stands, and nothing was changed


class Claim(msgspec.Struct, frozen=True, gc=False):
    """One job leased to one worker: everything its handler needs, and the fence that its report must carry."""

    id: UUID
    lease_id: int
    worker: str
    topic: str
    task: str
    payload: str
    attempt: int
    max_attempts: int
    refunded: int
    priority: int
    ready_at: datetime
    claimed_at: datetime
    lease_until: datetime
    timeout: timedelta | None
    deadline: datetime | None
    trace: str | None
    scheduled_for: datetime | None = None  # the occurrence of its schedule that it was made for

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt - self.refunded >= self.max_attempts

    @property
    def order(self) -> tuple[int, datetime, UUID]:
        """Return the key that jobs of a topic are claimed by: most urgent first, then first in, first out."""
        return (-self.priority, self.ready_at, self.id)


class Outcome(StrEnum):
    """The way a handler ended, as its worker reports it."""

    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    SNOOZE = "SNOOZE"
    DISCARD = "DISCARD"


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The id and fence with which a worker proves that a job is still its own."""

    id: UUID
    lease_id: int

    def __post_init__(self) -> None:
        check_lease_id(self.id, self.lease_id)


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    id: UUID
    lease_id: int
    outcome: Outcome
    result: str | None = None  # JSON text, with COMPLETE
    error: str = ""  # with FAIL and DISCARD; with SNOOZE, why
    traceback: str | None = None
    delay: timedelta | None = None  # required with SNOOZE; overrides the back-off with FAIL

    def __post_init__(self) -> None:
        if type(self.lease_id) is not int or not 0 < self.lease_id <= _LARGEST:  # inlined: every job is reported
            check_lease_id(self.id, self.lease_id)
        if self.result is not None:
            check_json("result", self.result)
        if self.delay is not None:
            check_length("delay", self.delay, timedelta())
        elif self.outcome is Outcome.SNOOZE:
            raise InvalidReport(f"a report that snoozes job {self.id} must have a delay")

    @property
    def clean_error(self) -> str | None:
        if self.outcome is Outcome.SNOOZE and not self.error:
            return None  # the error of an earlier attempt stays
        return clean_error(self.error or "failed without saying why")

    @property
    def clean_traceback(self) -> str | None:
        return clean_error(self.traceback) if self.traceback else None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    lease_id: int
    value: str  # JSON text

    def __post_init__(self) -> None:
        check_lease_id(self.id, self.lease_id)
        check_json("progress", self.value)


class ReportStatus(StrEnum):
    """The answer for one item in a batch of heartbeats, reports, releases or progress notes."""

    ACCEPTED = "ACCEPTED"
    ALREADY = "ALREADY"  # this claim was reported before; the first report stands
    LOST = "LOST"  # another claim followed this one: stop, and discard the result
    CANCELLED = "CANCELLED"  # like LOST, because somebody cancelled the job
    BUSY = "BUSY"  # the handler's own transaction holds the row: report again


class Attempt(msgspec.Struct, frozen=True):
    """A failed attempt, as the log of attempts has it."""

    lease_id: int
    attempt: int
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error: str
    traceback: str | None


class Job(msgspec.Struct, frozen=True):
    """The current state of a job, with one field for each column of its row."""

    id: UUID
    status: JobStatus
    topic: str
    task: str
    payload: str
    priority: int
    attempt: int
    max_attempts: int
    refunded: int
    lease_id: int
    submitted_at: datetime
    ready_at: datetime | None
    run_at: datetime
    claimed_at: datetime | None
    lease_until: datetime | None
    finished_at: datetime | None
    locked_by: str | None
    last_error: str | None
    result: str | None
    progress: str | None
    retry: str | None
    tags: str | None
    trace: str | None
    timeout: timedelta | None
    deadline: datetime | None
    result_ttl: timedelta | None
    unique_key: str | None
    key_held_until: datetime | None
    schedule_id: UUID | None  # the schedule that made it
    scheduled_for: datetime | None  # the occurrence that it was made for


class JobHead(msgspec.Struct, frozen=True):
    """The part of a job that a line of a list shows, without the fields that may have a megabyte."""

    id: UUID
    status: JobStatus
    topic: str
    task: str
    priority: int
    attempt: int
    max_attempts: int
    refunded: int
    submitted_at: datetime
    ready_at: datetime | None
    run_at: datetime
    claimed_at: datetime | None
    finished_at: datetime | None
    locked_by: str | None
    last_error: str | None  # its beginning

    @property
    def charged(self) -> int:
        """Return how many of its attempts count."""
        return self.attempt - self.refunded


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs to list: those that match every field given."""

    topic: str | None = None
    task: str | None = None
    status: JobStatus | None = None
    tag: str | None = None
    error: str | None = None  # a part of its last error, in upper or lower case
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None
    schedule_id: UUID | None = None  # made by this schedule, which may be deleted by now

    def __post_init__(self) -> None:
        check_kind("schedule_id", self.schedule_id, UUID, None)
        for what in ("topic", "task", "tag"):
            if (name := getattr(self, what)) is not None:
                check_name(what, name)
        if self.error is not None:
            check_text("error", self.error)
        for name in ("submitted_after", "submitted_before"):
            instant = getattr(self, name)
            if instant is not None and instant.tzinfo is None:
                raise InvalidFilter(f"{name} {instant} has no time zone: add one, for example +00:00")


class Page(msgspec.Struct, frozen=True):
    jobs: list[Job]
    next: str | None  # give it as `after` to get the following page; none: this is the last


class HeadPage(msgspec.Struct, frozen=True):
    jobs: list[JobHead]
    next: str | None


class TopicCount(msgspec.Struct, frozen=True):
    topic: str
    counts: dict[JobStatus, int]
    paused: bool


class Pause(msgspec.Struct, frozen=True):
    topic: str  # "*": all topics
    reason: str
    paused_at: datetime


def check_lease_id(job_id: UUID, lease_id: object) -> None:
    """Refuse a lease_id that no claim can have, such as the zero of a field that was not set."""
    if type(lease_id) is not int or not 0 < lease_id <= _LARGEST:
        raise InvalidReport(
            f"lease_id for job {job_id} must be the one that came with its claim, a number above 0, not {lease_id!r}"
        )


def check_kind(option: str, value: object, kind: type, *others: object) -> None:
    """Refuse a value that is not of this type and not one of the others."""
    if not isinstance(value, kind) and value not in others:
        found = NOT_SHOWN if option == "payload" else value  # a payload may contain secrets
        raise InvalidOption(option, found, f"be of the type {kind.__name__}")


def check_size(what: str, items: Sequence[object]) -> None:
    if len(items) > BATCH_LIMIT:
        raise BatchTooLarge(what, len(items), BATCH_LIMIT)


def check_int(option: str, value: Any, minimum: int, maximum: int) -> None:  # noqa: ANN401
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise InvalidOption(option, value, f"be a whole number from {minimum} to {maximum}")


def check_length(option: str, value: Any, minimum: timedelta) -> None:  # noqa: ANN401
    if value is None:
        return
    if not isinstance(value, timedelta) or not minimum <= value <= LONGEST:
        found = format_duration(value) if isinstance(value, timedelta) else str(value)
        raise InvalidOption(option, found, f"be a length of time from {format_duration(minimum)} to ten years")


def check_instant(option: str, value: Any) -> None:  # noqa: ANN401
    if value is None:
        return
    if not isinstance(value, datetime):
        raise InvalidOption(option, value, "be a datetime with a time zone")
    if value.tzinfo is None:
        raise InvalidOption(option, value.isoformat(), "have a time zone, for example +00:00")
    if value < EARLIEST:
        raise InvalidOption(option, value.isoformat(), "be 1970 or later")
    if value - datetime.now(UTC) > LONGEST:
        raise InvalidOption(option, value.isoformat(), "be at most ten years away")


def _check_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > MAX_TAGS:
        raise InvalidOption("tags", len(tags), f"number at most {MAX_TAGS}")
    for tag in tags:
        check_name("tag", tag)
