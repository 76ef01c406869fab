"""How are due alarms delivered? They are made ready, leased as slots are free, and sent.

turns.py decides whose turn it is, and records.py writes down the results (docs/decisions/0028).
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
from pulse.engine.alarms.turns import RUSH, OwnerTurns, split_quotas
from pulse.engine.alarms.use_cases import read_owner_secrets
from pulse.engine.duties.loops import Loop
from pulse.engine.masks import hide_headers, mask_one, mask_result
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
LANES = 3  # claims at a time under load: they wait less for the database than for their turn on the event loop
SECRETS_FOR = 10.0  # seconds for which secrets are cached: a new one signs no later than this
SHARED = (
    "wakes of all owners are still signed with one secret, too, so that any receiver can sign for all of them: run "
    "`pulse alarms secret rotate --overlap 30d`, and give each receiver the secret of its owner within that time"
)
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and runs this one when something is due
RESERVED = 4  # one slot in this many is for destinations with nothing in flight: a dozen that hang must not take all
OTHERS = 8  # one slot in this many, among the reserved, is for owners with nothing in flight
SETTLING = 15.0  # seconds after an outage in which running processes may still record their deliveries


class DeliveryDuty:
    """The duty of one process that delivers alarms."""

    def __init__(self, database: Database, notifications: Notifications, instruments: Instruments) -> None:
        settings = database.settings
        self._instruments = instruments
        self.loop = Loop("wake", self.step)
        self.ready_loop = Loop("ready alarms", self.ready)
        self.records = DeliveryRecords(database, notifications, instruments, lambda: self.loop.run_within(AT_ONCE))
        self._database = database
        self._settings = settings
        self._deliverer: Deliverer | None = None  # opened for the first delivery
        self._breakers = Breakers(settings.alarm_slots_per_destination)
        self._turns = OwnerTurns(database, self._breakers)
        self._in_flight: dict[asyncio.Task[WakeResult], AlarmClaim] = {}
        self._secrets = OwnerSecrets([], [])
        self._has_warned = False
        self._secrets_read_at = float("-inf")
        self._settles_at = float("-inf")

    @property
    def free_slots(self) -> int:
        """Return the number of free slots: none while as many results are unrecorded as there are slots, so that
        deliveries stop when the database is away."""
        slots = self._settings.alarm_slots
        return slots - len(self._in_flight) if len(self.records.finished) < slots else 0

    @property
    def _free_for_all(self) -> int:
        """Return the number of free slots that are not reserved for idle destinations."""
        return self.free_slots - self._settings.alarm_slots // RESERVED

    async def step(self) -> timedelta:
        """Begin as many deliveries as possible, and return how long to sleep."""
        if self._turns.are_known:
            return AT_ONCE if await self.claim_and_deliver() else timedelta(seconds=RUSH)
        return await self._find_and_deliver()

    async def _find_and_deliver(self) -> timedelta:
        peek = await self._database.run_duty(peeks.peek_alarms)
        if peek.has_expired and self._has_settled():
            await self._database.run(lambda conn: duties.expire_alarms(conn, limit=READY_BATCH))
        is_due = peek.until_due is not None and peek.until_due <= AT_ONCE
        readied = await self._ready_some() if is_due else 0
        started = 0
        if readied or peek.has_ready or peek.has_expired:
            await self._turns.find()
            started = await self.claim_and_deliver()
        if started:
            return AT_ONCE
        if is_due or peek.has_ready:
            return self._settings.alarm_tick  # others have locked them, or their destinations have no free slot
        return min(LONGEST_SLEEP, peek.until_due) if peek.until_due is not None else LONGEST_SLEEP

    async def _ready_some(self) -> int:
        """Make due alarms ready now if nothing is in flight; otherwise in a loop of its own, so that claims do not wait
        for it. Return how many are ready now."""
        if not self._in_flight:
            return await self._database.run(_make_ready)
        self.ready_loop.run_within(AT_ONCE)
        return 0

    async def ready(self) -> timedelta:
        """Make due alarms ready, and return how long to sleep."""
        readied = await self._database.run(_make_ready)
        if readied:
            self.loop.run_within(AT_ONCE)
        return AT_ONCE if readied == READY_BATCH else LONGEST_SLEEP

    def _has_settled(self) -> bool:
        """Tell whether expired leases may be taken away. After an outage all of them look expired, though most of their
        holders are alive and about to record."""
        now = time.monotonic()
        if self.loop.failures or self.records.loop.failures:
            self._settles_at = now + SETTLING
        return now >= self._settles_at

    # --- starting deliveries

    async def claim_and_deliver(self) -> int:
        """Lease as many alarms as there are slots, by turns, start to deliver them, and return how many."""
        free = self.free_slots
        wanted = min(LANES * self._settings.alarm_batch, free)
        if wanted <= 0:
            return 0
        await self._turns.defer()
        slots, unused = self._settings.alarm_slots, free - wanted
        quotas = self._turns.quotas(
            wanted, reserved=max(0, slots // RESERVED - unused), for_others=max(0, slots // OTHERS - unused)
        )
        if not quotas:
            return 0
        await self._refresh_secrets()
        deliverer = await self._open_deliverer()
        lanes = [self._claim(part) for part in split_quotas(quotas, self._settings.alarm_batch)]
        results = await asyncio.gather(*lanes, return_exceptions=True)
        claims = [claim for part in results if not isinstance(part, BaseException) for claim in part]
        for claim in claims:  # before anything else that may fail, since these are leased
            self._start(claim, deliverer)
        for claim in claims:
            self._instruments.wakes.note(max(0.0, claim.lateness.total_seconds()))
        for error in results:
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
            from pulse.delivery.webhook import Deliverer  # imported late: this takes a tenth of a second

            self._deliverer = await Deliverer(self._settings).open()
        return self._deliverer

    def _start(self, claim: AlarmClaim, deliverer: Deliverer) -> None:
        self._breakers.started(claim.destination)
        self._turns.started(claim.owner)
        task = asyncio.create_task(self._deliver(claim, deliverer))
        self._in_flight[task] = claim
        task.add_done_callback(self._on_delivered)

    async def _deliver(self, claim: AlarmClaim, deliverer: Deliverer) -> WakeResult:
        started_at = time.monotonic()
        wake = WakeRequest(id=claim.wake_id, url=claim.url, body=claim.body(), headers=claim.headers, owner=claim.owner)
        result = await deliverer.deliver(wake, secrets=self._secrets.signing(claim.owner))
        result = hide_headers(result, claim.headers, self._settings.alarm_token)
        result = await mask_one(
            self._settings.redaction, lambda redaction, row: mask_result(redaction, row, claim.payload), result
        )
        self.records.finished.append(FinishedDelivery(claim, started_at, result))
        return result

    def _on_delivered(self, task: asyncio.Task[WakeResult]) -> None:
        claim = self._in_flight[task]
        if task.cancelled():
            return  # `stop` releases the claim
        del self._in_flight[task]
        self._turns.ended(claim.owner)
        if (error := task.exception()) is not None:  # a bug in Pulse: the lease ends, and the delivery is tried again
            log.error("delivering alarm %s failed unexpectedly", claim.id, exc_info=error)
            self._breakers.ended(claim.destination, ok=True)
            return
        result = task.result()
        self._breakers.ended(claim.destination, ok=is_alive(result), error=result.error or "")
        self.records.loop.run_within(AT_ONCE)
        if self._turns.waiting and self._free_for_all * 2 >= self._settings.alarm_batch:
            self.loop.run_within(AT_ONCE)

    # --- stopping

    async def stop(self, patience: float) -> None:
        """Record the deliveries that end within `patience`, and release the other claims."""
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


def is_alive(result: WakeResult) -> bool:
    """Tell whether the destination works: one that refuses this wake may accept another."""
    return result.status is not None and result.status < 500 and result.status != 429


async def _make_ready(conn: Connection) -> int:
    return await duties.ready_alarms(conn, limit=READY_BATCH)
