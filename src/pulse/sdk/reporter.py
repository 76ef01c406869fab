"""How do results reach the jobs? Together: what ends while one batch is on its way makes the next.

A report is repeated until it is answered, because a handler's work is done and only its word is missing; the lease is
kept meanwhile. Answered, the claim is no longer ours, whatever the answer says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from pulse.model.errors import LimitReached, Unavailable
from pulse.model.jobs import Answer, Lease, Progress, Report
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from pulse.links.link import Link

log = logging.getLogger("pulse.worker")

MOST = 1_000  # reports in one batch
PROGRESS_EVERY = 0.5  # seconds between two batches of progress notes

Settled = Callable[[Report | Lease, Answer], None]


class Reporter:
    """Sends what is handed to it, in order, one batch at a time."""

    def __init__(self, link: Link, settled: Settled, *, before_settling: Callable[[], None] = lambda: None) -> None:
        self._link = link
        self._settled = settled
        self._before_settling = before_settling  # called once for each batch of answers
        self._reports: list[Report] = []
        self._releases: list[Lease] = []
        self._in_flight = 0
        self._notes: dict[UUID, Progress] = {}
        self._has_some = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._backoff = Backoff()

    @property
    def unsent(self) -> int:
        """Results on their way, or not yet."""
        return len(self._reports) + self._in_flight

    def report(self, report: Report) -> None:
        self._reports.append(report)
        self._has_some.set()

    def release(self, lease: Lease) -> None:
        self._releases.append(lease)
        self._has_some.set()

    def note(self, progress: Progress) -> None:
        """Of several notes of one job the last one counts."""
        self._notes[progress.id] = progress

    async def idle(self) -> None:
        """Return once nothing is left to send."""
        while self._has_some.is_set() or not self._is_idle.is_set():
            await self._is_idle.wait()
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Until cancelled."""
        notes = asyncio.create_task(self._send_notes_forever())
        try:
            while True:
                await self._has_some.wait()
                self._is_idle.clear()
                self._has_some.clear()
                while self._reports or self._releases:
                    await self._send_batch()
                self._is_idle.set()
        finally:
            notes.cancel()

    async def _send_batch(self) -> None:
        reports, self._reports = self._reports[:MOST], self._reports[MOST:]
        if reports:
            if self._notes and any(report.id in self._notes for report in reports):
                await self.send_notes()  # once it is reported, nobody may note anything any more
            self._in_flight = len(reports)
            answers = await self._until_answered(lambda: self._link.report(reports))
            self._in_flight = 0
            self._settle(reports, answers, again=self._reports)
        releases, self._releases = self._releases[:MOST], self._releases[MOST:]
        if releases:
            answers = await self._until_answered(lambda: self._link.release(releases))
            self._settle(releases, answers, again=self._releases)

    def _settle(self, items: Sequence[Report | Lease], answers: list[Answer] | None, *, again: list) -> None:  # type: ignore[type-arg]
        if answers is None or len(answers) != len(items):
            answers = [Answer.LOST] * len(items)
        self._before_settling()
        for item, answer in zip(items, answers, strict=True):
            if answer is Answer.BUSY:  # its own transaction is still open: come back to it
                again.append(item)
            else:
                self._settled(item, answer)

    async def _until_answered(self, send: Callable[[], object]) -> list[Answer] | None:
        failures = 0
        while True:
            try:
                return await send()  # type: ignore[misc, no-any-return]
            except (Unavailable, LimitReached) as error:
                failures += 1
                log.warning("results could not be reported, trying again: %s", error)
                await asyncio.sleep(self._backoff.delay(failures).total_seconds())
            except Exception:  # refused, or a mistake of ours: whatever it is, the next batch must go out
                log.exception("a batch of results was refused; their leases will end")
                return None

    async def _send_notes_forever(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY)
            await self.send_notes()

    async def send_notes(self) -> None:
        if not self._notes:
            return
        notes, self._notes = self._notes, {}
        try:
            await self._link.progress(list(notes.values()))
        except Exception as error:  # whatever it is, results come after it
            log.warning("progress could not be noted: %s", error)
