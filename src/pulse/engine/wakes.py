"""How do alarms reach their URLs? Make ready what is due, lease what there are slots for, deliver, and record.

Destinations take turns, so that one with a hundred thousand alarms, or one that never answers, keeps nobody else
waiting. What a delivery came to is recorded only under its own lease: a process that was away too long finds its lease
gone, and another delivers the same wake again, with the same id (docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from pulse.delivery.breaker import Breakers
from pulse.delivery.wake import Wake
from pulse.engine.loops import Loop
from pulse.model.alarms import DEFAULT_DESTINATION
from pulse.model.text import clean_error
from pulse.model.waking import ERROR_LIMIT, Answered, Ringing, decide
from pulse.store import alarms as store
from pulse.store.jobs import read_clock

if TYPE_CHECKING:
    from pulse.delivery.wake import Delivered
    from pulse.delivery.webhook import Deliverer
    from pulse.store.pool import Connection, Database
    from pulse.store.wakeups import Wakeups

log = logging.getLogger("pulse.alarms")

READY_BATCH = 2_000
RECORD_BATCH = 500
TURNS = 200  # destinations looked at together
SECRETS_FOR = 10.0  # seconds: a new secret signs no later than this
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and wakes this one when something is due
JITTER = (0.8, 1.2)


class Landed(NamedTuple):
    """A delivery that has ended."""

    ringing: Ringing
    started_at: float  # on this process's monotonic clock
    delivered: Delivered


class Wakes:
    """The wake duty of one process."""

    def __init__(self, database: Database, wakeups: Wakeups) -> None:
        settings = database.settings
        self.loop = Loop("wake", self.step)
        self.recording = Loop("record wakes", self.record)
        self._database = database
        self._wakeups = wakeups
        self._settings = settings
        self._deliverer: Deliverer | None = None  # opened when there is something to deliver
        self._breakers = Breakers(settings.alarm_slots_per_destination)
        self._flying: dict[asyncio.Task[None], Ringing] = {}
        self._landed: list[Landed] = []
        self._after = ""  # the destination whose turn was last
        self._secrets: list[str] = []
        self._secrets_read_at = float("-inf")

    @property
    def free_slots(self) -> int:
        """What is not recorded yet holds its slot: with the database away, there is an end to it."""
        return self._settings.alarm_slots - len(self._flying) - len(self._landed)

    async def step(self) -> timedelta:
        """Begin what can be begun; answers with how long to sleep."""
        peek = await self._database.run(store.peek_alarms, reserved=True)
        if peek.has_expired:
            await self._database.run(lambda conn: store.expire_alarms(conn, limit=READY_BATCH))
        is_due = peek.until_due is not None and peek.until_due <= AT_ONCE
        readied = await self._database.run(_make_ready) if is_due else 0
        begun = await self.ring() if readied or peek.has_ready or peek.has_expired else 0
        if begun or readied == READY_BATCH:
            return AT_ONCE
        if is_due or peek.has_ready:
            return self._settings.alarm_tick  # held by others, or their destinations have all they may
        return min(LONGEST_SLEEP, peek.until_due) if peek.until_due is not None else LONGEST_SLEEP

    # --- beginning

    async def ring(self) -> int:
        """Lease as many as there are slots, by turns, and begin to deliver them; answers with how many."""
        wanted = min(self._settings.alarm_batch, self.free_slots)
        if wanted <= 0:
            return 0
        destinations = await self._database.run(self._next_destinations)
        await self._defer(destinations)
        quotas = share(destinations, wanted, self._may_start)
        if not quotas:
            return 0
        self._after = list(quotas)[-1]
        lease = self._settings.alarm_lease
        claims = await self._database.run(
            lambda conn: store.claim_alarms(conn, destinations=list(quotas), quotas=list(quotas.values()), lease=lease)
        )
        if claims:
            await self._refresh_secrets()
            deliverer = await self._open_deliverer()
            for ringing in claims:
                self._begin(ringing, deliverer)
        return len(claims)

    async def _next_destinations(self, conn: Connection) -> list[str]:
        """From the one after the last, and round to it."""
        found = await store.ready_destinations(conn, after=self._after, limit=TURNS)
        if len(found) < TURNS and self._after:
            found += await store.ready_destinations(conn, after="", limit=TURNS - len(found))
        return list(dict.fromkeys(found))

    def _may_start(self, destination: str) -> int:
        if destination == DEFAULT_DESTINATION and self._settings.alarm_target is None:
            return 0  # another process knows where that is
        return self._breakers.may_start(destination)

    async def _defer(self, destinations: Sequence[str]) -> None:
        """What would go to a destination that is known to be down waits, and says why."""
        closed = [self._closed(each, wait) for each in destinations if (wait := self._breakers.open_until(each))]
        if closed:
            await self._database.run(lambda conn: store.defer_alarms(conn, closed, limit=READY_BATCH))

    def _closed(self, destination: str, wait: float) -> store.Closed:
        why = f"deferred: {destination} is not called for now ({self._breakers.reason(destination)})"
        return store.Closed(destination, timedelta(seconds=wait), clean_error(why, ERROR_LIMIT))

    async def _refresh_secrets(self) -> None:
        if time.monotonic() - self._secrets_read_at > SECRETS_FOR:
            self._secrets = [each.secret for each in await self._database.run(store.wake_secrets)]
            self._secrets_read_at = time.monotonic()

    async def _open_deliverer(self) -> Deliverer:
        if self._deliverer is None:
            from pulse.delivery.webhook import Deliverer  # a tenth of a second that others need not wait for

            self._deliverer = await Deliverer(self._settings).open()
        return self._deliverer

    def _begin(self, ringing: Ringing, deliverer: Deliverer) -> None:
        self._breakers.started(ringing.destination)
        task = asyncio.create_task(self._deliver(ringing, deliverer))
        self._flying[task] = ringing
        task.add_done_callback(self._ended)

    async def _deliver(self, ringing: Ringing, deliverer: Deliverer) -> None:
        started_at = time.monotonic()
        wake = Wake(id=ringing.wake_id, url=ringing.url, body=ringing.body(), headers=ringing.headers)
        delivered = await deliverer.deliver(wake, secrets=self._secrets)
        self._landed.append(Landed(ringing, started_at, delivered))

    def _ended(self, task: asyncio.Task[None]) -> None:
        ringing = self._flying[task]
        if task.cancelled():
            return  # `stop` gives it back
        del self._flying[task]
        if (error := task.exception()) is not None:  # a mistake of ours: the lease will end, and it is tried again
            log.error("delivering alarm %s failed", ringing.id, exc_info=error)
            self._breakers.ended(ringing.destination, ok=True)
            return
        delivered = self._landed[-1].delivered
        self._breakers.ended(ringing.destination, ok=is_alive(delivered), error=delivered.error or "")
        self.recording.wake_within(AT_ONCE)

    # --- recording

    async def record(self) -> timedelta:
        """Write down what deliveries came to."""
        landed = self._landed[:RECORD_BATCH]
        if not landed:
            return LONGEST_SLEEP
        await self._database.run(lambda conn: self._record(conn, landed))
        del self._landed[: len(landed)]
        self.loop.wake_within(AT_ONCE)
        return AT_ONCE if self._landed else LONGEST_SLEEP

    async def _record(self, conn: Connection, landed: Sequence[Landed]) -> None:
        now = await read_clock(conn)
        verdicts = [decide(each.ringing, _answered(each.delivered), now, spread=self._spread()) for each in landed]
        wakes = [_wake(each) for each in landed]
        moved = await store.record_wakes(conn, wakes, verdicts)
        if late := [wake for wake in wakes if wake.ringing.id not in moved]:
            log.warning("%d deliveries came after their leases had ended, and are not counted", len(late))
            await store.log_late(conn, late)
        if ahead := [verdict.next_fire_at - now for verdict in verdicts if verdict.next_fire_at is not None]:
            self._wakeups.wake_later(min(ahead))

    def _spread(self) -> float:
        return random.uniform(*JITTER) if self._settings.alarm_jitter else 1.0  # noqa: S311

    # --- ending

    async def stop(self, patience: float) -> None:
        """Record what was delivered, and give back the rest."""
        if self._flying:
            await asyncio.wait(list(self._flying), timeout=patience)
        for task in list(self._flying):
            task.cancel()
        if self._flying:
            await asyncio.wait(list(self._flying))
        unfinished, self._flying = list(self._flying.values()), {}
        if unfinished:
            await self._database.run(lambda conn: store.release_alarms(conn, unfinished))
        while self._landed:
            await self.record()
        if self._deliverer is not None:
            await self._deliverer.close()
            self._deliverer = None


def share(destinations: Sequence[str], wanted: int, may_start: Callable[[str], int]) -> dict[str, int]:
    """How many each may have, in the order of their turns: as many rounds as it takes to give out all there is."""
    room = {destination: most for destination in destinations if (most := may_start(destination)) > 0}
    quotas: dict[str, int] = {}
    while room and wanted > 0:
        each = max(1, wanted // len(room))
        for destination in list(room):
            given = min(each, room[destination], wanted)
            if given == 0:
                break
            quotas[destination] = quotas.get(destination, 0) + given
            wanted -= given
            room[destination] -= given
            if room[destination] == 0:
                del room[destination]
    return quotas


def is_alive(delivered: Delivered) -> bool:
    """Whether the destination as such is well: one that refuses this wake may take another."""
    return delivered.status is not None and delivered.status < 500 and delivered.status != 429


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


async def _make_ready(conn: Connection) -> int:
    return await store.ready_alarms(conn, limit=READY_BATCH)
