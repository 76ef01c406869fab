"""What is a schedule? A timetable, the job it makes at each occurrence, and rules for late and overlapping ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from pulse.model.any_case import AnyCase
from pulse.model.errors import InvalidName, InvalidOption, InvalidSchedule
from pulse.model.jobs import JobStatus, NewJob, check_instant, check_int, check_kind, check_length
from pulse.model.text import check_name
from pulse.timing.cron import Cron, InvalidCron
from pulse.timing.duration import format_duration
from pulse.timing.once import FieldNames, InvalidOnce, resolve_once
from pulse.timing.timetable import Timetable
from pulse.timing.zones import UnknownZone, check_zone

SHORTEST = timedelta(seconds=1)
MAX_REPLAYED = 1_000
MAX_BACKFILLED = 1_000  # occurrences of one call: finding them takes a tenth of a second, with the schedule locked
MAX_PREVIEWED = 200
ONCE = FieldNames("schedule", "delay", "run_at")
WHEN = ("cron", "every", "run_at", "delay")  # a schedule has exactly one of these


class ScheduleStatus(AnyCase):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"  # its timetable has no more occurrences
    BROKEN = "BROKEN"  # it could not be fired; its error says why
    DISABLED = "DISABLED"  # the code that declared it no longer does


class CatchUp(StrEnum):
    """The rule for occurrences that fell due while no process was there to fire them."""

    FIRE_ONCE = "fire_once"  # one job for all of them
    SKIP = "skip"  # none
    REPLAY = "replay"  # one for each, the newest `replay_limit` of them


class Overlap(StrEnum):
    """The rule for an occurrence at which a job of an earlier one is unfinished."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"  # one occurrence waits for that job to end; more are skipped


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule to be made. It is checked on construction, as far as that is possible without knowing the time."""

    name: str
    job: NewJob
    cron: str | None = None
    every: timedelta | None = None
    run_at: datetime | None = None
    delay: timedelta | None = None
    tz: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_occurrences: int | None = None
    jitter: timedelta | None = None
    catch_up: CatchUp = CatchUp.FIRE_ONCE
    replay_limit: int = 100
    overlap: Overlap = Overlap.ALLOW

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        check_kind("job", self.job, NewJob)
        self._check_when()
        self._check_zone()
        check_length("every", self.every, SHORTEST)
        check_length("delay", self.delay, SHORTEST)
        for name in ("run_at", "starts_at", "ends_at"):
            check_instant(name, getattr(self, name))
        if self.starts_at is not None and self.ends_at is not None and self.starts_at >= self.ends_at:
            raise InvalidSchedule(
                f"starts_at {self.starts_at.isoformat()} is not before ends_at {self.ends_at.isoformat()}"
            )
        self._check_policy()
        _check_template(self.job)

    def _check_when(self) -> None:
        given = [name for name in WHEN if getattr(self, name) is not None]
        if given == ["run_at", "delay"]:
            raise InvalidSchedule("once schedule takes either delay or run_at, not both")
        if len(given) > 1:
            raise InvalidSchedule(f"give one of cron, every, run_at and delay, not {' and '.join(given)}")
        if not given:
            raise InvalidSchedule(
                "when? give one of cron, every, run_at and delay: a once schedule requires delay or run_at, "
                "a recurring one cron or every"
            )

    def _check_zone(self) -> None:
        check_kind("tz", self.tz, str)
        check_kind("cron", self.cron, str, None)
        if not self.tz:  # as for alarms
            msgspec.structs.force_setattr(self, "tz", "UTC")
        try:
            check_zone(self.tz)
        except UnknownZone as error:
            raise InvalidSchedule(str(error)) from None
        cron = self.parsed_cron
        if cron is not None and cron.tz != self.tz and self.tz != "UTC":
            raise InvalidSchedule(f"the expression {self.cron!r} names its own time zone, so {self.tz!r} is not used")

    def _check_policy(self) -> None:
        if self.max_occurrences is not None:
            check_int("max_occurrences", self.max_occurrences, 1, 1 << 30)
        check_length("jitter", self.jitter, timedelta(milliseconds=1))
        for name, kind in (("catch_up", CatchUp), ("overlap", Overlap)):
            try:  # the bare word will do
                msgspec.structs.force_setattr(self, name, kind(getattr(self, name)))
            except ValueError:
                raise InvalidOption(name, getattr(self, name), f"be {_either(kind)}") from None
        check_int("replay_limit", self.replay_limit, 1, MAX_REPLAYED)

    @property
    def parsed_cron(self) -> Cron | None:
        if self.cron is None:
            return None
        try:
            return Cron.parse(self.cron, self.tz)
        except InvalidCron as error:
            raise InvalidSchedule(str(error)) from None

    def timed(self, now: datetime) -> Timed:
        """Return its timetable, counted from `now`. `@every` becomes an interval."""
        every, begin, end = self.every, self.starts_at, self.ends_at
        if (cron := self.parsed_cron) is not None:
            if not isinstance(cron.timetable, timedelta):
                return Timed(kind="cron", cron=self.cron, tz=cron.tz, starts_at=begin, ends_at=end)
            every = cron.timetable
        if every is not None:
            anchor = begin or now
            return Timed(kind="interval", every=every, anchor=anchor, tz=self.tz, starts_at=begin, ends_at=end)
        try:
            at = resolve_once(ONCE, delay=self.delay, at=self.run_at, now=now)
        except InvalidOnce as error:
            raise InvalidSchedule(str(error)) from None
        return Timed(kind="once", run_at=at, tz=self.tz, starts_at=begin, ends_at=end)


class Timed(Timetable, frozen=True, kw_only=True):
    """A timetable as its row has it."""

    kind: str

    def first_after(self, now: datetime) -> datetime:
        """Return the first occurrence after `now`. Refuse a timetable without one."""
        first = self.next_after(now)
        if first is None:
            raise InvalidSchedule(f"{self._describe()} yields no future time after {now.isoformat(timespec='seconds')}")
        return first

    def is_past(self, now: datetime) -> bool:
        """Tell whether its end has passed. A timetable that never had an occurrence is not past."""
        return any(end is not None and end <= now for end in (self.run_at, self.ends_at))

    def _describe(self) -> str:
        if self.cron is not None:
            return f"cron {self.cron!r}"
        if self.every is not None:
            return f"every {format_duration(self.every)}"
        return f"at {self.run_at.isoformat() if self.run_at else None}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a schedule."""

    id: UUID
    name: str
    status: ScheduleStatus
    timed: Timed
    job: NewJob
    next_run_at: datetime | None
    buffered_for: datetime | None
    last_run_at: datetime | None
    fired: int
    paused_at: datetime | None
    pause_reason: str
    error: str | None
    app: str | None  # the app whose code declares it; none: it was made through a door
    created_at: datetime
    updated_at: datetime
    max_occurrences: int | None
    jitter: timedelta | None
    catch_up: CatchUp
    replay_limit: int
    overlap: Overlap

    def definition(self) -> dict[str, Any]:
        """Return the fields of a NewSchedule that would define this schedule."""
        timed = {name: getattr(self.timed, name) for name in ("cron", "every", "run_at", "tz", "starts_at", "ends_at")}
        return {"name": self.name, "job": self.job} | timed | {name: getattr(self, name) for name in POLICY_FIELDS}


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The schedules to list: those that match every field given."""

    status: ScheduleStatus | None = None
    paused: bool | None = None
    task: str | None = None
    topic: str | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        check_kind("paused", self.paused, bool, None)
        check_kind("status", self.status, ScheduleStatus, None)
        for what in ("task", "topic", "tag"):
            if (name := getattr(self, what)) is not None:
                check_name(what, name)


class SchedulePage(msgspec.Struct, frozen=True):
    schedules: list[Schedule]
    next: str | None  # give it as `after` to get the following page; none: this is the last


class FireOutcome(StrEnum):
    FIRED = "FIRED"
    COALESCED = "COALESCED"  # missed, and covered by the one that fired
    SKIPPED = "SKIPPED"
    BUFFERED = "BUFFERED"  # waits for an earlier job to end


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one occurrence, or of several that were missed together."""

    occurrence: datetime
    outcome: FireOutcome
    cause: str  # timetable, trigger or backfill
    logged_at: datetime
    occurrences: int = 1
    newest: datetime
    reason: str | None = None
    job_id: UUID | None = None
    job_status: JobStatus | None = None  # none: it made no job, or retention has removed it

    @property
    def late(self) -> timedelta:
        """Return how long after its instant it was dealt with."""
        return max(timedelta(), self.logged_at - self.occurrence)


