"""How are schedules and their occurrences shown in lists, on pages of their own, and as JSON?

Occurrences of a cron line are shown in its time zone, in which its "at nine" is meant; all others in local time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

from pulse.cli.jobs.views import STYLES as JOB_STYLES
from pulse.cli.jobs.views import field_value
from pulse.cli.output import (
    Cell,
    Column,
    Styled,
    age,
    local_time,
    plural,
    print_next_page,
    print_text,
    rough_length,
    show_fields,
    show_table,
)

if TYPE_CHECKING:
    from pulse.model.jobs import NewJob
    from pulse.model.schedules import Backfill, Fire, FirePage, Schedule, SchedulePage, SyncReport, Timed
    from pulse.timing.cron import Occurrence

STYLES = {"ACTIVE": "green", "COMPLETED": "dim", "BROKEN": "red", "DISABLED": "dim"}
FIRE_STYLES = {"FIRED": "green", "COALESCED": "yellow", "SKIPPED": "yellow", "BUFFERED": "cyan"} | JOB_STYLES
OF_JOB = ("task", "topic", "payload", "priority", "max_attempts", "retry", "timeout", "result_ttl", "tags")
TIMED = ("kind", "cron", "every", "anchor", "run_at", "tz", "starts_at", "ends_at")
POLICY = ("max_occurrences", "jitter", "catch_up", "replay_limit", "overlap")
STANDING = ("next_run_at", "buffered_for", "last_run_at", "fired", "paused_at", "pause_reason", "error")
ENDING = ("created_at", "updated_at")
LIST_COLUMNS = (
    Column("NAME", rank=1, min_width=16),
    Column("STATUS"),
    Column("NEXT"),
    Column("LAST"),
    Column("WHEN", rank=2, min_width=24),
)


# --- words


def describe_timing(schedule: Schedule) -> str:
    """Describe when a schedule runs, with times as people are shown them."""
    return f"once, at {local_time(schedule.timed.run_at)}" if schedule.timed.run_at else explain(schedule)


def explain(schedule: Schedule) -> str:
    try:
        return schedule.timed.explain()
    except ValueError:  # the schedule is broken, and its error says why
        return f"cron {schedule.timed.cron!r}, {schedule.timed.tz}"


def display_zone(timed: Timed) -> tzinfo | None:
    """Return the time zone in which occurrences are shown, or None for that of this machine."""
    from pulse.timing.zones import load_zone

    if timed.kind != "cron" and timed.tz == "UTC":  # the default: no time zone was chosen
        return None
    try:
        return load_zone(timed.tz)
    except (ValueError, OSError):  # this machine does not know the time zone
        return UTC


def _in_zone(schedule: Schedule) -> str:
    tz = display_zone(schedule.timed)
    return f", local time (now {offset(datetime.now().astimezone())})" if tz is None else f", {tz}"


def _is_due(schedule: Schedule) -> bool:
    return schedule.next_run_at is not None and schedule.next_run_at <= datetime.now(UTC)


def _clock(instants: Sequence[datetime]) -> str:
    """Return the format for times, with seconds if any of them has some."""
    return "%H:%M:%S" if any(instant.second for instant in instants) else "%H:%M"


# --- JSON


def as_json(schedule: Schedule) -> dict[str, Any]:
    """Return one flat object. Fields that can be changed are named as in the model, and the payload is plain JSON."""
    return {
        **{name: getattr(schedule, name) for name in ("id", "name", "status", "app")},
        "explained": explain(schedule),
        **{name: getattr(schedule.timed, name) for name in TIMED},
        **{name: getattr(schedule, name) for name in POLICY},
        **_job_as_json(schedule.job),
        **{name: getattr(schedule, name) for name in (*STANDING, *ENDING)},
    }


def _job_as_json(job: NewJob) -> dict[str, Any]:
    import msgspec

    fields = {name: getattr(job, name) for name in OF_JOB}
    return fields | {"topic": job.routed_topic, "payload": msgspec.Raw(job.payload.encode())}


def occurrence_as_json(occurrence: Occurrence) -> dict[str, Any]:
    return {"at": occurrence.at, "local": occurrence.local, "note": occurrence.note}


def fire_as_json(fire: Fire) -> dict[str, Any]:
    return {name: getattr(fire, name) for name in (*fire.__struct_fields__, "late")}


# --- a list


def show_list(page: SchedulePage) -> None:
    if page.schedules:
        show_table(LIST_COLUMNS, [_row(schedule) for schedule in page.schedules])
    else:
        print_text("No schedules match.")
    print_next_page(page.next)


def _row(schedule: Schedule) -> list[Cell]:
    last = age(schedule.last_run_at) if schedule.last_run_at else Styled("-", "dim")
    return [schedule.name, _short_status(schedule), _next(schedule), last, describe_timing(schedule)]


def _short_status(schedule: Schedule) -> Cell:
    """Return the pause if that keeps the schedule from firing, or else its status."""
    if schedule.paused_at is not None and schedule.status == "ACTIVE":
        return Styled("paused", "yellow")
    return Styled(schedule.status, STYLES[schedule.status])


def _next(schedule: Schedule) -> Cell:
    if schedule.next_run_at is None or schedule.paused_at is not None:
        return Styled("-", "dim")
    if _is_due(schedule):
        return Styled(f"due {age(schedule.next_run_at)}", "yellow")
    return age(schedule.next_run_at)


# --- a page of its own


def show_schedule(schedule: Schedule, upcoming: Sequence[Occurrence], fires: Sequence[Fire]) -> None:
    show_fields(_fields(schedule))
    if upcoming:
        print_text(f"\nNext{_but_paused(schedule)}{_in_zone(schedule)}:")
        show_occurrences(upcoming, display_zone(schedule.timed))
    if fires:
        print_text(f"\nLast{_in_zone(schedule)}:")
        show_fires(fires, display_zone(schedule.timed))


def _fields(schedule: Schedule) -> list[tuple[str, Cell]]:
    own = {"cron": ("cron",), "interval": ("every", "anchor"), "once": ("run_at",)}[schedule.timed.kind]
    job = {name: getattr(schedule.job, name) for name in OF_JOB} | {
        "topic": schedule.job.routed_topic,
        "retry": _retry(schedule.job),
        "tags": ", ".join(schedule.job.tags) or None,
    }
    standing: dict[str, Any] = {name: getattr(schedule, name) for name in STANDING}
    standing["pause_reason"] = standing["pause_reason"] or None
    values: dict[str, Any] = {
        "name": schedule.name,
        "id": schedule.id,
        "status": _status(schedule),
        "owner": f"the code of {schedule.app}" if schedule.app else "created by hand, not in code",
        "means": describe_timing(schedule),
        **{name: getattr(schedule.timed, name) for name in (*own, "tz", "starts_at", "ends_at")},
        **{name: getattr(schedule, name) for name in POLICY},
        **job,
        **standing,
        **{name: getattr(schedule, name) for name in ENDING},
    }
    return [(name, _cell(name, value)) for name, value in values.items()]


def _cell(name: str, value: Any) -> Cell:  # noqa: ANN401
    if isinstance(value, Styled):
        return value
    if name == "error" and value:
        return Styled(value, "red")
    return field_value(name, value)


def _status(schedule: Schedule) -> Cell:
    if schedule.paused_at is not None:
        return Styled(f"{schedule.status}, paused", "yellow" if schedule.status == "ACTIVE" else "red")
    return Styled(schedule.status, STYLES[schedule.status])


def _retry(job: NewJob) -> str | None:
    import msgspec

    return msgspec.json.encode(job.retry).decode() if job.retry is not None else None


# --- occurrences to come


def show_meaning(schedule: Schedule, upcoming: Sequence[Occurrence], what: str) -> None:
    """Print when a schedule runs that was just created or changed."""
    print_text(f"{what}: {describe_timing(schedule)}.")
    if upcoming:
        print_text(f"Next{_but_paused(schedule)}:")
        show_occurrences(upcoming, display_zone(schedule.timed))
    else:
        print_text(f"It has no more occurrences, because it is {schedule.status}.")


def _but_paused(schedule: Schedule) -> str:
    return ", but it is paused" if schedule.paused_at is not None else ""


def show_occurrences(occurrences: Sequence[Occurrence], tz: tzinfo | None) -> None:
    columns = [Column("DATE"), Column("TIME"), Column("OFFSET"), Column("WHEN")]
    local = [each.at.astimezone(tz) for each in occurrences]
    clock = _clock(local)
    rows: list[list[Cell]] = [[f"{each:%a %Y-%m-%d}", f"{each:{clock}}", offset(each), age(each)] for each in local]
    if any(each.note for each in occurrences):
        columns.append(Column("NOTE", rank=1, min_width=24, folds=True))
        for row, each in zip(rows, occurrences, strict=True):
            row.append(Styled(each.note or "", "yellow"))
    show_table(columns, rows)


def offset(local: datetime) -> str:
    return f"{local:%z}"[:3] + ":" + f"{local:%z}"[3:5]


# --- past occurrences


def show_fire_page(page: FirePage, schedule: Schedule | None, name: str) -> None:
    if schedule is None:
        print_text(f"Occurrences of {name}, which was deleted, UTC:")
        show_fires(page.fires, UTC)
    elif page.fires:
        print_text(f"Occurrences of {schedule.name}{_in_zone(schedule)}:")
        show_fires(page.fires, display_zone(schedule.timed))
    else:
        print_text(f"{schedule.name} has not had an occurrence yet.")
    print_next_page(page.next)


def show_fires(fires: Sequence[Fire], tz: tzinfo | None) -> None:
    # A job's id has 36 characters, so eighty columns have no room for another column.
    columns = [
        Column("OCCURRENCE"),
        Column("LATE"),
        Column("OUTCOME", rank=1, min_width=11),
        Column("JOB, OR WHY NONE", rank=2, min_width=36),
    ]
    clock = _clock([fire.occurrence for fire in fires])
    rows: list[list[Cell]] = [
        [f"{fire.occurrence.astimezone(tz):%Y-%m-%d {clock}}", _late(fire), _outcome(fire), _detail(fire, tz)]
        for fire in fires
    ]
    show_table(columns, rows)


def _late(fire: Fire) -> Cell:
    """Return how late the occurrence fired, or what fired it if it was not the timetable."""
    return Styled(fire.cause, "cyan") if fire.cause != "timetable" else rough_length(fire.late) or "on time"


def _outcome(fire: Fire) -> Cell:
    """Return the status of its job, if it made one that still exists, or else the outcome."""
    outcome = fire.job_status or fire.outcome
    return Styled(outcome, FIRE_STYLES[outcome])


def _detail(fire: Fire, tz: tzinfo | None) -> str:
    if fire.job_id is not None:
        return str(fire.job_id)
    reason = fire.reason or ""
    if fire.occurrences == 1:
        return reason
    first, last = fire.occurrence.astimezone(tz), fire.newest.astimezone(tz)
    clock = _clock([first, last])
    stretch = f"{first:{clock}} … {last:{clock}}" if first.date() == last.date() else f"until {last:%Y-%m-%d {clock}}"
    return f"{fire.occurrences:,} missed, {stretch}{reason.removeprefix('missed')}"


def show_backfill(done: Backfill, schedule: Schedule) -> None:
    if not done.occurrences:
        print_text(f"Nothing to do: all occurrences of {schedule.name} in that time have made their jobs.")
        return
    tz = display_zone(schedule.timed)
    clock = _clock(done.occurrences)
    local = [each.astimezone(tz) for each in done.occurrences]
    shown = [f"{each:%a %Y-%m-%d {clock}} {offset(each)}" for each in local]
    if done.dry_run:
        show_table([Column("OCCURRENCE")], [[each] for each in shown])
        print_text(f"{plural(len(shown), 'job')} would be made without --dry-run.")
        return
    rows = [[each, str(job_id)] for each, job_id in zip(shown, done.job_ids, strict=True)]
    show_table([Column("OCCURRENCE"), Column("JOB")], rows)
    print_text(f"{plural(len(rows), 'job')} made.")


# --- a sync


def show_report(report: SyncReport, app: str) -> None:
    styles = {"created": "green", "changed": "cyan", "enabled": "green", "disabled": "yellow", "deleted": "red"}
    lines: list[tuple[str, Cell]] = [("renamed", f"{old} to {new}") for old, new in report.renamed]
    lines += [(verb, Styled(name, style)) for verb, style in styles.items() for name in getattr(report, verb)]
    if lines:
        show_fields(lines)
    unchanged = plural(len(report.unchanged), "schedule")
    if not lines and not report.unchanged:
        print_text(f"{app} declares no schedules, and none of its schedules are in the database.")
    elif not lines:
        print_text(f"Nothing to do: {unchanged} of {app}, as declared.")
    elif report.unchanged:
        print_text(f"{unchanged} unchanged.")
    if report.dry_run and lines:
        print_text("Nothing was changed, because of --dry-run.")
