"""How do alarms reach their URLs? Make ready what is due, lease what there are slots for, and deliver.

Whose turn it is, wake_turns.py knows; what a delivery came to, wake_records.py writes down (docs/decisions/0028).
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.delivery.breaker import Breakers
from pulse.delivery.signing import OwnerSecrets
from pulse.delivery.wake import WakeRequest
from pulse.engine.alarms.records import DeliveryRecords, FinishedDelivery
from pulse.engine.alarms.turns import RUSH, OwnerTurns, parts_of
from pulse.engine.alarms.use_cases import read_owner_secrets
from pulse.engine.duties.loops import Loop
from pulse.engine.masks import hide_headers, mask_delivered, mask_one
from pulse.store.alarms import deliveries, duties
from pulse.store.duties import peeks

if TYPE_CHECKING:
    from pulse.delivery.wake import WakeResult
    from pulse.delivery.webhook import Deliverer
    from pulse.engine.instruments import Instruments
    from pulse.model.decisions.delivery import AlarmClaim
    from pulse.store.alarms.deliveries import Turn
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database

log = logging.getLogger("pulse.alarms")

READY_BATCH = 2_000
LANES = 3  # claims at a time, in a rush: what takes long is not the database, but to be heard among deliveries
SECRETS_FOR = 10.0  # seconds: a new secret signs no later than this
SHARED = (
    "wakes of all owners are still signed with one secret, too, so that any receiver can sign for all of them: run "
    "`pulse alarms secret rotate --overlap 30d`, and give each receiver the secret of its owner within that time"
)
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and wakes this one when something is due
RESERVED = 4  # one slot in so many is for destinations with nothing in flight: a dozen that hang must not take all
OTHERS = 8  # and of those one in so many of all is for owners with nothing in flight, whatever hangs for another
SETTLING = 15.0  # seconds after an outage in which the living may record what they have delivered


class DeliveryDuty:
    """The wake duty of one process."""

    def __init__(self, database: Database, notifications: Notifications, instruments: Instruments) -> None:
        settings = database.settings
        self._instruments = instruments
        self.loop = Loop("wake", self.step)
        self.ready_loop = Loop("ready alarms", self.ready)
        self.records = DeliveryRecords(database, notifications, instruments, lambda: self.loop.run_within(AT_ONCE))
        self._database = database
        self._settings = settings
        self._deliverer: Deliverer | None = None  # opened when there is something to deliver
        self._breakers = Breakers(settings.alarm_slots_per_destination)
        self._turns = OwnerTurns(database, self._breakers)
        self._in_flight: dict[asyncio.Task[WakeResult], AlarmClaim] = {}
        self._secrets = OwnerSecrets([], [])
        self._has_warned = False
        self._secrets_read_at = float("-inf")
        self._settles_at = float("-inf")

    @property
    def free_slots(self) -> int:
        """None while as many are unrecorded as there are slots: with the database away, there is an end to it."""
        slots = self._settings.alarm_slots
        return slots - len(self._in_flight) if len(self.records.finished) < slots else 0

    @property
    def _free_for_all(self) -> int:
        """Also for destinations that have something in flight."""
        return self.free_slots - self._settings.alarm_slots // RESERVED

    async def step(self) -> timedelta:
        """Begin what can be begun; answers with how long to sleep."""
        if self._turns.are_known:
            return AT_ONCE if await self.claim_and_deliver() else timedelta(seconds=RUSH)
        return await self._look()

    async def _look(self) -> timedelta:
        peek = await self._database.run_duty(peeks.peek_alarms)
        if peek.has_expired and self._has_settled():
            await self._database.run(lambda conn: duties.expire_alarms(conn, limit=READY_BATCH))
        is_due = peek.until_due is not None and peek.until_due <= AT_ONCE
        readied = await self._ready_some() if is_due else 0
        begun = 0
        if readied or peek.has_ready or peek.has_expired:
            await self._turns.find()
            begun = await self.claim_and_deliver()
        if begun:
            return AT_ONCE
        if is_due or peek.has_ready:
            return self._settings.alarm_tick  # held by others, or their destinations have all they may
        return min(LONGEST_SLEEP, peek.until_due) if peek.until_due is not None else LONGEST_SLEEP

    async def _ready_some(self) -> int:
        """At once where nothing else is to do; else beside it, so that claims need not wait for it."""
        if not self._in_flight:
            return await self._database.run(_make_ready)
        self.ready_loop.run_within(AT_ONCE)
        return 0

    async def ready(self) -> timedelta:
        """Make ready what is due."""
        readied = await self._database.run(_make_ready)
        if readied:
            self.loop.run_within(AT_ONCE)
        return AT_ONCE if readied == READY_BATCH else LONGEST_SLEEP

    def _has_settled(self) -> bool:
        """After an outage every lease looks expired, though most of their holders are alive and about to record."""
        now = time.monotonic()
        if self.loop.failures or self.records.loop.failures:
            self._settles_at = now + SETTLING
        return now >= self._settles_at

    # --- beginning

    async def claim_and_deliver(self) -> int:
        """Lease as many as there are slots, by turns, and begin to deliver them; answers with how many."""
        free = self.free_slots
        wanted = min(LANES * self._settings.alarm_batch, free)
        if wanted <= 0:
            return 0
        await self._turns.defer()
        slots, unused = self._settings.alarm_slots, free - wanted
        quotas = self._turns.quotas(
            wanted, kept=max(0, slots // RESERVED - unused), for_others=max(0, slots // OTHERS - unused)
        )
        if not quotas:
            return 0
        await self._refresh_secrets()
        deliverer = await self._open_deliverer()
        lanes = [self._claim(part) for part in parts_of(quotas, self._settings.alarm_batch)]
        found = await asyncio.gather(*lanes, return_exceptions=True)
        claims = [claim for part in found if not isinstance(part, BaseException) for claim in part]
        for claim in claims:  # nothing may fail before: they are leased
            self._begin(claim, deliverer)
        for claim in claims:
            self._instruments.wakes.note(max(0.0, claim.lateness.total_seconds()))
        for error in found:
            if isinstance(error, BaseException):
                raise error
        self._turns.end(quotas, claims)
        return len(claims)

    async def _claim(self, quotas: dict[Turn, int]) -> list[AlarmClaim]:
        lease = self._settings.alarm_lease
        return await self._database.run(lambda conn: deliveries.claim_alarms(conn, quotas, lease=lease))

    async def _refresh_secrets(self) -> None:
        if time.monotonic() - self._secrets_read_at > SECRETS_FOR:
            self._secrets = await self._database.run(read_owner_secrets)
            self._secrets_read_at = time.monotonic()
            if self._secrets.has_shared and not self._has_warned:
                self._has_warned = True
                log.warning(SHARED)

    async def _open_deliverer(self) -> Deliverer:
        if self._deliverer is None:
            from pulse.delivery.webhook import Deliverer  # a tenth of a second that others need not wait for

            self._deliverer = await Deliverer(self._settings).open()
        return self._deliverer

    def _begin(self, claim: AlarmClaim, deliverer: Deliverer) -> None:
        self._breakers.started(claim.destination)
        self._turns.started(claim.owner)
        task = asyncio.create_task(self._deliver(claim, deliverer))
        self._in_flight[task] = claim
        task.add_done_callback(self._ended)

    async def _deliver(self, claim: AlarmClaim, deliverer: Deliverer) -> WakeResult:
        started_at = time.monotonic()
        wake = WakeRequest(id=claim.wake_id, url=claim.url, body=claim.body(), headers=claim.headers, owner=claim.owner)
        answered = await deliverer.deliver(wake, secrets=self._secrets.signing(claim.owner))
        answered = hide_headers(answered, claim.headers, self._settings.alarm_token)
        delivered = await mask_one(
            self._settings.redaction, lambda redaction, row: mask_delivered(redaction, row, claim.payload), answered
        )
        self.records.finished.append(FinishedDelivery(claim, started_at, delivered))
        return delivered

    def _ended(self, task: asyncio.Task[WakeResult]) -> None:
        claim = self._in_flight[task]
        if task.cancelled():
            return  # `stop` gives it back
        del self._in_flight[task]
        self._turns.ended(claim.owner)
        if (error := task.exception()) is not None:  # a mistake of ours: the lease will end, and it is tried again
            log.error("delivering alarm %s failed", claim.id, exc_info=error)
            self._breakers.ended(claim.destination, ok=True)
            return
        delivered = task.result()  # others may have finished since
        self._breakers.ended(claim.destination, ok=is_alive(delivered), error=delivered.error or "")
        self.records.loop.run_within(AT_ONCE)
        if self._turns.waiting and self._free_for_all * 2 >= self._settings.alarm_batch:
            self.loop.run_within(AT_ONCE)

    # --- ending

    async def stop(self, patience: float) -> None:
        """Record what was delivered, and give back the rest."""
        if self._in_flight:
            await asyncio.wait(list(self._in_flight), timeout=patience)
        for task in list(self._in_flight):
            task.cancel()
        if self._in_flight:
            await asyncio.wait(list(self._in_flight))
        unfinished, self._in_flight = list(self._in_flight.values()), {}
        if unfinished:
            await self._database.run(lambda conn: deliveries.release_alarms(conn, unfinished))
        while self.records.finished:
            await self.records.record()
        if self._deliverer is not None:
            await self._deliverer.close()
            self._deliverer = None


def is_alive(delivered: WakeResult) -> bool:
    """Whether the destination as such is well: one that refuses this wake may take another."""
    return delivered.status is not None and delivered.status < 500 and delivered.status != 429


async def _make_ready(conn: Connection) -> int:
    return await duties.ready_alarms(conn, limit=READY_BATCH)
