"""When does a worker claim jobs, and of which topic? As soon as a slot is free, of ready topics in turn."""

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
MAX_HELD = 4  # times the slots: a worker that holds more jobs, most of them unreported, claims no more

Take = Callable[[Claim, float], None]


class ClaimLoop:
    """Claims jobs that can be started, and passes each on with the time until which it is held."""

    def __init__(
        self, worker: str, topics: Sequence[str], slots: Slots, held: Sized, *, tick: float, take: Take
    ) -> None:
        self._worker = worker
        self._topics = topics
        self._slots = slots
        self._held = held
        self._tick = tick  # seconds between two checks when no notification arrives
        self._take = take
        self._maybe_ready: dict[str, None] = {}
        self._stop_requested = asyncio.Event()
        self._something_changed = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        return self._stop_requested.is_set()

    def stop(self) -> None:
        """Claim no more jobs. It may be called before `run`."""
        self._stop_requested.set()
        self._something_changed.set()

    def mark_slot_free(self) -> None:
        """Check again for jobs to claim, because a slot may be free now."""
        self._something_changed.set()

    def mark_ready(self, topic: str) -> None:
        """Check a topic for jobs, or all topics for "*"."""
        if topic == "*":
            self._maybe_ready |= dict.fromkeys(self._topics)
        elif topic in self._topics:
            self._maybe_ready[topic] = None
        self._something_changed.set()

    async def run(self, link: Link, reporter: Reporter) -> None:
        """Claim jobs until `stop` is called. A claim under way is awaited, but only briefly in case of an outage."""
        self._link, self._reporter = link, reporter
        claiming = asyncio.create_task(self._claim_until_stopped())
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait([claiming, stopping], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([claiming], timeout=CLAIM_PATIENCE)
        finally:
            for task in (claiming, stopping):
                task.cancel()
        await asyncio.wait([claiming])
        if not claiming.cancelled():
            claiming.result()

    async def _claim_until_stopped(self) -> None:
        self.mark_ready("*")
        backoff, failures = Backoff(), 0
        while not self._stop_requested.is_set():
            try:
                await self._claim_or_wait()
                failures = 0
            except PulseError as error:
                failures += 1
                log.warning("jobs could not be claimed, trying again: %s", error)
                await self._wait(backoff.delay(failures).total_seconds())

    async def _claim_or_wait(self) -> None:
        topic = self._next_topic()
        if topic is None:
            if not await self._wait(self._tick) and self._has_room():
                for found in await self._link.ready_topics(self._topics):
                    self._maybe_ready[found] = None
            return
        if self._slots.for_topic(topic) < self._slots.efficient_claim(topic):
            await asyncio.sleep(GATHER)
        await self._claim(topic)

    def _next_topic(self) -> str | None:
        """Return the topic that has waited longest among those that may have jobs and have a free slot."""
        if not self._has_room():
            return None
        return next((topic for topic in self._maybe_ready if self._slots.for_topic(topic) > 0), None)

    def _has_room(self) -> bool:
        return len(self._held) < MAX_HELD * sum(self._slots.sizes.values())

    async def _claim(self, topic: str) -> None:
        slots = min(self._slots.for_topic(topic), CLAIM_LIMIT)
        del self._maybe_ready[topic]  # before the claim, so that a notification during the claim puts it back
        try:
            claims, held_until = await self._link.claim(topic, worker=self._worker, slots=slots)
        except BaseException:
            self._maybe_ready[topic] = None
            raise
        if claims:
            self._maybe_ready[topic] = None  # there may be more; it goes to the end, so that topics take turns
        if time.monotonic() > held_until:  # this process was suspended meanwhile: other workers may have the jobs
            for claim in claims:
                self._reporter.release(Lease(claim.id, claim.lease_id))
            return
        for claim in claims:
            self._take(claim, held_until)
        if claims and len(claims) < slots:
            await asyncio.sleep(0)  # let the jobs begin before the next claim; with a backlog, the claim goes first

    async def _wait(self, seconds: float) -> bool:
        """Wait until something changes, and return True, or until the time is up, and return False.

        The timer sets a flag, because it may fire a little early by the clock.
        """
        self._something_changed.clear()
        if self._stop_requested.is_set():
            return True
        is_time_up = False

        def end_wait() -> None:
            nonlocal is_time_up
            is_time_up = True
            self._something_changed.set()

        timer = asyncio.get_running_loop().call_later(seconds, end_wait)
        await self._something_changed.wait()
        timer.cancel()
        return not is_time_up
