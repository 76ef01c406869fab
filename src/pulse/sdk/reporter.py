"""How do results reach the jobs? Together: what ends while one batch is on its way makes the next.

A report is repeated until it is answered, because a handler's work is done and only its word is missing; the lease is
kept meanwhile. Answered, the claim is no longer ours, whatever the answer says. A batch that is refused, or that cannot
be sent again and again, is sent in halves until the one item to blame stands alone, so that no other is lost with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from pulse.model.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
    LimitReached,
    NotFound,
    PulseError,
    Unauthenticated,
    Unavailable,
)
from pulse.model.jobs import Answer, Lease, Progress, Report
from pulse.sdk.outcomes import report_refused
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from pulse.links.link import Link

log = logging.getLogger("pulse.worker")

MOST = 1_000  # reports in one batch
PROGRESS_EVERY = 0.5  # seconds between two batches of progress notes
TRIES = 5  # of one batch, before it is sent in halves: one of its items may be in the way of the others

# What is no item's fault and may pass: an outage, a lock, a limit, a token that an operator may give back its right.
PASSING = (Unavailable, LimitReached, Conflict, Unauthenticated)
# What will be the same next time. Anything that is neither is a mistake of somebody's, and tried again a few times.
REFUSALS = (InvalidInput, Forbidden, NotFound)
# What is said of a batch, by a database that was reached, and may be the fault of one of its items.
ANSWERS = (*REFUSALS, Conflict)

Item = Report | Lease
T = TypeVar("T")
Send = Callable[[Sequence[Any]], Awaitable[list[Answer]]]
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
        self._refused: set[tuple[UUID, int]] = set()  # claims whose report was refused, and whose job is to fail for it
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
            await self._deliver(reports, self._link.report)
        releases, self._releases = self._releases[:MOST], self._releases[MOST:]
        if releases:
            await self._deliver(releases, self._link.release)

    async def _deliver(self, items: Sequence[Item], send: Send, failures: int = 0) -> None:
        """Send them until each is answered, given up or put back to be sent with the next batch."""
        while (error := await self._try(items, send)) is not None:
            failures += 1
            if isinstance(error, REFUSALS) or failures > TRIES:
                if len(items) == 1:
                    await self._end_trial(items[0], error, failures)
                else:
                    for half in _halves(items):
                        await self._deliver(half, send, failures)
                return
            log.warning("results could not be reported, trying again: %s", _words(error))
            await self._pause(failures)

    async def _try(self, items: Sequence[Item], send: Send) -> Exception | None:
        try:
            answers = await send(items)
        except Exception as error:  # whatever it is, the next batch must go out
            return error
        self._settle(items, answers)
        return None

    async def _end_trial(self, item: Item, error: Exception, failures: int) -> None:
        """One that cannot be sent, though it is alone. What may pass is tried again, behind the others."""
        if isinstance(error, PASSING):
            log.warning("job %s could not be reported on, trying again: %s", item.id, error)
            await self._pause(failures)
            self._settle([item], [Answer.BUSY])
        else:
            self._give_up(item, error)

    def _give_up(self, item: Item, error: Exception) -> None:
        """What is refused is said in the log and, once, on the job, if its claim may still speak: it fails with the
        error, where it would otherwise say nothing until its lease ends."""
        log.error("what was reported of job %s was refused: %s", item.id, _words(error), exc_info=_unnamed(error))
        claim = (item.id, item.lease_id)
        is_first = claim not in self._refused
        if isinstance(item, Report) and is_first and not isinstance(error, (Forbidden, NotFound)):
            self._refused.add(claim)
            self._settle([report_refused(item, error)], [Answer.BUSY])
        else:
            self._settle([item], [Answer.LOST])

    def _settle(self, items: Sequence[Item], answers: Sequence[Answer]) -> None:
        if len(answers) != len(items):
            answers = [Answer.LOST] * len(items)
        self._before_settling()
        for item, answer in zip(items, answers, strict=True):
            self._in_flight -= isinstance(item, Report)
            if answer is Answer.BUSY:  # its own transaction is still open, say: come back to it
                (self._reports if isinstance(item, Report) else self._releases).append(item)  # type: ignore[arg-type]
            else:
                self._forget(item)
                self._settled(item, answer)

    def _forget(self, item: Item) -> None:
        """Nothing more can be said of this claim. The job may be here again, under its next one."""
        if (note := self._notes.get(item.id)) and note.lease_id == item.lease_id:
            del self._notes[item.id]
        if self._refused:
            self._refused.discard((item.id, item.lease_id))

    async def _pause(self, failures: int) -> None:
        await asyncio.sleep(self._backoff.delay(failures).total_seconds())

    async def _send_notes_forever(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY)
            await self.send_notes()

    async def send_notes(self) -> None:
        """As results, but nobody waits for them: what cannot be sent now goes with the next, unless that is newer."""
        notes, self._notes = self._notes, {}
        if notes:
            await self._send_notes(list(notes.values()))

    async def _send_notes(self, notes: Sequence[Progress]) -> None:
        try:
            await self._link.progress(notes)
        except PASSING as error:
            log.warning("progress could not be noted, trying again: %s", error)
            for note in notes:
                self._notes.setdefault(note.id, note)
        except Exception as error:  # whatever it is, results come after it
            if len(notes) > 1:
                for half in _halves(notes):
                    await self._send_notes(half)
            else:
                log.warning("progress of job %s could not be noted: %s", notes[0].id, _words(error))


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, PulseError) else f"{type(error).__name__}: {error}"


def _unnamed(error: Exception) -> Exception | None:
    """What nobody raised on purpose is worth its traceback."""
    return None if isinstance(error, PulseError) else error
