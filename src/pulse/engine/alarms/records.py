"""How are the results of deliveries recorded? Each only under the lease that its delivery began with.

A process that was away for too long has lost its lease: its result is logged as late, and another process delivers the
same wake again, with the same id (docs/decisions/0028).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pulse.engine.duties.loops import Loop
from pulse.model.alarms import DeliveryOutcome
from pulse.model.decisions.delivery import ERROR_LIMIT, AlarmClaim, DeliveryResult, Verdict, decide, give_up
from pulse.model.errors import InvalidInput, PulseError
from pulse.model.text import clean_error
from pulse.store.alarms import deliveries
from pulse.store.installation import read_clock

if TYPE_CHECKING:
    from pulse.delivery.wake import WakeResult
    from pulse.engine.instruments import Instruments
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.jobs.rows import ClaimKey

log = logging.getLogger("pulse.alarms")

RECORD_BATCH = 500
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # every delivery that ends runs the loop
JITTER = (0.8, 1.0)  # of the wait for a retry: never above 1, so that the longest wait holds


class FinishedDelivery(NamedTuple):
    """A delivery that has ended, and its result."""

    claim: AlarmClaim
    started_at: float  # on this process's monotonic clock
    result: WakeResult


Decide = Callable[[FinishedDelivery, datetime], Verdict]


class DeliveryRecords:
    """The deliveries of one process that have finished and are still to be recorded."""

    def __init__(
        self,
        database: Database,
        notifications: Notifications,
        instruments: Instruments,
        on_recorded: Callable[[], None],
    ) -> None:
        self.loop = Loop("record wakes", self.record)
        self.finished: list[FinishedDelivery] = []
        self._database = database
        self._settings = database.settings
        self._notifications = notifications
        self._instruments = instruments
        self._on_recorded = on_recorded

    async def record(self) -> timedelta:
        """Record finished deliveries, and return how long to sleep."""
        finished = self.finished[:RECORD_BATCH]
        if not finished:
            return LONGEST_SLEEP
        locked = await self._record_all(finished)
        self.finished[: len(finished)] = []
        self.finished += locked  # behind the others
        self._on_recorded()
        if not self.finished:
            return LONGEST_SLEEP
        return AT_ONCE if len(self.finished) > len(locked) else self._settings.alarm_tick

    async def _record_all(self, finished: Sequence[FinishedDelivery]) -> list[FinishedDelivery]:
        """Record deliveries, and return those whose rows another transaction has locked. One that cannot be recorded
        does not keep the others from it."""
        try:
            return await self._database.run(lambda conn: self._record(conn, finished, self._decide))
        except Exception as error:
            if isinstance(error, PulseError) and not isinstance(error, InvalidInput):
                raise  # an outage or a conflict: none of these deliveries is the cause
            if len(finished) > 1:
                half = len(finished) // 2
                return [*await self._record_all(finished[:half]), *await self._record_all(finished[half:])]
            log.exception("the delivery of alarm %s cannot be recorded", finished[0].claim.id)
            why = f"its delivery cannot be recorded: {type(error).__name__}"
        return await self._database.run(
            lambda conn: self._record(conn, [_without_texts(finished[0])], lambda each, _: give_up(each.claim, why))
        )

    def _decide(self, finished: FinishedDelivery, now: datetime) -> Verdict:
        return decide(finished.claim, _delivery_result(finished.result), now, spread=self._spread())

    async def _record(
        self, conn: Connection, finished: Sequence[FinishedDelivery], decide_each: Decide
    ) -> list[FinishedDelivery]:
        now = await read_clock(conn)
        verdicts = [decide_each(each, now) for each in finished]
        rows = [_row(each) for each in finished]
        moved = await deliveries.record_wakes(conn, rows, verdicts)
        locked: set[ClaimKey] = set()
        if left := [row for row in rows if row.claim.key not in moved]:
            locked = await deliveries.held_wakes(conn, [row.claim for row in left])
        self._instruments.wake_outcomes.update(
            verdict.outcome.value for row, verdict in zip(rows, verdicts, strict=True) if row.claim.key in moved
        )
        if lost := [row for row in left if row.claim.key not in locked]:
            outcomes = [DeliveryOutcome.FAILED if row.error else DeliveryOutcome.DELIVERED for row in lost]
            if late := await deliveries.log_late(conn, lost, outcomes):
                self._instruments.wake_outcomes[DeliveryOutcome.LATE.value] += late
                log.warning("%d deliveries ended after their leases had, so they do not count", late)
        if waits := [verdict.next_fire_at - now for verdict in verdicts if verdict.next_fire_at is not None]:
            self._notifications.notify_due_soon(min(waits))
        return [each for each in finished if each.claim.key in locked]

    def _spread(self) -> float:
        return random.uniform(*JITTER) if self._settings.alarm_jitter else 1.0  # noqa: S311


def _delivery_result(result: WakeResult) -> DeliveryResult:
    error = None if result.error is None else clean_error(result.error, ERROR_LIMIT)
    return DeliveryResult(error, result.is_gone, result.retry_after)


def _row(finished: FinishedDelivery) -> deliveries.DeliveryRow:
    result = finished.result
    return deliveries.DeliveryRow(
        claim=finished.claim,
        started=timedelta(seconds=time.monotonic() - finished.started_at),
        duration=result.duration,
        code=result.status,
        error=_delivery_result(result).error,
        answer=clean_error(result.answer, 1_024),
    )


def _without_texts(finished: FinishedDelivery) -> FinishedDelivery:
    """Return it without the texts of the endpoint, which may be what the database refuses."""
    return finished._replace(result=msgspec.structs.replace(finished.result, answer="", error=None))
