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
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from pulse.delivery.breaker import Breakers
from pulse.delivery.wake import Wake
from pulse.engine.loops import Loop
from pulse.engine.masks import mask_delivered
from pulse.model.alarms import DEFAULT_DESTINATION, DeliveryOutcome
from pulse.model.errors import InvalidInput, PulseError
from pulse.model.text import clean_error
from pulse.model.waking import ERROR_LIMIT, Answered, Ringing, Verdict, decide, give_up
from pulse.store import alarms as store
from pulse.store.jobs import read_clock

if TYPE_CHECKING:
    from pulse.delivery.wake import Delivered
    from pulse.delivery.webhook import Deliverer
    from pulse.engine.instruments import Instruments
    from pulse.store.pool import Connection, Database
    from pulse.store.wakeups import Wakeups

log = logging.getLogger("pulse.alarms")

READY_BATCH = 2_000
RECORD_BATCH = 500
TURNS = 200  # destinations looked at together
LANES = 3  # claims at a time, in a rush: what takes long is not the database, but to be heard among deliveries
RUSH = 0.1  # seconds for which a look at them serves
SECRETS_FOR = 10.0  # seconds: a new secret signs no later than this
AT_ONCE = timedelta()
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and wakes this one when something is due
JITTER = (0.8, 1.2)
RESERVED = 4  # one slot in so many is for destinations with nothing in flight: a dozen that hang must not take all
SETTLING = 15.0  # seconds after an outage in which the living may record what they have delivered


class Landed(NamedTuple):
    """A delivery that has ended."""

    ringing: Ringing
    started_at: float  # on this process's monotonic clock
    delivered: Delivered


Decide = Callable[[Landed, datetime], Verdict]


