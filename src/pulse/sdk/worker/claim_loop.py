"""Which topic does a worker ask for jobs next, and when? One that may have some, as soon as there is room, by turns."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence, Sized
from typing import TYPE_CHECKING

from pulse.model.errors import PulseError
from pulse.model.jobs import CLAIM_LIMIT, Claim, Lease
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from pulse.links.link import Link
    from pulse.sdk.worker.reporter import Reporter
    from pulse.sdk.worker.slots import Slots

log = logging.getLogger("pulse.worker")

GATHER = 0.002  # seconds to wait for more slots to become free
CLAIM_PATIENCE = 2.0  # seconds for the answer to the last claim
UNREPORTED = 4  # times the slots: more results than this on their way, and nothing new is claimed

Take = Callable[[Claim, float], None]


class ClaimLoop:
    """Asks for what can be started, and hands it over with the time until which it is held."""

    def __init__(
        self, worker: str, topics: Sequence[str], slots: Slots, held: Sized, *, tick: float, take: Take
    ) -> None:
        self._worker = worker
        self._topics = topics
        self._slots = slots
        self._held = held
        self._tick = tick  # seconds between two looks while nothing is heard
        self._take = take
        self._maybe_ready: dict[str, None] = {}
        self._is_told_to_stop = asyncio.Event()
        self._something_changed = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._is_told_to_stop.is_set()

    def stop(self) -> None:
        """Also before it runs."""
        self._is_told_to_stop.set()
        self._something_changed.set()

    def look_again(self) -> None:
        """There may be room."""
        self._something_changed.set()

    def mark_ready(self, topic: str) -> None:
        """Work may have come."""
        if topic == "*":
            self._maybe_ready |= dict.fromkeys(self._topics)
        elif topic in self._topics:
            self._maybe_ready[topic] = None
        self._something_changed.set()

    async def run(self, link: Link, reporter: Reporter) -> None:
        """Until told to stop. An answer that is on its way is waited for, but not for as long as an outage lasts."""
        self._link, self._reporter = link, reporter
        claiming = asyncio.create_task(self._claim_until_stopped())
        told = asyncio.create_task(self._is_told_to_stop.wait())
        try:
            await asyncio.wait([claiming, told], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([claiming], timeout=CLAIM_PATIENCE)
        finally:
            for task in (claiming, told):
                task.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            claiming.result()

    async def _claim_until_stopped(self) -> None:
        self.mark_ready("*")
        backoff, failures = Backoff(), 0
        while not self._is_told_to_stop.is_set():
            try:
                await self._claim_or_wait()
                failures = 0
            except PulseError as error:
                failures += 1
                log.warning("could not claim, trying again: %s", error)
                await self._wait(backoff.delay(failures).total_seconds())

    async def _claim_or_wait(self) -> None:
        topic = self._next_topic()
        if topic is None:
            if not await self._wait(self._tick) and self._has_room():
                for found in await self._link.ready_topics(self._topics):
                    self._maybe_ready[found] = None
            return
        if self._slots.for_topic(topic) < self._slots.worth_asking(topic):
            await asyncio.sleep(GATHER)
        await self._claim(topic)

    def _next_topic(self) -> str | None:
        """The topic that has waited longest among those with work and room."""
        if not self._has_room():
            return None
        return next((topic for topic in self._maybe_ready if self._slots.for_topic(topic) > 0), None)

    def _has_room(self) -> bool:
        return len(self._held) < UNREPORTED * sum(self._slots.sizes.values())

    async def _claim(self, topic: str) -> None:
        slots = min(self._slots.for_topic(topic), CLAIM_LIMIT)
        del self._maybe_ready[topic]  # before asking: what comes meanwhile puts it back
        try:
            claims, held_until = await self._link.claim(topic, worker=self._worker, slots=slots)
        except BaseException:
            self._maybe_ready[topic] = None
            raise
        if claims:
            self._maybe_ready[topic] = None  # there may be more; at the end, so that topics take turns
        if time.monotonic() > held_until:  # we stood still meanwhile: others may have them by now
            for claim in claims:
                self._reporter.release(Lease(claim.id, claim.lease_id))
            return
        for claim in claims:
            self._take(claim, held_until)
        if claims and len(claims) < slots:
            await asyncio.sleep(0)  # let them begin before the next question; with a backlog, the question goes first

    async def _wait(self, seconds: float) -> bool:
        """Until something changed (true) or the time is up. A timer may ring a little early, so it says so itself."""
        self._something_changed.clear()
        if self._is_told_to_stop.is_set():
            return True
        is_time_up = False

        def ring() -> None:
            nonlocal is_time_up
            is_time_up = True
            self._something_changed.set()

        timer = asyncio.get_running_loop().call_later(seconds, ring)
        await self._something_changed.wait()
        timer.cancel()
        return not is_time_up
