"""What can callers do with alarms? Each use case is one transaction over one row, by the database's time.

An alarm is looked up by its id, or by its owner and name.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from pulse.delivery.signing import OwnerSecrets, new_secret
from pulse.engine.list_pages import search_alarms
from pulse.engine.masks import mask_alarm, mask_deliveries, mask_each, mask_one, off_loop, refuse_masked_each
from pulse.model.alarms import (
    DEFAULT_DESTINATION,
    DEFAULT_OWNER,
    HIDDEN,
    Alarm,
    AlarmFilter,
    AlarmPage,
    AlarmStatus,
    DeliveryPage,
    NewAlarm,
    SetAlarm,
    WakeSecret,
    check_alarm_name,
    timetable,
)
from pulse.model.errors import AlarmConflict, AlarmExists, AlarmNotFound, InvalidAlarm, InvalidFilter, InvalidOption
from pulse.model.ids import Mint
from pulse.model.jobs import PAGE_LIMIT, check_int, check_length
from pulse.model.network.targets import Rules, Target, check_headers, check_target
from pulse.model.text import check_name
from pulse.store.alarms import changes, lists, rows, signing_secrets
from pulse.store.installation import read_clock
from pulse.timing.cron import InvalidCron

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pulse.model.list_filters import AlarmSearch
    from pulse.settings import Settings
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database

LAST_ID = UUID(int=(1 << 128) - 1)
LAST_DELIVERY = (1 << 63) - 1
LOOK_UP_PATIENCE = 2.0  # seconds: a name that takes longer to look up is checked when it is called
OVERLAP = timedelta(days=1)


class Alarms:
    """The use cases of alarms, over one database."""

    def __init__(self, database: Database, notifications: Notifications) -> None:
        self._database = database
        self._notifications = notifications
        self._settings = database.settings
        self._redaction = database.settings.redaction
        self._rules = rules_of(database.settings)
        self._mint = Mint()

    # --- reading

    async def get(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Return an alarm by its id, or by its name and owner. With an owner given, no other's alarm is found."""
        return await self._masked(await self._database.run(lambda conn: _find(conn, key, owner)))

    async def list_page(
        self, wanted: AlarmFilter | None = None, *, after: str | None = None, limit: int = 50
    ) -> AlarmPage:
        """Return a page of alarms, newest first."""
        check_int("limit", limit, 1, PAGE_LIMIT)
        before = _read_id(after) if after else LAST_ID
        wanted = wanted or AlarmFilter()

        async def work(conn: Connection) -> list[Alarm]:
            if wanted.owner is None:
                return await lists.list_all_alarms(conn, wanted, before=before, limit=limit + 1)
            return await lists.list_alarms(conn, wanted, owner=wanted.owner, before=before, limit=limit + 1)

        found = await self._database.run(work)
        following = str(found[limit - 1].id) if len(found) > limit else None
        return AlarmPage(await self._each_masked(found[:limit]), following)

    async def search(self, wanted: AlarmSearch, *, after: str | None = None, limit: int = 50) -> AlarmPage:
        """Return a page of search results. A page reads a limited number of rows, so it may be short and not the
        last."""
        page = await self._database.run(lambda conn: search_alarms(conn, wanted, after=after, limit=limit))
        return AlarmPage(await self._each_masked(page.alarms), page.next)

    async def deliveries(
        self, key: UUID | str, *, owner: str | None = None, after: str | None = None, limit: int = 50
    ) -> DeliveryPage:
        """Return the attempts to deliver an alarm, newest first."""
        check_int("limit", limit, 1, PAGE_LIMIT)
        before = _read_number(after) if after else LAST_DELIVERY

        async def work(conn: Connection) -> DeliveryPage:
            alarm = await _find(conn, key, owner)
            found = await lists.list_deliveries(conn, alarm_id=alarm.id, before=before, limit=limit + 1)
            more = str(found[limit - 1][0]) if len(found) > limit else None
            deliveries = [delivery for _, delivery in found[:limit]]
            if self._redaction:
                shown = deliveries
                deliveries = await off_loop(lambda: mask_deliveries(self._redaction, shown, alarm.payload))
            return DeliveryPage(deliveries, more)

        return await self._database.run(work)

    # --- changing

    async def set(self, new: NewAlarm, *, own_id: UUID | None = None) -> SetAlarm:
        """Set an alarm. It replaces the owner's alarm of the same name; a call repeated with its `own_id` sets only
        one."""
        await refuse_masked_each(self._redaction, [new.payload])
        if HIDDEN in new.headers.values():
            new = await self._with_kept_headers(new)
        destination = await self._check_target(new)
        call_id = own_id or self._mint.ids([0])[0]

        async def work(conn: Connection) -> SetAlarm:
            if known := await _find_by_key(conn, new):
                return SetAlarm(known, is_new=False)
            try:
                occurrence = new.first_after(await read_clock(conn))
            except InvalidAlarm:  # it is in the past by now, but an earlier try may have set it and lost the answer
                if done := await changes.find_by_call(conn, call_id=call_id, owner=new.owner, name=new.name):
                    return SetAlarm(done, is_new=True)
                raise
            row = rows.alarm_row(
                new,
                call_id,
                occurrence=occurrence,
                destination=destination,
                max_failures=default_failures(new, self._settings),
            )
            alarm_id, outcome = await changes.set_alarm(conn, row)
            check_set_outcome(new, call_id, outcome)
            alarm = await _find(conn, alarm_id, None)
            return SetAlarm(alarm, is_new=outcome != "same")

        answer = await self._database.run_together(work)
        return SetAlarm(await self._notify_and_mask(answer.alarm), is_new=answer.is_new)

    async def _with_kept_headers(self, new: NewAlarm) -> NewAlarm:
        """Fill in header values that came back hidden, from the alarm that is replaced, and only if the url stays the
        same: otherwise a caller could send hidden values to a url of its own and read them."""
        name = new.name or ""  # no alarm has an empty name
        found = await self._database.run(lambda conn: changes.find_headers(conn, owner=new.owner, name=name))
        kept = found[1] if found and found[0] == new.url else {}
        headers = {name: kept.get(name, HIDDEN) if value == HIDDEN else value for name, value in new.headers.items()}
        for name, value in headers.items():
            if value == HIDDEN:
                raise InvalidAlarm(
                    f"header {name[:60]!r} must have its value: {HIDDEN!r} stands for a hidden one, which is kept only "
                    "while the url of the alarm stays the same"
                )
        return msgspec.structs.replace(new, headers=headers)

    async def _check_target(self, new: NewAlarm) -> str:
        """Return the destination. Refuse a target that alarms may not call, as far as that is known now."""
        target = target_of(new, self._settings, self._rules)
        if target is None:
            return DEFAULT_DESTINATION
        from pulse.delivery.address_guard import check_resolves  # imported late: this takes a tenth of a second

        await check_resolves(target, self._rules, within=LOOK_UP_PATIENCE, owner=new.owner)
        return target.destination

    async def cancel(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Cancel an alarm. To cancel it again changes nothing."""

        async def work(conn: Connection) -> Alarm:
            alarm = await _find(conn, key, owner)
            if cancelled := await changes.cancel_alarm(conn, id=alarm.id):
                return cancelled
            alarm = await _find(conn, alarm.id, None)
            if alarm.status is not AlarmStatus.CANCELLED:
                raise AlarmConflict(alarm.id, f"has {alarm.status}, so there is nothing to cancel")
            return alarm

        return await self._masked(await self._database.run_together(work))

    async def pause(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Pause an alarm: it is not delivered until it is resumed."""

        async def work(conn: Connection) -> Alarm:
            alarm = await _find(conn, key, owner)
            if paused := await changes.pause_alarm(conn, id=alarm.id):
                return paused
            raise AlarmConflict(alarm.id, f"is {alarm.status}: only an active alarm can be paused")

        return await self._masked(await self._database.run_together(work))

    async def resume(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Resume an alarm. A timetable goes on with its next occurrence; a once alarm whose time has passed fires
        now."""

        async def work(conn: Connection) -> Alarm:
            alarm = await _lock(conn, key, owner)
            if alarm.paused_at is None:
                return alarm
            if alarm.next_fire_at is None:
                raise AlarmConflict(alarm.id, f"is {alarm.status}: set a new one")
            now = await read_clock(conn)
            if alarm.cron is None or alarm.next_fire_at > now:  # it has missed no occurrence: a retry stays a retry
                return await changes.resume_alarm(
                    conn, id=alarm.id, occurrence=alarm.occurrence, next=alarm.next_fire_at
                )
            return await _resume_timetable(conn, alarm, now)

        return await self._notify_and_mask(await self._database.run_together(work))

    async def fire(self, key: UUID | str, *, owner: str | None = None) -> Alarm:
        """Deliver an alarm now. A once alarm is brought forward, a timetable goes on as before, and an alarm that has
        fired or failed is delivered once more."""

        async def work(conn: Connection) -> Alarm:
            alarm = await _lock(conn, key, owner)
            if alarm.status is AlarmStatus.CANCELLED:
                raise AlarmConflict(alarm.id, "was cancelled: set a new one")
            if alarm.paused_at is not None:
                raise AlarmConflict(alarm.id, "is paused: resume it first")
            if alarm.is_ringing:
                raise AlarmConflict(alarm.id, "is being delivered right now")
            is_brought_forward = alarm.status is AlarmStatus.ACTIVE and alarm.cron is None
            occurrence = alarm.occurrence if is_brought_forward else await read_clock(conn)
            return await changes.fire_alarm(conn, id=alarm.id, occurrence=occurrence)

        return await self._notify_and_mask(await self._database.run_together(work))

    # --- signing

    async def secrets(self, owner: str | None = None) -> list[WakeSecret]:
        """Return the secrets that sign the wakes of an owner, newest first."""
        own = check_name("owner", owner or DEFAULT_OWNER)
        return (await self._database.run(read_owner_secrets)).of(own)

    async def rotate_secret(self, *, overlap: timedelta = OVERLAP, owner: str | None = None) -> list[WakeSecret]:
        """Replace the secret of one owner, or of all owners. The old one goes on signing for `overlap`."""
        if overlap:
            check_length("overlap", overlap, timedelta(seconds=1))
        own, secret = check_name("owner", owner or DEFAULT_OWNER), new_secret()

        async def work(conn: Connection) -> list[WakeSecret]:
            if owner:
                await signing_secrets.rotate_owner_secret(conn, owner=own, overlap=overlap)
            elif all(
                each.secret != secret for each in await signing_secrets.wake_secrets(conn)
            ):  # if no earlier try has done it
                await signing_secrets.rotate_wake_secret(conn, secret=secret, overlap=overlap)
            return (await read_owner_secrets(conn)).of(own)

        return await self._database.run_together(work)

    async def _notify_and_mask(self, alarm: Alarm) -> Alarm:
        """Notify the processes that deliver, so that none sleeps past the alarm, and return it masked."""
        if alarm.next_fire_at is not None and alarm.paused_at is None:
            self._notifications.notify_due_soon(alarm.next_fire_at - alarm.updated_at)
        return await self._masked(alarm)

    async def _masked(self, alarm: Alarm) -> Alarm:
        return await mask_one(self._redaction, mask_alarm, alarm)

    async def _each_masked(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        if not self._redaction:
            return list(alarms)
        return await mask_each(lambda alarm: mask_alarm(self._redaction, alarm), alarms)


def rules_of(settings: Settings) -> Rules:
    return Rules.read(settings.alarm_networks, settings.alarm_ports, settings.alarm_plain_http)


def target_of(new: NewAlarm, settings: Settings, rules: Rules) -> Target | None:
    """Return the target of an alarm, checked as far as its text shows, or None for the default target."""
    check_headers(new.headers)
    if new.url is not None:
        return check_target(new.url, rules)
    if settings.alarm_target is None:
        raise InvalidAlarm("url is missing, and there is no default target: give a url, or set PULSE_ALARM_TARGET")
    return None


def check_set_outcome(new: NewAlarm, own_id: UUID, outcome: str) -> None:
    """Raise the error for an alarm that pulse.set_alarm has refused."""
    if outcome == "taken":
        raise AlarmExists(str(new.idempotency_key))
    if outcome == "used":
        raise InvalidOption("id", str(own_id), "be new for each alarm (another alarm has it)")


def default_failures(new: NewAlarm, settings: Settings) -> int:
    return settings.alarm_max_failures if new.max_failures is None else new.max_failures


async def _find_by_key(conn: Connection, new: NewAlarm) -> Alarm | None:
    """Return the alarm that was set with this idempotency key, or None. This comes before the check of its time, which
    may have passed since."""
    if new.idempotency_key is None:
        return None
    found = await changes.find_by_key(conn, owner=new.owner, idempotency_key=new.idempotency_key)
    if found is None:
        return None
    alarm, fingerprint = found
    if fingerprint != new.fingerprint():
        raise AlarmExists(new.idempotency_key)
    return alarm


async def _find(conn: Connection, key: UUID | str, owner: str | None) -> Alarm:
    if (own_id := _id_of(key)) is not None:
        found = await changes.get_alarm(conn, id=own_id)
    else:
        owner = DEFAULT_OWNER if owner is None else check_name("owner", owner)  # as in `set`
        found = await changes.find_alarm(conn, owner=owner, name=check_alarm_name(key))
    if found is None or owner not in (None, found.owner):
        raise AlarmNotFound(key)
    return found


async def _lock(conn: Connection, key: UUID | str, owner: str | None) -> Alarm:
    found = await changes.lock_alarm(conn, id=(await _find(conn, key, owner)).id)
    if found is None:
        raise AlarmNotFound(key)
    return found


async def _resume_timetable(conn: Connection, alarm: Alarm, now: datetime) -> Alarm:
    assert alarm.cron is not None
    try:
        following = timetable(alarm.cron, alarm.tz, alarm.occurrence).next_after(now)
    except InvalidCron as error:
        return await changes.end_alarm(conn, id=alarm.id, status=AlarmStatus.FAILED, error=str(error))
    if following is None:
        return await changes.end_alarm(conn, id=alarm.id, status=AlarmStatus.FIRED, error=alarm.last_error)
    return await changes.resume_alarm(conn, id=alarm.id, occurrence=following, next=following)


def _id_of(key: UUID | str) -> UUID | None:
    if isinstance(key, UUID):
        return key
    try:
        return UUID(key)
    except (ValueError, TypeError, AttributeError):
        return None


def _read_id(text: str) -> UUID:
    found = _id_of(text)
    if found is None:
        raise InvalidFilter(f"after must be the `next` of the previous page of alarms, not {str(text)[:60]!r}")
    return found


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidFilter(f"after must be the `next` of the previous page of deliveries, not {str(text)[:60]!r}")
    return int(text)


async def read_owner_secrets(conn: Connection) -> OwnerSecrets:
    return OwnerSecrets(await signing_secrets.wake_secrets(conn), await signing_secrets.wake_generations(conn))
