"""How does a row become an alarm, and an alarm a row?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from pulse.model.alarms import Alarm, AlarmStatus, NewAlarm, shown_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg import Record


_HEADERS = msgspec.json.Decoder(dict[str, str])


def alarm_row(
    new: NewAlarm, own_id: UUID, *, occurrence: datetime, destination: str, max_failures: int
) -> dict[str, object]:
    """Return a new alarm as pulse.set_alarm takes it."""
    return {
        "id": own_id,
        "owner": new.owner,
        "name": new.name,
        "idempotency_key": new.idempotency_key,
        "fingerprint": "\\x" + new.fingerprint().hex(),
        "kind": new.kind,
        "cron": new.cron,
        "tz": new.tz,
        "label": new.label,
        "payload": msgspec.Raw(new.payload.encode()),
        "url": new.url,
        "destination": destination,
        "headers": dict(new.headers) or None,
        "max_failures": max_failures,
        "occurrence": occurrence,
    }


class _AlarmJson(msgspec.Struct, frozen=True):
    """A row of pulse.alarms as to_jsonb writes it."""

    id: UUID
    owner: str
    name: str | None
    label: str
    status: AlarmStatus
    kind: str
    cron: str | None
    tz: str
    payload: msgspec.Raw
    url: str | None
    headers: dict[str, str] | None
    max_failures: int
    idempotency_key: str | None
    revision: int
    occurrence: datetime
    next_fire_at: datetime | None
    last_fired_at: datetime | None
    failure_count: int
    last_error: str | None
    paused_at: datetime | None
    lease_until: datetime | None
    created_at: datetime
    updated_at: datetime
    fingerprint: str


_ALARM_JSON = msgspec.json.Decoder(_AlarmJson)


def read_written(text: str) -> tuple[Alarm, bytes]:
    """Return an alarm and its fingerprint from its row as JSON.

    Connections of the caller's own read rows as JSON, because nobody knows which types their driver returns.
    """
    written = _ALARM_JSON.decode(text)
    fields: dict[str, Any] = {name: _in_utc(getattr(written, name, None)) for name in Alarm.__struct_fields__}
    fields |= {
        "payload": bytes(written.payload).decode(),
        "headers": shown_headers(written.headers or {}),
        "is_ringing": written.lease_until is not None,
    }
    return Alarm(**fields), bytes.fromhex(written.fingerprint.removeprefix("\\x"))


def _in_utc(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def read_first(rows: Sequence[Record]) -> Alarm | None:
    return read_alarm(rows[0]) if rows else None


def read_alarm(row: Record) -> Alarm:
    return Alarm(
        id=row["id"],
        owner=row["owner"],
        name=row["name"],
        label=row["label"],
        status=AlarmStatus(row["status"]),
        kind=row["kind"],
        cron=row["cron"],
        tz=row["tz"],
        payload=row["payload"],
        url=row["url"],
        headers=shown_headers(read_headers(row)),
        max_failures=row["max_failures"],
        idempotency_key=row["idempotency_key"],
        revision=row["revision"],
        occurrence=row["occurrence"],
        next_fire_at=row["next_fire_at"],
        last_fired_at=row["last_fired_at"],
        failure_count=row["failure_count"],
        last_error=row["last_error"],
        paused_at=row["paused_at"],
        is_ringing=row["lease_until"] is not None,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def read_headers(row: Record) -> dict[str, str]:
    return _HEADERS.decode(row["headers"]) if row["headers"] else {}