class FirePage(msgspec.Struct, frozen=True):
    fires: list[Fire]
    next: str | None


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrences in a past span of time that had no job, and the jobs made for them."""

    occurrences: list[datetime]
    job_ids: list[UUID]  # empty on a dry run
    dry_run: bool


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that code declares, and the names it had before."""

    schedule: NewSchedule
    aliases: tuple[str, ...] = ()


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the schedules that a sync changed, or on a dry run would change."""

    created: list[str]
    changed: list[str]
    renamed: list[tuple[str, str]]  # from, to
    enabled: list[str]
    disabled: list[str]
    deleted: list[str]
    unchanged: list[str]
    dry_run: bool


JOB_FIELDS = ("task", "payload", "topic", "priority", "max_attempts", "retry", "timeout", "result_ttl", "tags")
TIMETABLE_FIELDS = (*WHEN, "tz", "starts_at", "ends_at")
POLICY_FIELDS = ("max_occurrences", "jitter", "catch_up", "replay_limit", "overlap")


def check_schedule_name(name: object) -> str:
    """Return the name of a schedule. Refuse one that reads as an id: a schedule is looked up by name or by id."""
    checked = check_name("schedule", name)
    try:
        UUID(checked)
    except ValueError:
        return checked
    raise InvalidName(f"the name of a schedule must not read as an id, as {checked!r} does: choose another name")


def _check_template(job: NewJob) -> None:
    """Refuse a job with a time, an id or a key of its own: each occurrence gives those to its job."""
    for name in ("id", "delay", "run_at", "deadline", "trace"):
        if getattr(job, name) is not None:
            raise InvalidSchedule(f"the job of a schedule must have no {name}: each occurrence gives its job its own")
    if job.unique_key is not None:
        raise InvalidSchedule(
            "the job of a schedule must have no unique_key: an occurrence makes one job, and `overlap` says what "
            "happens while an earlier job is unfinished"
        )


def _either(kind: type[StrEnum]) -> str:
    *others, last = (member.value for member in kind)
    return f"{', '.join(others)} or {last}"
