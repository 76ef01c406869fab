"""How do schedules become messages of the wire, and messages become schedules? `convert.py` does the same for jobs.

The model's constructors check a definition that a client sends. A schedule that a server sends is not checked: the time
zone of its timetable may be unknown on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta, timezone
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from pulse.model.decisions.schedule_changes import apply_changes
from pulse.model.errors import InvalidOption
from pulse.model.jobs import NewJob
from pulse.model.schedules import (
    WHEN,
    Backfill,
    CatchUp,
    Declared,
    Fire,
    FireOutcome,
    NewSchedule,
    Overlap,
    Schedule,
    ScheduleFilter,
    ScheduleStatus,
    SyncReport,
    Timed,
)
from pulse.timing.cron import Occurrence
from pulse.wire.convert import (
    EPOCH,
    STATUS_FROM_WIRE,
    STATUS_TO_WIRE,
    read_instant,
    read_length,
    read_new_job,
    read_retry,
    read_text,
    write_instant,
    write_length,
    write_new_job,
)
from pulse.wire.v1 import pulse_pb2 as pb

E = TypeVar("E", bound=StrEnum)

STATUSES: dict[ScheduleStatus, Any] = {
    each: pb.ScheduleStatus.Value(f"SCHEDULE_{each.name}") for each in ScheduleStatus
}
CATCH_UPS: dict[CatchUp, Any] = {each: pb.CatchUp.Value(f"CATCH_UP_{each.name}") for each in CatchUp}
OVERLAPS: dict[Overlap, Any] = {each: pb.Overlap.Value(f"OVERLAP_{each.name}") for each in Overlap}
OUTCOMES: dict[FireOutcome, Any] = {each: pb.FireOutcome.Value(each.name) for each in FireOutcome}

# Any valid definition, from which the defaults of all fields are read.
_ANY = NewSchedule(name="any", job=NewJob(task="any"), cron="* * * * *")
_FIELDS = {field: getattr(_ANY, field) for field in NewSchedule.__struct_fields__}


def _read_enum(known: dict[E, Any], field: str, number: int, default: E | None = None) -> E:
    if number == 0 and default is not None:
        return default
    for member, value in known.items():
        if value == number:
            return member
    raise InvalidOption(field, number, "be a known value")


# --- definitions


def write_new_schedule(new: NewSchedule) -> pb.NewSchedule:
    message = _write_definition(new.name, new.job, new, new)
    message.MergeFrom(pb.NewSchedule(delay=write_length(new.delay)))
    return message


def _write_definition(
    name: str, job: NewJob, timed: NewSchedule | Timed, policy: NewSchedule | Schedule
) -> pb.NewSchedule:
    return pb.NewSchedule(
        name=name,
        job=write_new_job(job),
        cron=timed.cron or "",
        every=write_length(timed.every),
        run_at=write_instant(timed.run_at),
        tz=timed.tz,
        starts_at=write_instant(timed.starts_at),
        ends_at=write_instant(timed.ends_at),
        max_occurrences=policy.max_occurrences or 0,
        jitter=write_length(policy.jitter),
        catch_up=CATCH_UPS[policy.catch_up],
        replay_limit=policy.replay_limit,
        overlap=OVERLAPS[policy.overlap],
    )


def read_new_schedule(message: pb.NewSchedule) -> NewSchedule:
    own = {field: read(message) for field, read in READERS.items()}
    return NewSchedule(name=message.name, job=read_new_job(message.job), **own)


Reader = Callable[[pb.NewSchedule], Any]

# How to read each field of a definition except its name and its job. An empty field is read as its default.
READERS: dict[str, Reader] = {
    "cron": lambda message: message.cron or None,
    "every": lambda message: read_length(message, "every"),
    "run_at": lambda message: read_instant(message, "run_at"),
    "delay": lambda message: read_length(message, "delay"),
    "tz": lambda message: message.tz or _ANY.tz,
    "starts_at": lambda message: read_instant(message, "starts_at"),
    "ends_at": lambda message: read_instant(message, "ends_at"),
    "max_occurrences": lambda message: message.max_occurrences or None,
    "jitter": lambda message: read_length(message, "jitter"),
    "catch_up": lambda message: _read_enum(CATCH_UPS, "catch_up", message.catch_up, _ANY.catch_up),
    "replay_limit": lambda message: message.replay_limit or _ANY.replay_limit,
    "overlap": lambda message: _read_enum(OVERLAPS, "overlap", message.overlap, _ANY.overlap),
}
JOB_READERS: dict[str, Callable[[pb.NewJob], Any]] = {
    "task": lambda job: job.task,
    "payload": lambda job: job.payload or _ANY.job.payload,
    "topic": lambda job: job.topic,
    "priority": lambda job: job.priority,
    "max_attempts": lambda job: job.max_attempts or _ANY.job.max_attempts,
    "retry": lambda job: read_retry(job.retry) if job.retry else None,
    "timeout": lambda job: read_length(job, "timeout"),
    "result_ttl": lambda job: read_length(job, "result_ttl"),
    "tags": lambda job: tuple(job.tags),
}


# --- changes


def write_changes(changes: Mapping[str, Any]) -> pb.NewSchedule:
    """Return a definition that holds these changes, after the model has checked them.

    The other fields of the definition mean nothing: the request names the fields to read.
    """
    removed = {field for field in WHEN if changes.get(field) is None}
    checked = {field: value for field, value in changes.items() if field not in removed}
    message = write_new_schedule(apply_changes(_FIELDS, checked) if checked or not changes else _ANY)
    for field in removed:
        message.ClearField(field)
    return message


def read_changes(message: pb.NewSchedule, fields: Iterable[str]) -> dict[str, Any]:
    """Read the named fields of a definition.

    Of the unknown names only one is kept: the model refuses the changes because of it, and needs no more.
    """
    named = set(fields)
    unknown = named.difference(READERS, JOB_READERS)
    return {field: _read_field(message, field) for field in (*sorted(named - unknown), *sorted(unknown)[:1])}


def _read_field(message: pb.NewSchedule, field: str) -> object:
    if field in JOB_READERS:
        return JOB_READERS[field](message.job)
    return READERS[field](message) if field in READERS else None


# --- schedules as they are stored


def write_schedule(schedule: Schedule) -> pb.Schedule:
    return pb.Schedule(
        id=str(schedule.id),
        status=STATUSES[schedule.status],
        definition=_write_definition(schedule.name, schedule.job, schedule.timed, schedule),
        anchor=write_instant(schedule.timed.anchor),
        next_run_at=write_instant(schedule.next_run_at),
        buffered_for=write_instant(schedule.buffered_for),
        last_run_at=write_instant(schedule.last_run_at),
        fired=schedule.fired,
        paused_at=write_instant(schedule.paused_at),
        pause_reason=schedule.pause_reason,
        error=schedule.error,
        app=schedule.app,
        created_at=write_instant(schedule.created_at),
        updated_at=write_instant(schedule.updated_at),
    )


def read_schedule(message: pb.Schedule) -> Schedule:
    definition = message.definition
    own = {field: READERS[field](definition) for field in READERS if field != "delay"}
    timed = {field: own.pop(field) for field in ("cron", "every", "run_at", "tz", "starts_at", "ends_at")}
    kind = "cron" if timed["cron"] else "interval" if timed["every"] else "once"
    return Schedule(
        id=UUID(message.id),
        name=definition.name,
        status=_read_enum(STATUSES, "status", message.status),
        timed=Timed(kind=kind, anchor=read_instant(message, "anchor"), **timed),
        job=read_new_job(definition.job),
        next_run_at=read_instant(message, "next_run_at"),
        buffered_for=read_instant(message, "buffered_for"),
        last_run_at=read_instant(message, "last_run_at"),
        fired=message.fired,
        paused_at=read_instant(message, "paused_at"),
        pause_reason=message.pause_reason,
        error=read_text(message, "error"),
        app=read_text(message, "app"),
        created_at=read_instant(message, "created_at") or EPOCH,
        updated_at=read_instant(message, "updated_at") or EPOCH,
        **own,
    )


def write_schedule_filter(wanted: ScheduleFilter) -> pb.ScheduleFilter:
    paused: dict[str, Any] = {} if wanted.paused is None else {"paused": wanted.paused}
    return pb.ScheduleFilter(
        status=STATUSES[wanted.status] if wanted.status else None,
        **paused,
        task=wanted.task or "",
        topic=wanted.topic or "",
        tag=wanted.tag or "",
    )


def read_schedule_filter(message: pb.ScheduleFilter) -> ScheduleFilter:
    return ScheduleFilter(
        status=_read_enum(STATUSES, "status", message.status) if message.status else None,
        paused=message.paused if message.HasField("paused") else None,
        task=message.task or None,
        topic=message.topic or None,
        tag=message.tag or None,
    )


# --- occurrences and fires


def write_occurrence(occurrence: Occurrence) -> pb.Occurrence:
    return pb.Occurrence(
        at=write_instant(occurrence.at),
        offset=write_length(occurrence.offset),
        abbreviation=occurrence.local.tzname() or "",
        note=occurrence.note,
    )


def read_occurrence(message: pb.Occurrence) -> Occurrence:
    """Read an occurrence with the local time that the server sent: the time zones of this machine may be older."""
    at = read_instant(message, "at") or EPOCH
    tz = timezone(read_length(message, "offset") or timedelta(), message.abbreviation)
    return Occurrence(at, at.astimezone(tz), read_text(message, "note"))


def write_fire(fire: Fire) -> pb.Fire:
    return pb.Fire(
        occurrence=write_instant(fire.occurrence),
        outcome=OUTCOMES[fire.outcome],
        cause=fire.cause,
        logged_at=write_instant(fire.logged_at),
        occurrences=fire.occurrences,
        newest=write_instant(fire.newest),
        reason=fire.reason,
        job_id=str(fire.job_id) if fire.job_id else None,
        job_status=STATUS_TO_WIRE[fire.job_status] if fire.job_status else None,
    )


def read_fire(message: pb.Fire) -> Fire:
    return Fire(
        occurrence=read_instant(message, "occurrence") or EPOCH,
        outcome=_read_enum(OUTCOMES, "outcome", message.outcome),
        cause=message.cause,
        logged_at=read_instant(message, "logged_at") or EPOCH,
        occurrences=message.occurrences,
        newest=read_instant(message, "newest") or EPOCH,
        reason=read_text(message, "reason"),
        job_id=UUID(message.job_id) if message.job_id else None,
        job_status=STATUS_FROM_WIRE.get(message.job_status),
    )


def write_backfill(backfill: Backfill) -> pb.BackfillScheduleResponse:
    return pb.BackfillScheduleResponse(
        occurrences=filter(None, map(write_instant, backfill.occurrences)),
        job_ids=[str(job_id) for job_id in backfill.job_ids],
        dry_run=backfill.dry_run,
    )


def read_backfill(message: pb.BackfillScheduleResponse) -> Backfill:
    return Backfill(
        occurrences=[
            EPOCH + timedelta(seconds=at.seconds, microseconds=at.nanos // 1_000) for at in message.occurrences
        ],
        job_ids=[UUID(job_id) for job_id in message.job_ids],
        dry_run=message.dry_run,
    )


# --- sync


def write_declared(declared: Declared) -> pb.DeclaredSchedule:
    return pb.DeclaredSchedule(schedule=write_new_schedule(declared.schedule), aliases=declared.aliases)


def read_declared(message: pb.DeclaredSchedule) -> Declared:
    return Declared(schedule=read_new_schedule(message.schedule), aliases=tuple(message.aliases))


_NAMES = ("created", "changed", "enabled", "disabled", "deleted", "unchanged")


def write_sync_report(report: SyncReport) -> pb.SyncSchedulesResponse:
    names: dict[str, Any] = {field: getattr(report, field) for field in _NAMES}
    renamed = [pb.Renamed(old_name=old, new_name=new) for old, new in report.renamed]
    return pb.SyncSchedulesResponse(renamed=renamed, dry_run=report.dry_run, **names)


def read_sync_report(message: pb.SyncSchedulesResponse) -> SyncReport:
    names = {field: list(getattr(message, field)) for field in _NAMES}
    renamed = [(each.old_name, each.new_name) for each in message.renamed]
    return SyncReport(renamed=renamed, dry_run=message.dry_run, **names)
