"""What does an alarm look like as JSON, in requests and in responses?"""

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
# A string, which the model reads: an invalid one gets the same error at every door.
Instant = Annotated[
    str, WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2030-01-31T09:00:00Z"]})
]


class NewAlarm(Body):
    """An alarm to set. It has exactly one of `delay_seconds`, `fire_at` and `cron_expr`."""

    kind: Kind | None = Field(None, description="May be left out. If given, it must match the times.")
    delay_seconds: Number | None = Field(
        None, ge=0, le=LONGEST.total_seconds(), description="Seconds from now; 0 counts as not given."
    )
    fire_at: Instant | None = None
    cron_expr: str | None = Field(None, examples=["0 9 * * 1-5"])
    tz: str = Field("UTC", description="Of `cron_expr`; empty is UTC.", examples=["Europe/Berlin"])
    owner: Name | None = Field(None, description="The owner of the alarm; null: the caller's own.")
    name: Name | None = Field(None, description="A new alarm replaces the owner's alarm of the same name.")
    label: str = Field("", max_length=model.LABEL_LIMIT)
    payload: AnyJson = None
    url: str | None = Field(
        None, description="Where to send wakes; null: the default target.", examples=["https://example.com/hook"]
    )
    headers: dict[str, str] = Field(default={}, max_length=HEADERS_LIMIT, description="Sent with each wake.")
    max_failures: int | None = Field(
        None, ge=0, le=model.MAX_FAILURES, description="Retries before a wake is given up; null: the server's default."
    )

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
            raise InvalidAlarm(f"kind must be {new.kind!r} with these times, not {self.kind!r}")
        return new


# --- responses


class Alarm(ResponseBody):
    """An alarm as it is stored."""

    id: UUID
    owner: str
    name: str | None
    label: str
    status: AlarmStatus
    kind: Kind
    cron_expr: str | None
    tz: str
    payload: AnyJson
    url: str | None = Field(description="Where its wakes are sent; null: the default target.")
    headers: dict[str, str] = Field(description="The names of its headers. Their values are shown to nobody.")
    max_failures: int
    idempotency_key: str | None
    revision: int = Field(description="How often an alarm of this name was set.")
    occurrence: datetime = Field(description="The instant that its next or last wake is for.")
    next_fire_at: datetime | None = Field(description="When it is next delivered or tried again; null: never.")
    last_fired_at: datetime | None
    failure_count: int = Field(description="Failures in a row.")
    last_error: str | None
    paused_at: datetime | None
    is_ringing: bool = Field(description="A delivery is under way.")
    created_at: datetime
    updated_at: datetime


class AlarmPage(ResponseBody):
    alarms: list[Alarm] = Field(description="Newest first.")
    next: str | None = Field(description="Send it as `after` to get the next page; null: this is the last page.")


class Delivery(ResponseBody):
    """One attempt to deliver a wake to the URL."""

    occurrence: datetime
    attempt: int
    outcome: DeliveryOutcome
    started_at: datetime
    duration: Seconds
    status: int | None = Field(description="The HTTP status of the response; null: there was none.")
    error: str | None
    answer: str = Field(description="The first KiB of the response.")
    note: str | None = Field(description="What happened to other occurrences.")


class DeliveryPage(ResponseBody):
    deliveries: list[Delivery] = Field(description="Newest first.")
    next: str | None


class WakeSecret(ResponseBody):
    """A secret that signs the wakes of one owner."""

    secret: str
    created_at: datetime
    expires_at: datetime | None = Field(description="null: this is the newest secret, which does not expire.")


class WakeSecrets(ResponseBody):
    secrets: list[WakeSecret] = Field(description="Newest first.")


def write_alarm(alarm: model.Alarm) -> dict[str, Any]:
    own = {"cron_expr": alarm.cron, "tz": alarm.tz, "payload": embed(alarm.payload)}
    return fields_of(Alarm.model_fields, alarm, **own)
