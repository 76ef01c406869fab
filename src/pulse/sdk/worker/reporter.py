"""How do results reach the jobs? Together: what ends while one batch is on its way makes the next.

A report is repeated until it is answered, because a handler's work is done and only its word is missing; the lease is
kept meanwhile. Answered, the claim is no longer ours, whatever the answer says. A batch that is refused, or that cannot
be sent again and again, is sent in halves until the one item to blame stands alone, so that no other is lost with it.
What is refused for now is repeated apart from all that comes later.
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
from pulse.model.jobs import Lease, Progress, Report, ReportStatus
from pulse.sdk.worker.outcomes import report_refused
from pulse.timing.backoff import Backoff

if TYPE_CHECKING:
    from pulse.links.link import Link

log = logging.getLogger("pulse.worker")

MOST = 1_000  # reports in one batch
PROGRESS_EVERY = 0.5  # seconds between two batches of progress notes
TRIES = 5  # of one batch, before it is sent in halves: one of its items may be in the way of the others
IN_A_ROW = 16  # refusals after which it may be all items that are refused, so that the database gets a rest between two

# What is no item's fault and may pass: an outage, a lock, a limit, a token that an operator may give back its right.
PASSING = (Unavailable, LimitReached, Conflict, Unauthenticated)
# What will be the same next time. Anything that is neither is a mistake of somebody's, and tried again a few times.
REFUSALS = (InvalidInput, Forbidden, NotFound)
# What is said of a batch, by a database that was reached, and may be the fault of one of its items.
ANSWERS = (*REFUSALS, Conflict)

Item = Report | Lease
T = TypeVar("T")
Send = Callable[[Sequence[Any]], Awaitable[list[ReportStatus]]]
Settled = Callable[[Report | Lease, ReportStatus], None]


class Reporter:
    """Sends what is handed to it, in order, one batch at a time."""

    def __init__(self, link: Link, settled: Settled, *, before_settling: Callable[[], None] = lambda: None) -> None:
        self._link = link
        self._settled = settled
        self._before_settling = before_settling  # called once for each batch of answers
        self._reports: list[Report] = []
        self._releases: list[Lease] = []
        self._apart: list[Item] = []  # refused for now, and due again
        self._unsent = self._unreleased = 0  # not answered yet, wherever they are
        self._failures: dict[tuple[UUID, int], int] = {}  # of claims that were set apart
        self._refusals = 0  # in a row
        self._refused: set[tuple[UUID, int]] = set()  # claims whose report was refused, and whose job is to fail for it
        self._notes: dict[UUID, Progress] = {}
        self._has_some = asyncio.Event()
        self._has_apart = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._backoff = Backoff()

    @property
    def unsent(self) -> int:
        """Results on their way, or not yet."""
        return self._unsent

    def report(self, report: Report) -> None:
        self._unsent += 1
        self._is_idle.clear()
        self._put(report)

    def release(self, lease: Lease) -> None:
        self._unreleased += 1
        self._is_idle.clear()
        self._put(lease)

    def _put(self, item: Item) -> None:
        if isinstance(item, Report):
            self._reports.append(item)
        else:
            self._releases.append(item)
        self._has_some.set()

    def note(self, progress: Progress) -> None:
        """Of several notes of one job the last one counts."""
        self._notes[progress.id] = progress

    async def idle(self) -> None:
        """Return once nothing is left to send."""
        while not self._is_idle.is_set():
            await self._is_idle.wait()
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Until cancelled."""
        others = [asyncio.create_task(work()) for work in (self._send_notes_forever, self._send_apart_forever)]
        try:
            while True:
                await self._has_some.wait()
                self._has_some.clear()
                while self._reports or self._releases:
                    await self._send_batch()
        finally:
            for task in others:
                task.cancel()

    async def _send_batch(self) -> None:
        reports, self._reports = self._reports[:MOST], self._reports[MOST:]
        if reports:
            if self._notes and any(report.id in self._notes for report in reports):
                await self.send_notes()  # once it is reported, nobody may note anything any more
            await self._deliver(reports, self._link.report)
        releases, self._releases = self._releases[:MOST], self._releases[MOST:]
        if releases:
            await self._deliver(releases, self._link.release)

    async def _send_apart_forever(self) -> None:
        """Repeat what was refused for now, so that nothing else waits for it."""
        while True:
            await self._has_apart.wait()
            self._has_apart.clear()
            items, self._apart = self._apart, []
            if reports := [item for item in items if isinstance(item, Report)]:
                await self._deliver(reports, self._link.report)
            if releases := [item for item in items if isinstance(item, Lease)]:
                await self._deliver(releases, self._link.release)

    async def _deliver(self, items: Sequence[Item], send: Send, failures: int = 0) -> None:
        """Send them until each is answered, given up or set apart to be sent again."""
        while (error := await self._try(items, send)) is not None:
            failures += not isinstance(error, ANSWERS)
            if isinstance(error, ANSWERS) or failures > TRIES:
                await self._deliver_apart(items, send, error, failures)
                return
            log.warning("results could not be reported, trying again: %s", _words(error))
            await self._pause(failures)

    async def _deliver_apart(self, items: Sequence[Item], send: Send, error: Exception, failures: int) -> None:
        if len(items) == 1:
            await self._end_trial(items[0], error, failures)
            return
        for half in _halves(items):
            if self._refusals > IN_A_ROW:
                await self._pause(1)
            await self._deliver(half, send, failures)

    async def _try(self, items: Sequence[Item], send: Send) -> Exception | None:
        try:
            answers = await send(items)
        except Exception as error:  # whatever it is, the next batch must go out
            self._refusals += isinstance(error, Conflict)
            return error
        self._refusals = 0
        self._settle(items, answers)
        return None

    async def _end_trial(self, item: Item, error: Exception, failures: int) -> None:
        """One that cannot be sent, though it is alone. What may pass is tried again, apart from the others."""
        if not isinstance(error, PASSING):
            self._give_up(item, error)
            return
        log.warning("job %s could not be reported on, trying again: %s", item.id, error)
        if not isinstance(error, ANSWERS):  # an outage, perhaps, and then of the others, too
            await self._pause(failures)
        self._set_apart(item)

    def _set_apart(self, item: Item) -> None:
        """Send it again after a while that grows: until it is answered, if only because its lease has ended."""
        claim = (item.id, item.lease_id)
        self._failures[claim] = self._failures.get(claim, 0) + 1
        delay = self._backoff.delay(self._failures[claim])
        asyncio.get_running_loop().call_later(delay.total_seconds(), self._put_apart, item)

    def _put_apart(self, item: Item) -> None:
        self._apart.append(item)
        self._has_apart.set()

    def _give_up(self, item: Item, error: Exception) -> None:
        """What is refused is said in the log and, once, on the job, if its claim may still speak: it fails with the
        error, where it would otherwise say nothing until its lease ends."""
        log.error("what was reported of job %s was refused: %s", item.id, _words(error), exc_info=_unnamed(error))
        claim = (item.id, item.lease_id)
        is_first = claim not in self._refused
        if isinstance(item, Report) and is_first and not isinstance(error, (Forbidden, NotFound)):
            self._refused.add(claim)
            self._settle([report_refused(item, error)], [ReportStatus.BUSY])
        else:
            self._settle([item], [ReportStatus.LOST])

    def _settle(self, items: Sequence[Item], answers: Sequence[ReportStatus]) -> None:
        if len(answers) != len(items):
            answers = [ReportStatus.LOST] * len(items)
        self._before_settling()
        for item, answer in zip(items, answers, strict=True):
            if answer is ReportStatus.BUSY:  # its own transaction is still open, say: come back to it
                self._put(item)
            else:
                self._forget(item)
                self._settled(item, answer)
        if not self._unsent and not self._unreleased:
            self._is_idle.set()

    def _forget(self, item: Item) -> None:
        """Nothing more can be said of this claim. The job may be here again, under its next one."""
        if isinstance(item, Report):
            self._unsent -= 1
        else:
            self._unreleased -= 1
        if (note := self._notes.get(item.id)) and note.lease_id == item.lease_id:
            del self._notes[item.id]
        if self._refused:
            self._refused.discard((item.id, item.lease_id))
        if self._failures:
            self._failures.pop((item.id, item.lease_id), None)

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
        except Exception as error:  # whatever it is, results come after it
            if isinstance(error, PASSING) and not isinstance(error, ANSWERS):
                log.warning("progress could not be noted, trying again: %s", error)
                for note in notes:
                    self._notes.setdefault(note.id, note)
            elif len(notes) > 1:
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