class Wakes:
    """The wake duty of one process."""

    def __init__(self, database: Database, wakeups: Wakeups, instruments: Instruments) -> None:
        settings = database.settings
        self._instruments = instruments
        self.loop = Loop("wake", self.step)
        self.readying = Loop("ready alarms", self.ready)
        self.recording = Loop("record wakes", self.record)
        self._database = database
        self._wakeups = wakeups
        self._settings = settings
        self._deliverer: Deliverer | None = None  # opened when there is something to deliver
        self._breakers = Breakers(settings.alarm_slots_per_destination)
        self._flying: dict[asyncio.Task[Delivered], Ringing] = {}
        self._landed: list[Landed] = []
        self._turns: list[str] = []  # destinations that have alarms ready, the next one first
        self._after = ""  # where the next look for such goes on
        self._looked_at = float("-inf")
        self._secrets: list[str] = []
        self._secrets_read_at = float("-inf")
        self._settles_at = float("-inf")

    @property
    def free_slots(self) -> int:
        """None while as many are unrecorded as there are slots: with the database away, there is an end to it."""
        slots = self._settings.alarm_slots
        return slots - len(self._flying) if len(self._landed) < slots else 0

    @property
    def _free_for_all(self) -> int:
        """Also for destinations that have something in flight."""
        return self.free_slots - self._settings.alarm_slots // RESERVED

    async def step(self) -> timedelta:
        """Begin what can be begun; answers with how long to sleep."""
        if self._turns and time.monotonic() - self._looked_at < RUSH:  # one look is enough for many claims
            return AT_ONCE if await self.ring() else timedelta(seconds=RUSH)
        return await self._look()

    async def _look(self) -> timedelta:
        peek = await self._database.run(store.peek_alarms, reserved=True)
        if peek.has_expired and self._has_settled():
            await self._database.run(lambda conn: store.expire_alarms(conn, limit=READY_BATCH))
        is_due = peek.until_due is not None and peek.until_due <= AT_ONCE
        readied = await self._ready_some() if is_due else 0
        begun = 0
        if readied or peek.has_ready or peek.has_expired:
            await self._database.run(self._find_turns)
            begun = await self.ring()
        if begun:
            return AT_ONCE
        if is_due or peek.has_ready:
            return self._settings.alarm_tick  # held by others, or their destinations have all they may
        return min(LONGEST_SLEEP, peek.until_due) if peek.until_due is not None else LONGEST_SLEEP

    async def _ready_some(self) -> int:
        """At once where nothing else is to do; else beside it, so that claims need not wait for it."""
        if not self._flying:
            return await self._database.run(_make_ready)
        self.readying.wake_within(AT_ONCE)
        return 0

    async def ready(self) -> timedelta:
        """Make ready what is due."""
        readied = await self._database.run(_make_ready)
        if readied:
            self.loop.wake_within(AT_ONCE)
        return AT_ONCE if readied == READY_BATCH else LONGEST_SLEEP

    def _has_settled(self) -> bool:
        """After an outage every lease looks expired, though most of their holders are alive and about to record."""
        now = time.monotonic()
        if self.loop.failures or self.recording.failures:
            self._settles_at = now + SETTLING
        return now >= self._settles_at

    # --- beginning

    async def ring(self) -> int:
        """Lease as many as there are slots, by turns, and begin to deliver them; answers with how many."""
        free = self.free_slots
        wanted = min(LANES * self._settings.alarm_batch, free)
        if wanted <= 0:
            return 0
        kept = max(0, self._settings.alarm_slots // RESERVED - (free - wanted))
        await self._defer()
        quotas = share(self._turns, wanted, self._may_start, is_busy=self._breakers.in_flight, kept=kept)
        if not quotas:
            return 0
        await self._refresh_secrets()
        deliverer = await self._open_deliverer()
        lanes = [self._claim(part) for part in parts_of(quotas, self._settings.alarm_batch)]
        found = await asyncio.gather(*lanes, return_exceptions=True)
        claims = [ringing for part in found if not isinstance(part, BaseException) for ringing in part]
        for ringing in claims:  # nothing may fail before: they are leased
            self._begin(ringing, deliverer)
        for ringing in claims:
            self._instruments.wakes.note(max(0.0, ringing.lateness.total_seconds()))
        for error in found:
            if isinstance(error, BaseException):
                raise error
        self._end_turns(quotas, claims)
        return len(claims)

    async def _claim(self, quotas: dict[str, int]) -> list[Ringing]:
        lease = self._settings.alarm_lease
        return await self._database.run(
            lambda conn: store.claim_alarms(conn, destinations=list(quotas), quotas=list(quotas.values()), lease=lease)
        )

    async def _find_turns(self, conn: Connection) -> None:
        """Who has alarms ready: so many, from where the last look ended, and round to it."""
        found = await store.ready_destinations(conn, after=self._after, limit=TURNS)
        if len(found) < TURNS and self._after:
            found += await store.ready_destinations(conn, after="", limit=TURNS - len(found))
        self._after = found[-1] if len(found) == TURNS else ""
        known = set(self._turns)
        self._turns = [*(each for each in found if each not in known), *self._turns][: 2 * TURNS]
        self._looked_at = time.monotonic()

    def _end_turns(self, quotas: dict[str, int], claims: Sequence[Ringing]) -> None:
        """Those who had their turn go to the end, and those who had less than they might, out: they have no more."""
        claimed = Counter(ringing.destination for ringing in claims)
        again = [each for each, quota in quotas.items() if claimed[each] == quota]
        self._turns = [*(each for each in self._turns if each not in quotas), *again]

    def _may_start(self, destination: str) -> int:
        if destination == DEFAULT_DESTINATION and self._settings.alarm_target is None:
            return 0  # another process knows where that is
        return self._breakers.may_start(destination)

    async def _defer(self) -> None:
        """What would go to a destination that is known to be down waits, and says why."""
        closed = [self._closed(each, wait) for each in self._turns if (wait := self._breakers.open_until(each))]
        if closed:
            await self._database.run(lambda conn: store.defer_alarms(conn, closed, limit=READY_BATCH))
            down = {each.destination for each in closed}
            self._turns = [each for each in self._turns if each not in down]

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

    async def _deliver(self, ringing: Ringing, deliverer: Deliverer) -> Delivered:
        started_at = time.monotonic()
        wake = Wake(id=ringing.wake_id, url=ringing.url, body=ringing.body(), headers=ringing.headers)
        answered = await deliverer.deliver(wake, secrets=self._secrets)
        delivered = mask_delivered(self._settings.redaction, answered, ringing.payload)
        self._landed.append(Landed(ringing, started_at, delivered))
        return delivered

    def _ended(self, task: asyncio.Task[Delivered]) -> None:
        ringing = self._flying[task]
        if task.cancelled():
            return  # `stop` gives it back
        del self._flying[task]
        if (error := task.exception()) is not None:  # a mistake of ours: the lease will end, and it is tried again
            log.error("delivering alarm %s failed", ringing.id, exc_info=error)
            self._breakers.ended(ringing.destination, ok=True)
            return
        delivered = task.result()  # others may have landed since
        self._breakers.ended(ringing.destination, ok=is_alive(delivered), error=delivered.error or "")
        self.recording.wake_within(AT_ONCE)
        if self._turns and self._free_for_all * 2 >= self._settings.alarm_batch:
            self.loop.wake_within(AT_ONCE)

    # --- recording

    async def record(self) -> timedelta:
        """Write down what deliveries came to."""
        landed = self._landed[:RECORD_BATCH]
        if not landed:
            return LONGEST_SLEEP
        locked = await self._record_all(landed)
        self._landed[: len(landed)] = []
        self._landed += locked  # behind the others
        self.loop.wake_within(AT_ONCE)
        if not self._landed:
            return LONGEST_SLEEP
        return AT_ONCE if len(self._landed) > len(locked) else self._settings.alarm_tick

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
        locked: set[UUID] = set()
        if left := [wake for wake in wakes if wake.ringing.id not in moved]:
            locked = await store.held_wakes(conn, [wake.ringing for wake in left])
        self._instruments.wake_outcomes.update(
            verdict.outcome.value for wake, verdict in zip(wakes, verdicts, strict=True) if wake.ringing.id in moved
        )
        if gone := [wake for wake in left if wake.ringing.id not in locked]:
            outcomes = [DeliveryOutcome.FAILED if wake.error else DeliveryOutcome.DELIVERED for wake in gone]
            if late := await store.log_late(conn, gone, outcomes):
                self._instruments.wake_outcomes[DeliveryOutcome.LATE.value] += late
                log.warning("%d deliveries came after their leases had ended, and are not counted", late)
        if ahead := [verdict.next_fire_at - now for verdict in verdicts if verdict.next_fire_at is not None]:
            self._wakeups.wake_later(min(ahead))
        return [each for each in landed if each.ringing.id in locked]

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


def share(
    destinations: Sequence[str],
    wanted: int,
    may_start: Callable[[str], int],
    *,
    is_busy: Callable[[str], object] = lambda _: False,
    kept: int = 0,
) -> dict[str, int]:
    """How many each may have, in the order of their turns: as many rounds as it takes to give out all there is.

    `kept` of them are for destinations that are not busy, and for one delivery of each.
    """
    room = {destination: most for destination in destinations if (most := may_start(destination)) > 0}
    quotas = dict.fromkeys([each for each in room if not is_busy(each)][:wanted], 1)
    room = {destination: left for destination, most in room.items() if (left := most - quotas.get(destination, 0))}
    wanted -= kept + len(quotas)
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


def parts_of(quotas: dict[str, int], most: int) -> list[dict[str, int]]:
    """As many claims as it takes, so that none is for more than so many."""
    parts: list[dict[str, int]] = [{}]
    room = most
    for destination, quota in quotas.items():
        left = quota
        while left:
            if room == 0:
                parts.append({})
                room = most
            taken = min(left, room)
            parts[-1][destination] = taken
            left, room = left - taken, room - taken
    return parts


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


def _without_words(landed: Landed) -> Landed:
    """As it came, but for what the endpoint had to say."""
    return landed._replace(delivered=msgspec.structs.replace(landed.delivered, answer="", error=None))


async def _make_ready(conn: Connection) -> int:
    return await store.ready_alarms(conn, limit=READY_BATCH)
