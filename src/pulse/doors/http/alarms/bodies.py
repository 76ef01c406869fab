"""How are alarms written as JSON, to us and by us?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, WithJsonSchema

from pulse.doors.http.field_types import AnyJson, Body, Number, ResponseBody, Seconds, embed, encode_payload, fields_of
from pulse.doors.http.jobs.bodies import Name
from pulse.model import alarms as model
from pulse.model.alarms import AlarmStatus, DeliveryOutcome
from pulse.model.errors import InvalidAlarm
from pulse.model.jobs import LONGEST
from pulse.model.network.targets import HEADERS_LIMIT

Kind = Literal["once", "cron"]
# Read by us, for the words that everybody gets who writes it wrongly.
Instant = Annotated[
    str, WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2030-01-31T09:00:00Z"]})
]


class NewAlarm(Body):
    """An alarm as it is set: at one of `delay_seconds`, `fire_at` and `cron_expr`."""

    kind: Kind | None = Field(None, description="If it is given, it must be what the times say.")
    delay_seconds: Number | None = Field(None, ge=0, le=LONGEST.total_seconds(), description="0: not given.")
    fire_at: Instant | None = None
    cron_expr: str | None = Field(None, examples=["0 9 * * 1-5"])
    tz: str = Field("UTC", description="Of the expression; empty is UTC.", examples=["Europe/Berlin"])
    owner: Name | None = Field(None, description="Whose it is; null: the caller's own.")
    name: Name | None = Field(None, description="Set again under the same name, it replaces the one before.")
    label: str = Field("", max_length=model.LABEL_LIMIT)
    payload: AnyJson = None
    url: str | None = Field(None, description="null: the default target.", examples=["https://example.com/hook"])
    headers: dict[str, str] = Field(default={}, max_length=HEADERS_LIMIT, description="Sent with each wake.")
    max_failures: int | None = Field(None, ge=0, le=model.MAX_FAILURES, description="Retries before it is given up.")

    def read(self, owner: str, key: str | None) -> model.NewAlarm:
        new = model.NewAlarm(
            owner=owner,
            name=self.name,
            label=self.label,
            payload=encode_payload(self.payload),
            url=self.url,
            headers=self.headers,
            delay=None if self.delay_seconds is None else timedelta(seconds=self.delay_seconds),
            fire_at=None if self.fire_at is None else model.read_fire_at(self.fire_at),
            cron=self.cron_expr,
            tz=self.tz,
            max_failures=self.max_failures,
            idempotency_key=key,
        )
        if self.kind not in (None, new.kind):
            raise InvalidAlarm(f"kind {self.kind!r} does not go with these times: they make a {new.kind} alarm")
        return new


# --- what we send


class Alarm(ResponseBody):
    """An alarm as it stands."""

    id: UUID
    owner: str
    name: str | None
    label: str
    status: AlarmStatus
    kind: Kind
    cron_expr: str | None
    tz: str
    payload: AnyJson
    url: str | None = Field(description="null: the default target.")
    headers: dict[str, str] = Field(description="Their names; what they say is shown to nobody.")
    max_failures: int
    idempotency_key: str | None
    revision: int = Field(description="How often it was set under its name.")
    occurrence: datetime = Field(description="The instant that its next or last wake is for.")
    next_fire_at: datetime | None = Field(description="The next attempt; null: there is none.")
    last_fired_at: datetime | None
    failure_count: int = Field(description="Failures in a row.")
    last_error: str | None
    paused_at: datetime | None
    is_ringing: bool = Field(description="A delivery is under way.")
    created_at: datetime
    updated_at: datetime


class AlarmPage(ResponseBody):
    alarms: list[Alarm] = Field(description="Newest first.")
    next: str | None = Field(description="Give it as `after` for the following page; null: this was the last.")


class Delivery(ResponseBody):
    """One attempt to wake the URL."""

    occurrence: datetime
    attempt: int
    outcome: DeliveryOutcome
    started_at: datetime
    duration: Seconds
    status: int | None = Field(description="Of HTTP; null: there was no answer.")
    error: str | None
    answer: str = Field(description="Its first KiB.")
    note: str | None = Field(description="What became of other occurrences.")


class DeliveryPage(ResponseBody):
    deliveries: list[Delivery] = Field(description="Newest first.")
    next: str | None


class WakeSecret(ResponseBody):
    """A secret that the wakes of one owner are signed with."""

    secret: str
    created_at: datetime
    expires_at: datetime | None = Field(description="null: it signs from now on.")


class WakeSecrets(ResponseBody):
    secrets: list[WakeSecret] = Field(description="Newest first.")


def write_alarm(alarm: model.Alarm) -> dict[str, Any]:
    own = {"cron_expr": alarm.cron, "tz": alarm.tz, "payload": embed(alarm.payload)}
    return fields_of(Alarm.model_fields, alarm, **own)
