"""What is an alarm? An instant or a timetable, and the URL that Pulse calls at each occurrence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from pulse.model.any_case import AnyCase
from pulse.model.errors import InvalidAlarm, InvalidName, InvalidOption, InvalidPayload
from pulse.model.jobs import check_instant, check_int, check_kind, check_length
from pulse.model.text import check_json, check_name, check_text
from pulse.timing.cron import Cron, InvalidCron
from pulse.timing.once import FieldNames, InvalidOnce, parse_instant, resolve_once
from pulse.timing.timetable import Timetable
from pulse.timing.zones import UnknownZone, check_zone

PAYLOAD_LIMIT = 64 << 10  # receivers expect a few kilobytes, and a process holds one payload for each of its slots
LABEL_LIMIT = 500
KEY_LIMIT = 500
MAX_FAILURES = 100
DEFAULT_OWNER = "local"  # of alarms that were set without an owner
DEFAULT_DESTINATION = "default"
ONCE = FieldNames("alarm", "delay_seconds", "fire_at")
SHORTEST = timedelta(milliseconds=1)
HIDDEN = "…"  # in place of the value of a header: any header may carry a credential


class AlarmStatus(AnyCase):
    ACTIVE = "active"
    FIRED = "fired"  # a once alarm that was delivered, or a timetable that has ended
    FAILED = "failed"  # given up; its error says why
    CANCELLED = "cancelled"


class NewAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm to be set. It is checked on construction, as far as that is possible without knowing the time."""

    owner: str = DEFAULT_OWNER
    name: str | None = None  # an alarm set under the same name replaces the earlier one
    label: str = ""
    payload: str = "null"  # JSON text
    url: str | None = None  # none: the default target
    headers: Mapping[str, str] = {}
    delay: timedelta | None = None
    fire_at: datetime | None = None
    cron: str | None = None
    tz: str = "UTC"
    max_failures: int | None = None  # none: the default from the settings
    idempotency_key: str | None = None

    def __post_init__(self) -> None:
        check_name("owner", self.owner)
        if self.name is not None:
            check_alarm_name(self.name)
        self._check_texts()
        self._check_when()
        if self.max_failures is not None:
            check_int("max_failures", self.max_failures, 0, MAX_FAILURES)

    def _check_texts(self) -> None:
        for option, text, limit in (
            ("label", self.label, LABEL_LIMIT),
            ("idempotency_key", self.idempotency_key, KEY_LIMIT),
        ):
            check_kind(option, text, str, None)
            if text:
                check_text(option, text, limit)
        if self.idempotency_key == "":
            raise InvalidOption("idempotency_key", 0, f"have 1 to {KEY_LIMIT} characters")
        check_kind("payload", self.payload, str)
        if len(self.payload.encode(errors="replace")) > PAYLOAD_LIMIT:
            raise InvalidPayload(
                f"payload is larger than {PAYLOAD_LIMIT >> 10} KiB: store it elsewhere and send a reference"
            )
        check_json("payload", self.payload)
        check_kind("url", self.url, str, None)

    def _check_when(self) -> None:
        check_kind("cron_expr", self.cron, str, None)
        check_kind("tz", self.tz, str)
        if not self.tz:
            msgspec.structs.force_setattr(self, "tz", "UTC")
        try:
            check_zone(self.tz)
        except UnknownZone as error:
            raise InvalidAlarm(str(error)) from None
        if self.cron is None:
            self._check_once()
            return
        if self.delay or self.fire_at is not None:
            raise InvalidAlarm("cron alarm takes cron_expr, not delay_seconds or fire_at")
        try:
            Cron.parse(self.cron, self.tz)
        except InvalidCron as error:
            raise InvalidAlarm(str(error)) from None

    def _check_once(self) -> None:
        if not self.delay and self.delay is not None:
            msgspec.structs.force_setattr(self, "delay", None)  # a delay of 0 counts as none, by the API's contract
        check_length("delay_seconds", self.delay, SHORTEST)
        if self.delay is not None and self.fire_at is not None:
            raise InvalidAlarm("once alarm takes either delay_seconds or fire_at, not both")
        if self.delay is None and self.fire_at is None:
            raise InvalidAlarm("once alarm requires delay_seconds or fire_at")
        check_instant("fire_at", self.fire_at)

    @property
    def kind(self) -> str:
        return "once" if self.cron is None else "cron"

    def first_after(self, now: datetime) -> datetime:
        """Return the first instant at which it fires. Refuse an alarm that would never fire."""
        if self.cron is None:
            try:
                return resolve_once(ONCE, delay=self.delay, at=self.fire_at, now=now)
            except InvalidOnce as error:
                raise InvalidAlarm(str(error)) from None
        found = timetable(self.cron, self.tz, now).next_after(now)
        if found is None:
            raise InvalidAlarm(f"cron {self.cron!r} yields no future time")
        return found

    def fingerprint(self) -> bytes:
        """Return a hash of every field but the idempotency key, so that two uses of one key can be compared."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "idempotency_key"}
        fields["payload"] = msgspec.json.decode(self.payload)
        return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).digest()


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of an alarm."""

    id: UUID
    owner: str
    name: str | None
    label: str
    status: AlarmStatus
    kind: str
    cron: str | None
    tz: str
    payload: str
    url: str | None
    headers: Mapping[str, str]  # with HIDDEN in place of each value
    max_failures: int
    idempotency_key: str | None
    revision: int  # counts how often it was replaced
    occurrence: datetime  # the instant that its next or last wake is for
    next_fire_at: datetime | None  # the next attempt; none: no attempt is to come
    last_fired_at: datetime | None
    failure_count: int  # failures in a row
    last_error: str | None
    paused_at: datetime | None
    is_ringing: bool  # a delivery is under way
    created_at: datetime
    updated_at: datetime


class AlarmFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The alarms to list: those that match every field given."""

    owner: str | None = None
    status: AlarmStatus | None = None
    paused: bool | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        check_kind("status", self.status, AlarmStatus, None)
        check_kind("paused", self.paused, bool, None)
        check_kind("label", self.label, str, None)
        if self.owner is not None:
            check_name("owner", self.owner)
        if self.label:
            check_text("label", self.label, LABEL_LIMIT)


class AlarmPage(msgspec.Struct, frozen=True):
    alarms: list[Alarm]
    next: str | None  # give it as `after` to get the following page; none: this is the last


class SetAlarm(msgspec.Struct, frozen=True):
    """The answer to a call that set an alarm."""

    alarm: Alarm
    is_new: bool  # false: an earlier call had set it already


class DeliveryOutcome(StrEnum):
    DELIVERED = "delivered"
    FAILED = "failed"  # it will be tried again
    GIVEN_UP = "given_up"  # this was the last try of this occurrence
    LATE = "late"  # the result came after its claim had been lost, and changed nothing


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to deliver a wake."""

    occurrence: datetime
    attempt: int
    outcome: DeliveryOutcome
    started_at: datetime
    duration: timedelta
    status: int | None  # of the HTTP response; none: there was no response
    error: str | None
    answer: str  # the first KiB of the response
    note: str | None  # what happened to other occurrences


class DeliveryPage(msgspec.Struct, frozen=True):
    deliveries: list[Delivery]
    next: str | None


class WakeSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that signs the wakes of one owner."""

    secret: str
    created_at: datetime
    expires_at: datetime | None  # none: the newest


def read_fire_at(text: str) -> datetime:
    """Return the instant that an RFC 3339 text means. Every door refuses other texts with the same message."""
    try:
        return parse_instant(ONCE, text)
    except InvalidOnce as error:
        raise InvalidAlarm(str(error)) from None


class WakeRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A secret of the installation, from which the secrets of owners are derived."""

    secret: str
    created_at: datetime
    expires_at: datetime | None  # none: the newest
    is_shared: bool  # an older release signed with it directly, so receivers of all owners may know it


class WakeGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A count of how often the secret of one owner was replaced."""

    owner: str
    generation: int
    created_at: datetime
    expires_at: datetime | None  # none: the newest


def timetable(cron: str, tz: str, anchor: datetime) -> Timetable:
    """Return the timetable of a cron expression. `@every` counts from the anchor, so that it does not drift."""
    parsed = Cron.parse(cron, tz)
    if isinstance(parsed.timetable, timedelta):
        return Timetable(every=parsed.timetable, anchor=anchor)
    return Timetable(cron=cron, tz=parsed.tz)


def wake_id(alarm_id: UUID, revision: int, occurrence: datetime) -> str:
    """Return the id of a wake. All attempts to deliver one occurrence have the same, so receivers can deduplicate."""
    name = f"{revision} {occurrence.isoformat()}"
    digest = bytearray(hashlib.sha1(alarm_id.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = (
        digest[6] & 0x0F | 0x50
    )  # a uuid5, made by hand for every delivery: uuid.uuid5 takes three times as long
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def shown_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with HIDDEN in place of each value."""
    return dict.fromkeys(headers, HIDDEN)


def check_alarm_name(name: object) -> str:
    """Return the name of an alarm. Refuse one that reads as an id: an alarm is looked up by name or by id."""
    checked = check_name("alarm", name)
    try:
        UUID(checked)
    except ValueError:
        return checked
    raise InvalidName(f"the name of an alarm must not read as an id, as {checked!r} does: choose another name")
