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
from pulse.model.decisions.delivery import ERROR_LIMIT, Answered, Ringing, Verdict, decide, give_up
from pulse.model.errors import InvalidInput, PulseError
from pulse.model.text import clean_error
from pulse.store import alarms as store
from pulse.store.jobs import ClaimKey, read_clock

if TYPE_CHECKING:
    from pulse.delivery.wake import Delivered
    from pulse.engine.instruments import Instruments
    from pulse.store.connections.notifications import Wakeups
    from pulse.store.connections.pool import Connection, Database

log = logging.getLogger("pulse.alarms")

RECORD_BATCH = 500
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # every delivery that ends wakes the loop
JITTER = (0.8, 1.0)  # of a step of the ladder: never longer than it, so that its longest holds


class Landed(NamedTuple):
    """A delivery that has ended."""

    ringing: Ringing
    started_at: float  # on this process's monotonic clock
    delivered: Delivered


Decide = Callable[[Landed, datetime], Verdict]


class Records:
    """What has landed in one process, until it is written down."""

    def __init__(
        self, database: Database, wakeups: Wakeups, instruments: Instruments, on_recorded: Callable[[], None]
    ) -> None:
        self.loop = Loop("record wakes", self.record)
        self.landed: list[Landed] = []
        self._database = database
        self._settings = database.settings
        self._wakeups = wakeups
        self._instruments = instruments
        self._on_recorded = on_recorded

    async def record(self) -> timedelta:
        """Write down what deliveries came to."""
        landed = self.landed[:RECORD_BATCH]
        if not landed:
            return LONGEST_SLEEP
        locked = await self._record_all(landed)
        self.landed[: len(landed)] = []
        self.landed += locked  # behind the others
        self._on_recorded()
        if not self.landed:
            return LONGEST_SLEEP
        return AT_ONCE if len(self.landed) > len(locked) else self._settings.alarm_tick

    async def _record_all(self, landed: Sequence[Landed]) -> list[Landed]:
        """Answers with those whose rows somebody else has locked. One that cannot be recorded holds up no other."""
        try:
            return await self._database.run(lambda conn: self._record(conn, landed, self._decide))
        except Exception as error:
            if isinstance(error, PulseError) and not isinstance(error, InvalidInput):
                raise  # trouble that is no one's
            if len(landed) > 1:
                half = len(landed) // 2
                return [*await self._record_all(landed[:half]), *await self._record_all(landed[half:])]
            log.exception("what came of alarm %s cannot be recorded", landed[0].ringing.id)
            why = f"what came of its delivery cannot be recorded: {type(error).__name__}"
        return await self._database.run(
            lambda conn: self._record(conn, [_without_words(landed[0])], lambda each, _: give_up(each.ringing, why))
        )

    def _decide(self, landed: Landed, now: datetime) -> Verdict:
        return decide(landed.ringing, _answered(landed.delivered), now, spread=self._spread())

    async def _record(self, conn: Connection, landed: Sequence[Landed], decided: Decide) -> list[Landed]:
        now = await read_clock(conn)
        verdicts = [decided(each, now) for each in landed]
        wakes = [_wake(each) for each in landed]
        moved = await store.record_wakes(conn, wakes, verdicts)
        locked: set[ClaimKey] = set()
        if left := [wake for wake in wakes if wake.ringing.claim not in moved]:
            locked = await store.held_wakes(conn, [wake.ringing for wake in left])
        self._instruments.wake_outcomes.update(
            verdict.outcome.value for wake, verdict in zip(wakes, verdicts, strict=True) if wake.ringing.claim in moved
        )
        if gone := [wake for wake in left if wake.ringing.claim not in locked]:
            outcomes = [DeliveryOutcome.FAILED if wake.error else DeliveryOutcome.DELIVERED for wake in gone]
            if late := await store.log_late(conn, gone, outcomes):
                self._instruments.wake_outcomes[DeliveryOutcome.LATE.value] += late
                log.warning("%d deliveries came after their leases had ended, and are not counted", late)
        if ahead := [verdict.next_fire_at - now for verdict in verdicts if verdict.next_fire_at is not None]:
            self._wakeups.wake_later(min(ahead))
        return [each for each in landed if each.ringing.claim in locked]

    def _spread(self) -> float:
        return random.uniform(*JITTER) if self._settings.alarm_jitter else 1.0  # noqa: S311


def _answered(delivered: Delivered) -> Answered:
    error = None if delivered.error is None else clean_error(delivered.error, ERROR_LIMIT)
    return Answered(error, delivered.is_gone, delivered.retry_after)


def _wake(landed: Landed) -> store.Wake:
    delivered = landed.delivered
    return store.Wake(
        ringing=landed.ringing,
        started=timedelta(seconds=time.monotonic() - landed.started_at),
        duration=delivered.duration,
        code=delivered.status,
        error=_answered(delivered).error,
        answer=clean_error(delivered.answer, 1_024),
    )


def _without_words(landed: Landed) -> Landed:
    """As it came, but for what the endpoint had to say."""
    return landed._replace(delivered=msgspec.structs.replace(landed.delivered, answer="", error=None))
