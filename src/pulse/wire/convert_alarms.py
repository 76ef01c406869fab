"""How do alarms become messages of the wire, and messages become alarms? `convert.py` does the same for jobs.

The model's constructors check an alarm that a client sets. An alarm that a server sends is not checked: the time zone
of its timetable may be unknown on this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar
from uuid import UUID

from pulse.model.alarms import (
    DEFAULT_OWNER,
    Alarm,
    AlarmFilter,
    AlarmStatus,
    Delivery,
    DeliveryOutcome,
    NewAlarm,
    WakeSecret,
)
from pulse.model.errors import InvalidOption
from pulse.wire.convert import (
    EPOCH,
    read_instant,
    read_length,
    read_text,
    write_instant,
    write_length,
)
from pulse.wire.v1 import pulse_pb2 as pb

E = TypeVar("E", bound=StrEnum)

STATUSES: dict[AlarmStatus, Any] = {each: pb.AlarmStatus.Value(f"ALARM_{each.name}") for each in AlarmStatus}
OUTCOMES: dict[DeliveryOutcome, Any] = {
    each: pb.DeliveryOutcome.Value(f"DELIVERY_{each.name}") for each in DeliveryOutcome
}


def _read_enum(known: dict[E, Any], field: str, number: int) -> E:
    for member, value in known.items():
        if value == number:
            return member
    raise InvalidOption(field, number, "be a known value")


# --- alarms as they are set


def write_new_alarm(new: NewAlarm, own_id: UUID | None = None) -> pb.SetAlarmRequest:
    """Write a new alarm. The default owner is left out, so that a server with tokens takes the token's owner."""
    return pb.SetAlarmRequest(
        owner="" if new.owner == DEFAULT_OWNER else new.owner,
        name=new.name or "",
        label=new.label,
        payload=new.payload,
        url=new.url or "",
        headers=new.headers,
        delay_seconds=new.delay.total_seconds() if new.delay else 0.0,
        fire_at=write_instant(new.fire_at),
        cron_expr=new.cron or "",
        tz=new.tz,
        max_failures=new.max_failures,
        idempotency_key=new.idempotency_key or "",
        id=str(own_id) if own_id else "",
    )


def read_new_alarm(message: pb.SetAlarmRequest, owner: str) -> NewAlarm:
    return NewAlarm(
        owner=owner,
        name=message.name or None,
        label=message.label,
        payload=message.payload or "null",
        url=message.url or None,
        headers=dict(message.headers),
        delay=_read_seconds("delay_seconds", message.delay_seconds),
        fire_at=read_instant(message, "fire_at"),
        cron=message.cron_expr or None,
        tz=message.tz or "UTC",
        max_failures=message.max_failures if message.HasField("max_failures") else None,
        idempotency_key=message.idempotency_key or None,
    )


def _read_seconds(field: str, seconds: float) -> timedelta | None:
    try:
        return timedelta(seconds=seconds) if seconds else None
    except (OverflowError, ValueError):
        raise InvalidOption(field, seconds, "be a number of seconds, at most ten years") from None


# --- alarms as they are stored


def write_alarm(alarm: Alarm) -> pb.Alarm:
    return pb.Alarm(
        id=str(alarm.id),
        owner=alarm.owner,
        name=alarm.name,
        label=alarm.label,
        status=STATUSES[alarm.status],
        kind=alarm.kind,
        cron_expr=alarm.cron,
        tz=alarm.tz,
        payload=alarm.payload,
        url=alarm.url,
        headers=alarm.headers,
        max_failures=alarm.max_failures,
        idempotency_key=alarm.idempotency_key,
        revision=alarm.revision,
        occurrence=write_instant(alarm.occurrence),
        next_fire_at=write_instant(alarm.next_fire_at),
        last_fired_at=write_instant(alarm.last_fired_at),
        failure_count=alarm.failure_count,
        last_error=alarm.last_error,
        paused_at=write_instant(alarm.paused_at),
        is_ringing=alarm.is_ringing,
        created_at=write_instant(alarm.created_at),
        updated_at=write_instant(alarm.updated_at),
    )


def read_alarm(message: pb.Alarm) -> Alarm:
    return Alarm(
        id=UUID(message.id),
        owner=message.owner,
        name=read_text(message, "name"),
        label=message.label,
        status=_read_enum(STATUSES, "status", message.status),
        kind=message.kind,
        cron=read_text(message, "cron_expr"),
        tz=message.tz,
        payload=message.payload,
        url=read_text(message, "url"),
        headers=dict(message.headers),
        max_failures=message.max_failures,
        idempotency_key=read_text(message, "idempotency_key"),
        revision=message.revision,
        occurrence=read_instant(message, "occurrence") or EPOCH,
        next_fire_at=read_instant(message, "next_fire_at"),
        last_fired_at=read_instant(message, "last_fired_at"),
        failure_count=message.failure_count,
        last_error=read_text(message, "last_error"),
        paused_at=read_instant(message, "paused_at"),
        is_ringing=message.is_ringing,
        created_at=read_instant(message, "created_at") or EPOCH,
        updated_at=read_instant(message, "updated_at") or EPOCH,
    )


def write_alarm_filter(wanted: AlarmFilter) -> pb.AlarmFilter:
    paused: dict[str, Any] = {} if wanted.paused is None else {"paused": wanted.paused}
    return pb.AlarmFilter(
        owner=wanted.owner or "",
        status=STATUSES[wanted.status] if wanted.status else None,
        **paused,
        label=wanted.label,
    )


def read_alarm_filter(message: pb.AlarmFilter) -> AlarmFilter:
    return AlarmFilter(
        owner=message.owner or None,
        status=_read_enum(STATUSES, "status", message.status) if message.status else None,
        paused=message.paused if message.HasField("paused") else None,
        label=read_text(message, "label"),
    )


# --- deliveries


def write_delivery(delivery: Delivery) -> pb.Delivery:
    return pb.Delivery(
        occurrence=write_instant(delivery.occurrence),
        attempt=delivery.attempt,
        outcome=OUTCOMES[delivery.outcome],
        started_at=write_instant(delivery.started_at),
        duration=write_length(delivery.duration),
        status=delivery.status,
        error=delivery.error,
        answer=delivery.answer,
        note=delivery.note,
    )


def read_delivery(message: pb.Delivery) -> Delivery:
    return Delivery(
        occurrence=read_instant(message, "occurrence") or EPOCH,
        attempt=message.attempt,
        outcome=_read_enum(OUTCOMES, "outcome", message.outcome),
        started_at=read_instant(message, "started_at") or EPOCH,
        duration=read_length(message, "duration") or timedelta(),
        status=message.status if message.HasField("status") else None,
        error=read_text(message, "error"),
        answer=message.answer,
        note=read_text(message, "note"),
    )


# --- wake secrets


def write_secrets(secrets: Sequence[WakeSecret]) -> pb.WakeSecrets:
    return pb.WakeSecrets(secrets=[_write_secret(each) for each in secrets])


def _write_secret(secret: WakeSecret) -> pb.WakeSecret:
    return pb.WakeSecret(
        secret=secret.secret,
        created_at=write_instant(secret.created_at),
        expires_at=write_instant(secret.expires_at),
    )


def read_secrets(message: pb.WakeSecrets) -> list[WakeSecret]:
    return [
        WakeSecret(
            secret=each.secret,
            created_at=read_instant(each, "created_at") or EPOCH,
            expires_at=read_instant(each, "expires_at"),
        )
        for each in message.secrets
    ]
