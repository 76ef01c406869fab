"""How does a schedule look: in a list, on a page of its own, as JSON? And its occurrences, to come and past?

Occurrences of a cron line are told in its zone, because that is where "at nine" is meant; the rest in local time.
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
    rough,
    say,
    say_more,
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
    Column("NAME", rank=1, least=16),
    Column("STATUS"),
    Column("NEXT"),
    Column("LAST"),
    Column("WHEN", rank=2, least=24),
)


# --- words


def words(schedule: Schedule) -> str:
    """What it means, with its times as people are shown them."""
    return f"once, at {local_time(schedule.timed.run_at)}" if schedule.timed.run_at else explain(schedule)


def explain(schedule: Schedule) -> str:
    try:
        return schedule.timed.explain()
    except ValueError:  # it is broken, and its error says why
        return f"cron {schedule.timed.cron!r}, {schedule.timed.tz}"


def told_in(timed: Timed) -> tzinfo | None:
    """The zone in which its occurrences are told; none: that of this machine."""
    from pulse.timing.zones import load_zone

    if timed.kind != "cron" and timed.tz == "UTC":  # nobody said so
        return None
    try:
        return load_zone(timed.tz)
    except (ValueError, OSError):  # one that this machine does not know
        return UTC


def _in_zone(schedule: Schedule) -> str:
    tz = told_in(schedule.timed)
    return f", local time (now {offset(datetime.now().astimezone())})" if tz is None else f", {tz}"


def _is_due(schedule: Schedule) -> bool:
    return schedule.next_run_at is not None and schedule.next_run_at <= datetime.now(UTC)


def _clock(instants: Sequence[datetime]) -> str:
    """The format for their times: seconds where there are any."""
    return "%H:%M:%S" if any(instant.second for instant in instants) else "%H:%M"


# --- JSON


def as_json(schedule: Schedule) -> dict[str, Any]:
    """One flat object. What can be changed is called as it is in the model, and the arguments are JSON as they are."""
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
        say("No schedules match.")
    say_more(page.next)


def _row(schedule: Schedule) -> list[Cell]:
    last = age(schedule.last_run_at) if schedule.last_run_at else Styled("-", "dim")
    return [schedule.name, _short_status(schedule), _next(schedule), last, words(schedule)]


def _short_status(schedule: Schedule) -> Cell:
    """What keeps it from firing, if anything does."""
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
        say(f"\nNext{_but_paused(schedule)}{_in_zone(schedule)}:")
        show_occurrences(upcoming, told_in(schedule.timed))
    if fires:
        say(f"\nLast{_in_zone(schedule)}:")
        show_fires(fires, told_in(schedule.timed))


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
        "owner": f"the code of {schedule.app}" if schedule.app else "made here, not in code",
        "means": words(schedule),
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
    """What a schedule that was just written means."""
    say(f"{what}: {words(schedule)}.")
    if upcoming:
        say(f"Next{_but_paused(schedule)}:")
        show_occurrences(upcoming, told_in(schedule.timed))
    else:
        say(f"Nothing is to come, because it is {schedule.status}.")


def _but_paused(schedule: Schedule) -> str:
    return ", but it is paused" if schedule.paused_at is not None else ""


def show_occurrences(occurrences: Sequence[Occurrence], tz: tzinfo | None) -> None:
    columns = [Column("DATE"), Column("TIME"), Column("OFFSET"), Column("WHEN")]
    local = [each.at.astimezone(tz) for each in occurrences]
    clock = _clock(local)
    rows: list[list[Cell]] = [[f"{each:%a %Y-%m-%d}", f"{each:{clock}}", offset(each), age(each)] for each in local]
    if any(each.note for each in occurrences):
        columns.append(Column("NOTE", rank=1, least=24, folds=True))
        for row, each in zip(rows, occurrences, strict=True):
            row.append(Styled(each.note or "", "yellow"))
    show_table(columns, rows)


def offset(local: datetime) -> str:
    return f"{local:%z}"[:3] + ":" + f"{local:%z}"[3:5]


# --- what became of occurrences


def show_fire_page(page: FirePage, schedule: Schedule | None, name: str) -> None:
    if schedule is None:
        say(f"Occurrences of {name}, which was deleted, UTC:")
        show_fires(page.fires, UTC)
    elif page.fires:
        say(f"Occurrences of {schedule.name}{_in_zone(schedule)}:")
        show_fires(page.fires, told_in(schedule.timed))
    else:
        say(f"{schedule.name} has not had an occurrence yet.")
    say_more(page.next)


def show_fires(fires: Sequence[Fire], tz: tzinfo | None) -> None:
    # A job's id has 36 characters. On eighty columns there is room for one beside the rest, and for no other column.
    columns = [
        Column("OCCURRENCE"),
        Column("LATE"),
        Column("OUTCOME", rank=1, least=11),
        Column("JOB, OR WHY NONE", rank=2, least=36),
    ]
    clock = _clock([fire.occurrence for fire in fires])
    rows: list[list[Cell]] = [
        [f"{fire.occurrence.astimezone(tz):%Y-%m-%d {clock}}", _late(fire), _outcome(fire), _detail(fire, tz)]
        for fire in fires
    ]
    show_table(columns, rows)


def _late(fire: Fire) -> Cell:
    """How late, of what its timetable fired; else what did."""
    return Styled(fire.cause, "cyan") if fire.cause != "timetable" else rough(fire.late) or "on time"


def _outcome(fire: Fire) -> Cell:
    """That of the job, if it made one that is still there."""
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
        say(f"Nothing to make up for: no occurrence of {schedule.name} in that stretch is without its job.")
        return
    tz = told_in(schedule.timed)
    clock = _clock(done.occurrences)
    local = [each.astimezone(tz) for each in done.occurrences]
    shown = [f"{each:%a %Y-%m-%d {clock}} {offset(each)}" for each in local]
    if done.dry_run:
        show_table([Column("OCCURRENCE")], [[each] for each in shown])
        say(f"{plural(len(shown), 'job')} would be made; without --dry-run, they are.")
        return
    rows = [[each, str(job_id)] for each, job_id in zip(shown, done.job_ids, strict=True)]
    show_table([Column("OCCURRENCE"), Column("JOB")], rows)
    say(f"{plural(len(rows), 'job')} made.")


# --- a sync


def show_report(report: SyncReport, app: str) -> None:
    styles = {"created": "green", "changed": "cyan", "enabled": "green", "disabled": "yellow", "deleted": "red"}
    lines: list[tuple[str, Cell]] = [("renamed", f"{old} to {new}") for old, new in report.renamed]
    lines += [(verb, Styled(name, style)) for verb, style in styles.items() for name in getattr(report, verb)]
    if lines:
        show_fields(lines)
    unchanged = plural(len(report.unchanged), "schedule")
    if not lines and not report.unchanged:
        say(f"{app} declares no schedules, and there are none of its.")
    elif not lines:
        say(f"Nothing to do: {unchanged} of {app}, as the code says.")
    elif report.unchanged:
        say(f"{unchanged} unchanged.")
    if report.dry_run and lines:
        say("Nothing was written, because of --dry-run.")
