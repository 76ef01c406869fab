"""Which statements are there for alarms? Rows become values here, and values rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from pulse.model.alarms import (
    Alarm,
    AlarmFilter,
    AlarmStatus,
    Delivery,
    DeliveryOutcome,
    NewAlarm,
    WakeGeneration,
    WakeRoot,
    shown_headers,
)
from pulse.model.decisions.delivery import AlarmClaim, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg import Record

    from pulse.store.connections.pool import Connection
    from pulse.store.jobs import ClaimKey

_HEADERS = msgspec.json.Decoder(dict[str, str])


class AlarmPeek(NamedTuple):
    until_due: timedelta | None
    has_expired: bool
    has_ready: bool


class Turn(NamedTuple):
    """The ready alarms of one owner at one destination, which are delivered in one turn."""

    owner: str
    destination: str


class Closed(NamedTuple):
    """Alarms whose destination is not to be called for a while."""

    turn: Turn
    wait: timedelta
    error: str


class DeliveryRow(NamedTuple):
    """What happened on one delivery: its lines in the log."""

    claim: AlarmClaim
    started: timedelta  # so long ago
    duration: timedelta
    code: int | None
    error: str | None
    answer: str


def alarm_row(
    new: NewAlarm, own_id: UUID, *, occurrence: datetime, destination: str, max_failures: int
) -> dict[str, object]:
    """As pulse.set_alarm takes it."""
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


class _Written(msgspec.Struct, frozen=True):
    """A row as to_jsonb writes it."""

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


_WRITTEN = msgspec.json.Decoder(_Written)


def read_written(text: str) -> tuple[Alarm, bytes]:
    """An alarm, and its fingerprint, from its row as JSON: for connections whose types nobody knows."""
    written = _WRITTEN.decode(text)
    fields: dict[str, Any] = {name: _in_utc(getattr(written, name, None)) for name in Alarm.__struct_fields__}
    fields |= {
        "payload": bytes(written.payload).decode(),
        "headers": shown_headers(written.headers or {}),
        "is_ringing": written.lease_until is not None,
    }
    return Alarm(**fields), bytes.fromhex(written.fingerprint.removeprefix("\\x"))


def _in_utc(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


async def set_alarm(conn: Connection, row: dict[str, object]) -> tuple[UUID, str]:
    """Its id, and what was done: set, replaced, same, taken or used."""
    [found] = await conn.rows("set_alarm", alarm=msgspec.json.encode(row).decode())
    return found["alarm_id"], found["deed"]


async def get_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return _first(await conn.rows("get_alarm", id=id))


async def find_alarm(conn: Connection, *, owner: str, name: str) -> Alarm | None:
    return _first(await conn.rows("find_alarm", owner=owner, name=name))


async def find_headers(conn: Connection, *, owner: str, name: str) -> tuple[str | None, dict[str, str]] | None:
    """Return the url of an alarm, and its headers as they are sent: to be kept, and not to be shown."""
    rows = await conn.rows("find_headers", owner=owner, name=name)
    return (rows[0]["url"], _headers(rows[0])) if rows else None


async def find_by_key(conn: Connection, *, owner: str, idempotency_key: str) -> tuple[Alarm, bytes] | None:
    """The alarm that was set with this key, and the fingerprint of what was asked for."""
    rows = await conn.rows("find_by_key", owner=owner, idempotency_key=idempotency_key)
    return (_alarm(rows[0]), rows[0]["fingerprint"]) if rows else None


async def find_by_call(conn: Connection, *, call_id: UUID, owner: str, name: str | None) -> Alarm | None:
    return _first(await conn.rows("find_by_call", call_id=call_id, owner=owner, name=name))


async def lock_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return _first(await conn.rows("lock_alarm", id=id))


async def list_alarms(conn: Connection, wanted: AlarmFilter, *, owner: str, before: UUID, limit: int) -> list[Alarm]:
    rows = await conn.rows(
        "list_alarms",
        owner=owner,
        before=before,
        status=wanted.status,
        paused=wanted.paused,
        label=wanted.label,
        limit=limit,
    )
    return [_alarm(row) for row in rows]


async def list_all_alarms(conn: Connection, wanted: AlarmFilter, *, before: UUID, limit: int) -> list[Alarm]:
    """Of every owner."""
    rows = await conn.rows(
        "list_all_alarms", before=before, status=wanted.status, paused=wanted.paused, label=wanted.label, limit=limit
    )
    return [_alarm(row) for row in rows]


class Seen(NamedTuple):
    """One alarm of a search; the last one is where the scan ended, and how many it has seen."""

    id: UUID
    at: datetime | None  # where the order is by an instant
    matches: bool
    seen: int


async def search_alarms(
    conn: Connection,
    *,
    before: UUID,
    status: AlarmStatus | None,
    paused: bool | None,
    part: str | None,
    scan: int,
    limit: int,
) -> list[Seen]:
    rows = await conn.rows(
        "search_alarms", before=before, status=status, paused=paused, part=part, scan=scan, limit=limit
    )
    return [Seen(row["id"], None, row["matches"], row["seen"]) for row in rows]


async def search_owned(
    conn: Connection,
    *,
    owner: str,
    before: UUID,
    status: AlarmStatus | None,
    paused: bool | None,
    part: str | None,
    scan: int,
    limit: int,
) -> list[Seen]:
    rows = await conn.rows(
        "search_owned", owner=owner, before=before, status=status, paused=paused, part=part, scan=scan, limit=limit
    )
    return [Seen(row["id"], None, row["matches"], row["seen"]) for row in rows]


async def search_failed(
    conn: Connection, *, before: tuple[datetime, UUID], owner: str | None, part: str | None, scan: int, limit: int
) -> list[Seen]:
    rows = await conn.rows(
        "search_failed", before_at=before[0], before=before[1], owner=owner, part=part, scan=scan, limit=limit
    )
    return [Seen(row["id"], row["finished_at"], row["matches"], row["seen"]) for row in rows]


async def search_failing(
    conn: Connection, *, after: tuple[datetime, UUID], owner: str | None, part: str | None, scan: int, limit: int
) -> list[Seen]:
    rows = await conn.rows(
        "search_failing", after_at=after[0], after=after[1], owner=owner, part=part, scan=scan, limit=limit
    )
    return [Seen(row["id"], row["next_fire_at"], row["matches"], row["seen"]) for row in rows]


async def read_alarms(conn: Connection, *, ids: Sequence[UUID]) -> list[Alarm]:
    """In the order asked for; those that are gone are left out."""
    found = {row["id"]: _alarm(row) for row in await conn.rows("read_alarms", ids=ids)}
    return [found[each] for each in ids if each in found]


async def list_deliveries(conn: Connection, *, alarm_id: UUID, before: int, limit: int) -> list[tuple[int, Delivery]]:
    """Each with the number that a page can end with."""
    rows = await conn.rows("list_deliveries", alarm_id=alarm_id, before=before, limit=limit)
    return [(row["lease_id"], _delivery(row)) for row in rows]


async def cancel_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return _first(await conn.rows("cancel_alarm", id=id))


async def pause_alarm(conn: Connection, *, id: UUID) -> Alarm | None:  # noqa: A002
    return _first(await conn.rows("pause_alarm", id=id))


async def resume_alarm(conn: Connection, *, id: UUID, occurrence: datetime, next: datetime) -> Alarm:  # noqa: A002
    return _alarm((await conn.rows("resume_alarm", id=id, occurrence=occurrence, next=next))[0])


async def end_alarm(conn: Connection, *, id: UUID, status: AlarmStatus, error: str | None) -> Alarm:  # noqa: A002
    return _alarm((await conn.rows("end_alarm", id=id, status=status.value, error=error))[0])


async def fire_alarm(conn: Connection, *, id: UUID, occurrence: datetime) -> Alarm:  # noqa: A002
    return _alarm((await conn.rows("fire_alarm", id=id, occurrence=occurrence))[0])


async def peek_alarms(conn: Connection) -> AlarmPeek:
    return AlarmPeek(*(await conn.rows("peek_alarms"))[0])


async def ready_alarms(conn: Connection, *, limit: int) -> int:
    return int((await conn.rows("ready_alarms", limit=limit))[0]["alarms"])


async def expire_alarms(conn: Connection, *, limit: int) -> int:
    return int((await conn.rows("expire_alarms", limit=limit))[0]["alarms"])


async def ready_owners(conn: Connection, *, after: str, limit: int) -> list[str]:
    return [row["owner"] for row in await conn.rows("ready_owners", after=after, limit=limit)]


async def ready_turns(conn: Connection, after: Mapping[str, str], *, limit: int) -> list[Turn]:
    """Return up to `limit` turns of each owner: those of the destinations after the one given for it."""
    rows = await conn.rows("ready_turns", owners=list(after), afters=list(after.values()), limit=limit)
    return [Turn(row["owner"], row["destination"]) for row in rows]


async def claim_alarms(conn: Connection, quotas: Mapping[Turn, int], *, lease: timedelta) -> list[AlarmClaim]:
    rows = await conn.rows(
        "claim_alarms",
        owners=[turn.owner for turn in quotas],
        destinations=[turn.destination for turn in quotas],
        quotas=list(quotas.values()),
        lease=lease,
    )
    return [_alarm_claim(row) for row in rows]


async def record_wakes(conn: Connection, wakes: Sequence[DeliveryRow], verdicts: Sequence[Verdict]) -> set[ClaimKey]:
    """Return the claims that still stood. Two of one alarm may be among the wakes: only the newer one does."""
    is_same = (wake.claim.occurrence == made.occurrence for wake, made in zip(wakes, verdicts, strict=True))
    rows = await conn.rows(
        "record_wakes",
        ids=[wake.claim.id for wake in wakes],
        lease_ids=[wake.claim.lease_id for wake in wakes],
        statuses=_unless(AlarmStatus.FIRED, [verdict.status for verdict in verdicts]),
        occurrences=[] if all(is_same) else [verdict.occurrence for verdict in verdicts],
        nexts=_unless(None, [verdict.next_fire_at for verdict in verdicts]),
        failures=_unless(0, [verdict.failure_count for verdict in verdicts]),
        errors=_unless(None, [verdict.error for verdict in verdicts]),
        outcomes=_unless(DeliveryOutcome.DELIVERED, [verdict.outcome for verdict in verdicts]),
        rung_for=[wake.claim.occurrence for wake in wakes],
        attempts=_unless(1, [wake.claim.attempt for wake in wakes]),
        starts=[wake.started for wake in wakes],
        durations=[wake.duration for wake in wakes],
        codes=[wake.code for wake in wakes],
        answers=[wake.answer for wake in wakes],
        notes=_unless(None, [verdict.note for verdict in verdicts]),
    )
    return {(row["id"], row["lease_id"]) for row in rows}


def _unless(usual: object, values: list[Any]) -> list[Any]:
    """Nothing where all are as usual: it is not sent."""
    return [] if values.count(usual) == len(values) else values


async def held_wakes(conn: Connection, claim: Sequence[AlarmClaim]) -> set[ClaimKey]:
    """Return the claims that still stand."""
    ids, lease_ids = [each.id for each in claim], [each.lease_id for each in claim]
    rows = await conn.rows("held_wakes", ids=ids, lease_ids=lease_ids)
    return {(row["id"], row["lease_id"]) for row in rows}


async def log_late(conn: Connection, wakes: Sequence[DeliveryRow], outcomes: Sequence[DeliveryOutcome]) -> int:
    """How many were late, and not in the log."""
    rows = await conn.rows(
        "log_late",
        ids=[wake.claim.id for wake in wakes],
        lease_ids=[wake.claim.lease_id for wake in wakes],
        revisions=[wake.claim.revision for wake in wakes],
        outcomes=outcomes,
        occurrences=[wake.claim.occurrence for wake in wakes],
        attempts=[wake.claim.attempt for wake in wakes],
        starts=[wake.started for wake in wakes],
        durations=[wake.duration for wake in wakes],
        codes=[wake.code for wake in wakes],
        errors=[wake.error for wake in wakes],
        answers=[wake.answer for wake in wakes],
    )
    return sum(row["outcome"] == DeliveryOutcome.LATE for row in rows)


async def release_alarms(conn: Connection, claim: Sequence[AlarmClaim]) -> None:
    await conn.rows("release_alarms", ids=[each.id for each in claim], lease_ids=[each.lease_id for each in claim])


async def defer_alarms(conn: Connection, closed: Sequence[Closed], *, limit: int) -> int:
    rows = await conn.rows(
        "defer_alarms",
        owners=[each.turn.owner for each in closed],
        destinations=[each.turn.destination for each in closed],
        waits=[each.wait for each in closed],
        errors=[each.error for each in closed],
        limit=limit,
    )
    return int(rows[0]["alarms"])


async def wake_secrets(conn: Connection) -> list[WakeRoot]:
    """Return the secrets of the installation, newest first. Those of owners are derived from them."""
    return [WakeRoot(**row) for row in await conn.rows("wake_secrets")]


async def wake_generations(conn: Connection) -> list[WakeGeneration]:
    """Return those of the owners whose secret was replaced, newest first."""
    return [WakeGeneration(**row) for row in await conn.rows("wake_generations")]


async def rotate_wake_secret(conn: Connection, *, secret: str, overlap: timedelta) -> None:
    await conn.rows("rotate_wake_secret", secret=secret, overlap=overlap)


async def rotate_owner_secret(conn: Connection, *, owner: str, overlap: timedelta) -> None:
    await conn.rows("rotate_owner_secret", owner=owner, overlap=overlap)


async def prune_alarms(conn: Connection, *, keep: timedelta, keep_deliveries: timedelta, limit: int) -> tuple[int, int]:
    [row] = await conn.rows("prune_alarms", keep=keep, keep_deliveries=keep_deliveries, limit=limit)
    return row["alarms"], row["deliveries"]


def _first(rows: Sequence[Record]) -> Alarm | None:
    return _alarm(rows[0]) if rows else None


def _alarm(row: Record) -> Alarm:
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
        headers=shown_headers(_headers(row)),
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


def _alarm_claim(row: Record) -> AlarmClaim:
    values: list[Any] = list(row)
    values[6] = _headers(row)
    return AlarmClaim(*values)


def _headers(row: Record) -> dict[str, str]:
    return _HEADERS.decode(row["headers"]) if row["headers"] else {}


def _delivery(row: Record) -> Delivery:
    return Delivery(
        occurrence=row["occurrence"],
        attempt=row["attempt"],
        outcome=DeliveryOutcome(row["outcome"]),
        started_at=row["started_at"],
        duration=row["duration"],
        status=row["status"],
        error=row["error"],
        answer=row["answer"],
        note=row["note"],
    )
