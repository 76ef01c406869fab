"""How are alarms and their deliveries shown in lists, on pages of their own, and as JSON?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pulse.cli.jobs.views import field_value
from pulse.cli.output import (
    Cell,
    Column,
    Styled,
    age,
    local_time,
    print_next_page,
    print_text,
    show_fields,
    show_table,
    time_and_age,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulse.model.alarms import Alarm, AlarmPage, Delivery, DeliveryPage, WakeSecret

STYLES = {"active": "green", "fired": "dim", "failed": "red", "cancelled": "dim"}
OUTCOME_STYLES = {"delivered": "green", "failed": "yellow", "given_up": "red", "late": "dim"}
ID_WIDTH = 36
LIST_COLUMNS = (
    Column("ID", rank=6, min_width=ID_WIDTH),  # left out first, because owner and name identify an alarm as well
    Column("STATUS"),
    Column("NEXT", rank=4, min_width=16),
    Column("NAME", rank=1, min_width=10),
    Column("OWNER", rank=2),
    Column("LABEL", rank=5),
    Column("WHEN", rank=3, min_width=16),
)
DELIVERY_COLUMNS = (
    Column("STARTED"),
    Column("TRY", is_number=True),
    Column("OUTCOME"),
    Column("HTTP"),
    Column("TOOK", is_number=True),
    Column("OCCURRENCE", rank=2),
    Column("ERROR, OR WHAT ELSE HAPPENED", rank=1, min_width=20, folds=True),
)
FIELDS = (
    *("id", "owner", "name", "label", "status", "kind", "cron", "tz", "payload", "url", "headers", "max_failures"),
    *("idempotency_key", "revision", "occurrence", "next_fire_at", "last_fired_at", "failure_count", "last_error"),
    *("paused_at", "is_ringing", "created_at", "updated_at"),
)


# --- JSON


def as_json(alarm: Alarm) -> dict[str, Any]:
    """Return one flat object with the field names of the HTTP API. The payload is plain JSON."""
    import msgspec

    fields = {JSON_NAMES.get(name, name): getattr(alarm, name) for name in FIELDS}
    return fields | {"payload": msgspec.Raw(alarm.payload.encode())}


JSON_NAMES = {"cron": "cron_expr"}


def delivery_as_json(delivery: Delivery) -> dict[str, Any]:
    return {name: getattr(delivery, name) for name in delivery.__struct_fields__}


def secret_as_json(secret: WakeSecret) -> dict[str, Any]:
    return {name: getattr(secret, name) for name in secret.__struct_fields__}


# --- words


def name_or_id(alarm: Alarm) -> str:
    return alarm.name or str(alarm.id)


def describe_timing(alarm: Alarm) -> str:
    """Describe when an alarm fires."""
    from pulse.timing.cron import Cron

    if alarm.cron is None:
        return f"once, at {local_time(alarm.occurrence)}"
    try:
        return Cron.parse(alarm.cron, alarm.tz).explain()
    except ValueError:  # its time zone may no longer exist, which its error says
        return f"cron {alarm.cron!r}, {alarm.tz}"


def describe_next(alarm: Alarm) -> str:
    """Describe when the alarm fires next, as the end of a sentence."""
    if alarm.next_fire_at is None:
        return f"it is {alarm.status}"
    if alarm.paused_at is not None:
        return "it is paused"
    return "due now" if alarm.next_fire_at <= datetime.now(UTC) else f"next {age(alarm.next_fire_at)}"


# --- a list


def show_list(page: AlarmPage) -> None:
    if page.alarms:
        columns, rows = _list_columns(page.alarms), [_row(alarm) for alarm in page.alarms]
        show_table(columns, [[row[column.title] for column in columns] for row in rows])
    else:
        print_text("No alarms match.")
    print_next_page(page.next)


def _list_columns(alarms: Sequence[Alarm]) -> list[Column]:
    """Return the columns of a list. An alarm without a name is shown with its id instead, which is not cut."""
    hidden = set() if any(alarm.label for alarm in alarms) else {"LABEL"}
    whole = set() if all(alarm.name for alarm in alarms) else {"NAME"}
    return [
        column._replace(min_width=ID_WIDTH) if column.title in whole else column
        for column in LIST_COLUMNS
        if column.title not in hidden
    ]


def _row(alarm: Alarm) -> dict[str, Cell]:
    return {
        "ID": str(alarm.id),
        "STATUS": _status(alarm),
        "NEXT": _next(alarm),
        "NAME": alarm.name or Styled(str(alarm.id), "dim"),
        "OWNER": alarm.owner,
        "LABEL": alarm.label,
        "WHEN": local_time(alarm.occurrence) if alarm.cron is None else describe_timing(alarm),
    }


def _status(alarm: Alarm) -> Cell:
    """Return the status, or instead its pause, its current delivery or its failures, if there are any."""
    if alarm.status == "active" and alarm.paused_at is not None:
        return Styled("paused", "yellow")
    if alarm.status == "active" and alarm.is_ringing:
        return Styled("ringing", "cyan")
    if alarm.status == "active" and alarm.failure_count:
        return Styled(f"retrying ({alarm.failure_count} of {alarm.max_failures})", "yellow")
    return Styled(alarm.status, STYLES[alarm.status])


def _next(alarm: Alarm) -> Cell:
    if alarm.next_fire_at is None or alarm.paused_at is not None:
        return Styled("-", "dim")
    if alarm.next_fire_at <= datetime.now(UTC):
        return Styled(f"due {age(alarm.next_fire_at)}", "yellow")
    return age(alarm.next_fire_at)


# --- a page of its own


def show_alarm(alarm: Alarm, deliveries: Sequence[Delivery]) -> None:
    values: dict[str, Any] = {name: getattr(alarm, name) for name in FIELDS if name not in _own_kind(alarm)}
    values |= {"status": _status(alarm), "means": describe_timing(alarm), "url": alarm.url or "the default target"}
    values["headers"] = ", ".join(f"{name}: {value}" for name, value in alarm.headers.items()) or None
    values["label"] = alarm.label or None
    values["is_ringing"] = "yes" if alarm.is_ringing else "no"
    show_fields([(name, _cell(name, value)) for name, value in values.items()])
    if deliveries:
        print_text("\nLast deliveries:")
        show_deliveries(deliveries)


def _own_kind(alarm: Alarm) -> tuple[str, ...]:
    return ("cron", "tz") if alarm.cron is None else ()


def _cell(name: str, value: Any) -> Cell:  # noqa: ANN401
    if isinstance(value, Styled):
        return value
    if name == "last_error" and value:
        return Styled(value, "red")
    return field_value(name, value)


# --- deliveries


def show_delivery_page(page: DeliveryPage, alarm: Alarm) -> None:
    if page.deliveries:
        show_deliveries(page.deliveries)
    else:
        print_text(f"There has been no attempt to deliver {name_or_id(alarm)} yet.")
    print_next_page(page.next)


def show_deliveries(deliveries: Sequence[Delivery]) -> None:
    show_table(DELIVERY_COLUMNS, [_delivery_row(delivery) for delivery in deliveries])


def _delivery_row(delivery: Delivery) -> list[Cell]:
    remarks = "; ".join(each for each in (delivery.error, delivery.note) if each)
    return [
        local_time(delivery.started_at),
        str(delivery.attempt),
        Styled(delivery.outcome, OUTCOME_STYLES[delivery.outcome]),
        str(delivery.status or "-"),
        f"{delivery.duration.total_seconds() * 1_000:,.0f} ms",
        local_time(delivery.occurrence),
        remarks,
    ]


# --- secrets


def show_secrets(secrets: Sequence[WakeSecret]) -> None:
    columns = (Column("SECRET"), Column("SIGNS"), Column("SINCE", rank=1))
    rows: list[list[Cell]] = [
        [
            each.secret,
            "from now on" if each.expires_at is None else f"until {time_and_age(each.expires_at)}",
            time_and_age(each.created_at),
        ]
        for each in secrets
    ]
    show_table(columns, rows)
