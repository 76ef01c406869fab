"""Which statements claim alarms for delivery, and record what came of the deliveries?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pulse.model.alarms import AlarmStatus, DeliveryOutcome
from pulse.model.decisions.delivery import AlarmClaim, Verdict
from pulse.store.alarms.rows import read_headers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from asyncpg import Record

    from pulse.store.connections.pool import Connection
    from pulse.store.jobs.rows import ClaimKey


class Turn(NamedTuple):
    """The ready alarms of one owner at one destination, which are delivered in one turn."""

    owner: str
    destination: str


class Deferral(NamedTuple):
    """Puts off the alarms of a turn, because their destination is not to be called for a while."""

    turn: Turn
    wait: timedelta
    error: str


class DeliveryRow(NamedTuple):
    """What happened in one delivery, as its line in the log says."""

    claim: AlarmClaim
    started: timedelta  # how long ago
    duration: timedelta
    code: int | None
    error: str | None
    answer: str


async def ready_owners(conn: Connection, *, after: str, limit: int) -> list[str]:
    return [row["owner"] for row in await conn.rows("ready_owners", after=after, limit=limit)]


async def ready_turns(conn: Connection, after: Mapping[str, str], *, limit: int) -> list[Turn]:
    """Return up to `limit` turns of each owner, at the destinations after the one that is given for the owner."""
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
    """Record what came of these deliveries, and return the claims that still stood.

    If two deliveries of one alarm are among them, only the claim of the newer one stands.
    """
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
        delivered_for=[wake.claim.occurrence for wake in wakes],
        attempts=_unless(1, [wake.claim.attempt for wake in wakes]),
        starts=[wake.started for wake in wakes],
        durations=[wake.duration for wake in wakes],
        codes=[wake.code for wake in wakes],
        answers=[wake.answer for wake in wakes],
        notes=_unless(None, [verdict.note for verdict in verdicts]),
    )
    return {(row["id"], row["lease_id"]) for row in rows}


async def held_wakes(conn: Connection, claim: Sequence[AlarmClaim]) -> set[ClaimKey]:
    """Return the claims that still stand."""
    ids, lease_ids = [each.id for each in claim], [each.lease_id for each in claim]
    rows = await conn.rows("held_wakes", ids=ids, lease_ids=lease_ids)
    return {(row["id"], row["lease_id"]) for row in rows}


async def log_late(conn: Connection, wakes: Sequence[DeliveryRow], outcomes: Sequence[DeliveryOutcome]) -> int:
    """Log these deliveries. Return how many were late, apart from those that were in the log already."""
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


async def defer_alarms(conn: Connection, closed: Sequence[Deferral], *, limit: int) -> int:
    rows = await conn.rows(
        "defer_alarms",
        owners=[each.turn.owner for each in closed],
        destinations=[each.turn.destination for each in closed],
        waits=[each.wait for each in closed],
        errors=[each.error for each in closed],
        limit=limit,
    )
    return int(rows[0]["alarms"])


def _unless(usual: object, values: list[Any]) -> list[Any]:
    """Return a column, or nothing if all of it is as usual."""
    return [] if values.count(usual) == len(values) else values


def _alarm_claim(row: Record) -> AlarmClaim:
    values: list[Any] = list(row)
    values[6] = read_headers(row)
    return AlarmClaim(*values)
