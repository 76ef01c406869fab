"""What came of deliveries of alarms, and how is it written down? Only under the lease that each was begun with.

A process that was away too long finds its lease gone: its word is kept as a late one, and another delivers the same
wake again, with the same id (docs/decisions/0028).
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
from pulse.model.decisions.delivery import ERROR_LIMIT, AlarmClaim, Answered, Verdict, decide, give_up
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
LONGEST_SLEEP = timedelta(minutes=1)  # every delivery that ends wakes the loop
JITTER = (0.8, 1.0)  # of a step of the ladder: never longer than it, so that its longest holds


class FinishedDelivery(NamedTuple):
    """A delivery that has ended."""

    claim: AlarmClaim
    started_at: float  # on this process's monotonic clock
    delivered: WakeResult


Decide = Callable[[FinishedDelivery, datetime], Verdict]


class DeliveryRecords:
    """What has finished in one process, until it is written down."""

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
        """Write down what deliveries came to."""
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
        """Answers with those whose rows somebody else has locked. One that cannot be recorded holds up no other."""
        try:
            return await self._database.run(lambda conn: self._record(conn, finished, self._decide))
        except Exception as error:
            if isinstance(error, PulseError) and not isinstance(error, InvalidInput):
                raise  # trouble that is no one's
            if len(finished) > 1:
                half = len(finished) // 2
                return [*await self._record_all(finished[:half]), *await self._record_all(finished[half:])]
            log.exception("what came of alarm %s cannot be recorded", finished[0].claim.id)
            why = f"what came of its delivery cannot be recorded: {type(error).__name__}"
        return await self._database.run(
            lambda conn: self._record(conn, [_without_words(finished[0])], lambda each, _: give_up(each.claim, why))
        )

    def _decide(self, finished: FinishedDelivery, now: datetime) -> Verdict:
        return decide(finished.claim, _answered(finished.delivered), now, spread=self._spread())

    async def _record(
        self, conn: Connection, finished: Sequence[FinishedDelivery], decided: Decide
    ) -> list[FinishedDelivery]:
        now = await read_clock(conn)
        verdicts = [decided(each, now) for each in finished]
        wakes = [_wake(each) for each in finished]
        moved = await deliveries.record_wakes(conn, wakes, verdicts)
        locked: set[ClaimKey] = set()
        if left := [wake for wake in wakes if wake.claim.key not in moved]:
            locked = await deliveries.held_wakes(conn, [wake.claim for wake in left])
        self._instruments.wake_outcomes.update(
            verdict.outcome.value for wake, verdict in zip(wakes, verdicts, strict=True) if wake.claim.key in moved
        )
        if gone := [wake for wake in left if wake.claim.key not in locked]:
            outcomes = [DeliveryOutcome.FAILED if wake.error else DeliveryOutcome.DELIVERED for wake in gone]
            if late := await deliveries.log_late(conn, gone, outcomes):
                self._instruments.wake_outcomes[DeliveryOutcome.LATE.value] += late
                log.warning("%d deliveries came after their leases had ended, and are not counted", late)
        if ahead := [verdict.next_fire_at - now for verdict in verdicts if verdict.next_fire_at is not None]:
            self._notifications.notify_due_soon(min(ahead))
        return [each for each in finished if each.claim.key in locked]

    def _spread(self) -> float:
        return random.uniform(*JITTER) if self._settings.alarm_jitter else 1.0  # noqa: S311


def _answered(delivered: WakeResult) -> Answered:
    error = None if delivered.error is None else clean_error(delivered.error, ERROR_LIMIT)
    return Answered(error, delivered.is_gone, delivered.retry_after)


def _wake(finished: FinishedDelivery) -> deliveries.DeliveryRow:
    delivered = finished.delivered
    return deliveries.DeliveryRow(
        claim=finished.claim,
        started=timedelta(seconds=time.monotonic() - finished.started_at),
        duration=delivered.duration,
        code=delivered.status,
        error=_answered(delivered).error,
        answer=clean_error(delivered.answer, 1_024),
    )


def _without_words(finished: FinishedDelivery) -> FinishedDelivery:
    """As it came, but for what the endpoint had to say."""
    return finished._replace(delivered=msgspec.structs.replace(finished.delivered, answer="", error=None))
