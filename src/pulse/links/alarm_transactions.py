"""How are alarms set through the caller's own connection, so that they commit and roll back with the caller's work?

This takes three statements: read the time, set the alarm, read the alarm. The steps are written once, as a generator,
and run by a synchronous or an asynchronous connection. Values are checked before the database is used, since an error
there would fail the caller's transaction. The host name of a URL is resolved when the alarm is delivered, never while a
transaction waits.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.engine.alarms.use_cases import check_set_outcome, default_failures, rules_of, target_of
from pulse.engine.masks import mask_alarm
from pulse.links.transactions import Call, arun_through, run_through
from pulse.model.alarms import DEFAULT_DESTINATION, SetAlarm
from pulse.model.errors import AlarmExists
from pulse.model.ids import Mint
from pulse.store.alarms.rows import alarm_row, read_written

if TYPE_CHECKING:
    from uuid import UUID

    from pulse.model.alarms import Alarm, NewAlarm
    from pulse.settings import Settings

    Steps = Generator[Call, Any, SetAlarm]

# Instants are read as JSON, because their text depends on settings of the connection.
LOOK_UP = """
select cast(to_jsonb({schema}.now()) as text), (
    select cast(to_jsonb(alarms) as text) from {schema}.alarms
    where owner = cast({0} as text) and idempotency_key = nullif(cast({1} as text), '')
)
"""
SET = "select cast(alarm_id as text), deed from {schema}.set_alarm(cast(cast({0} as text) as jsonb))"
READ = """
select cast(to_jsonb(alarms) as text) from {schema}.alarms where id = cast(cast({0} as text) as uuid)
"""

_mint = Mint()


def set_alarm_through(conn: object, new: NewAlarm, settings: Settings) -> SetAlarm:
    """Set an alarm in the transaction that is open on a synchronous connection."""
    steps = _steps(new, settings)
    call = next(steps)
    while True:
        try:
            call = steps.send(run_through(conn, call))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


async def aset_alarm_through(conn: object, new: NewAlarm, settings: Settings) -> SetAlarm:
    """Set an alarm like `set_alarm_through`, for every kind of connection. A synchronous one blocks the event loop."""
    steps = _steps(new, settings)
    call = next(steps)
    while True:
        rows = await arun_through(conn, call)
        try:
            call = steps.send(rows)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def _steps(new: NewAlarm, settings: Settings) -> Steps:
    settings.redaction.refuse_masked(new.payload)
    target = target_of(new, settings, rules_of(settings))
    [(clock, known)] = yield _call(settings, LOOK_UP, new.owner, new.idempotency_key or "")
    if known is not None:
        return SetAlarm(mask_alarm(settings.redaction, _check_same(new, known)), is_new=False)
    own_id = _mint.ids([0])[0]
    row = alarm_row(
        new,
        own_id,
        occurrence=new.first_after(msgspec.json.decode(clock, type=datetime)),
        destination=target.destination if target else DEFAULT_DESTINATION,
        max_failures=default_failures(new, settings),
    )
    [(alarm_id, deed)] = yield _call(settings, SET, _write_row(row, notify=settings.notify))
    check_set_outcome(new, own_id, deed)
    [(text,)] = yield _call(settings, READ, alarm_id)
    return SetAlarm(mask_alarm(settings.redaction, read_written(text)[0]), is_new=deed != "same")


def _check_same(new: NewAlarm, text: str) -> Alarm:
    """Return the alarm that has the idempotency key already, or refuse the new one if it differs."""
    alarm, fingerprint = read_written(text)
    if fingerprint != new.fingerprint():
        raise AlarmExists(str(new.idempotency_key))
    return alarm


def _write_row(row: dict[str, object | UUID], *, notify: bool) -> str:
    return msgspec.json.encode(row | {"notify": notify}).decode()


def _call(settings: Settings, sql: str, *values: str) -> Call:
    return Call(sql, settings.schema, values, twin="aset")
