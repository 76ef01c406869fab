"""What is a schedule? A timetable, the job it makes at each occurrence, and what to do when things are late."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from pulse.model.errors import InvalidName, InvalidOption, InvalidSchedule
from pulse.model.jobs import JobStatus, NewJob, check_instant, check_int, check_kind, check_length
from pulse.model.text import check_name
from pulse.timing.cron import Cron, InvalidCron
from pulse.timing.duration import format_duration
from pulse.timing.once import InvalidOnce, Words, resolve_once
from pulse.timing.timetable import Timetable
from pulse.timing.zones import UnknownZone, check_zone

SHORTEST = timedelta(seconds=1)
MAX_REPLAYED = 1_000
MAX_BACKFILLED = 1_000  # of one call: finding them takes a tenth of a second, with the schedule held
MAX_PREVIEWED = 200
ONCE = Words("schedule", "delay", "run_at")
WHEN = ("cron", "every", "run_at", "delay")  # of these, a schedule has one


class ScheduleStatus(StrEnum):
    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"  # its timetable has no more occurrences
    BROKEN = "BROKEN"  # it could not be fired; its error says why
    DISABLED = "DISABLED"  # the code that declared it no longer does


class CatchUp(StrEnum):
    """What happens to occurrences that fell due while nobody was there to fire them."""

    FIRE_ONCE = "fire_once"  # one job for all of them
    SKIP = "skip"  # none
    REPLAY = "replay"  # one for each, the newest `replay_limit` of them


class Overlap(StrEnum):
    """What happens at an occurrence while a job of an earlier one is unfinished."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "buffer_one"  # one waits for its end; more are skipped


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is declared: checked on construction, as far as that is possible without knowing the time."""

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
        """Its timetable, counted from an instant. `@every` is an interval by another name."""
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
    """A timetable as its row keeps it."""

    kind: str

    def first_after(self, now: datetime) -> datetime:
        """The first occurrence to come. A schedule without one is refused."""
        found = self.next_after(now)
        if found is None:
            raise InvalidSchedule(f"{self._words()} yields no future time after {now.isoformat(timespec='seconds')}")
        return found

    def is_past(self, now: datetime) -> bool:
        """Whether it has ended, as everything with an end does, and not merely cannot be."""
        return any(end is not None and end <= now for end in (self.run_at, self.ends_at))

    def _words(self) -> str:
        if self.cron is not None:
            return f"cron {self.cron!r}"
        if self.every is not None:
            return f"every {format_duration(self.every)}"
        return f"at {self.run_at.isoformat() if self.run_at else None}"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands."""

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
    app: str | None  # whose code declares it; none: made at a door
    created_at: datetime
    updated_at: datetime
    max_occurrences: int | None
    jitter: timedelta | None
    catch_up: CatchUp
    replay_limit: int
    overlap: Overlap

    def definition(self) -> dict[str, Any]:
        """What it was declared as, or might have been: the fields of a NewSchedule."""
        timed = {name: getattr(self.timed, name) for name in ("cron", "every", "run_at", "tz", "starts_at", "ends_at")}
        return {"name": self.name, "job": self.job} | timed | {name: getattr(self, name) for name in POLICY_FIELDS}


class ScheduleFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which schedules to list. Everything given must hold."""

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
    next: str | None  # hand it back for the following page; none: this was the last


class FireOutcome(StrEnum):
    FIRED = "FIRED"
    COALESCED = "COALESCED"  # missed, and stood for by the one that fired
    SKIPPED = "SKIPPED"
    BUFFERED = "BUFFERED"  # waits for the job before it


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an occurrence, or of several that were missed together."""

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
        """How long after its instant it was seen to."""
        return max(timedelta(), self.logged_at - self.occurrence)


class FirePage(msgspec.Struct, frozen=True):
    fires: list[Fire]
    next: str | None


class Backfill(msgspec.Struct, frozen=True, kw_only=True):
    """The occurrences of a stretch of the past, and the jobs made for those that had none."""

    occurrences: list[datetime]
    job_ids: list[UUID]  # empty on a dry run
    dry_run: bool


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that code declares, and the names it had before."""

    schedule: NewSchedule
    aliases: tuple[str, ...] = ()


class SyncReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync did, or would do: names of schedules."""

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
    """As every name, but none that could be an id: a schedule is called by either."""
    checked = check_name("schedule", name)
    try:
        UUID(checked)
    except ValueError:
        return checked
    raise InvalidName(f"schedule {checked!r} reads as an id: give it a name that does not")


def _check_template(job: NewJob) -> None:
    """A schedule's job has no time, id or key of its own: the occurrence gives it those."""
    for name in ("id", "delay", "run_at", "deadline", "trace"):
        if getattr(job, name) is not None:
            raise InvalidSchedule(f"{name} is not for the job of a schedule: each occurrence has its own time")
    if job.unique_key is not None:
        raise InvalidSchedule(
            "unique_key is not for the job of a schedule: an occurrence makes one job, and `overlap` "
            "says what happens while the one before is unfinished"
        )


def _either(kind: type[StrEnum]) -> str:
    *most, last = (member.value for member in kind)
    return f"{', '.join(most)} or {last}"
