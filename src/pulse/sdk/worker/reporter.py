"""How are results reported? In batches: results that come while one batch is being sent make up the next.

A report is repeated until it is answered, because the work of its handler is done; the lease is kept meanwhile. Once it
is answered, the worker gives up the claim, whatever the answer is. A batch that is refused, or that fails repeatedly,
is sent in halves until the one bad item stands alone, so that no other item is lost with it. An item that is refused
for a passing reason is repeated apart from all later ones.
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

BATCH_SIZE = 1_000  # reports
PROGRESS_EVERY = 0.5  # seconds between two batches of progress notes
MAX_TRIES = 5  # of one batch, before it is sent in halves: one of its items may be holding up the others
REFUSALS_BEFORE_PAUSE = 16  # refusals in a row after which all items may be refused, so that each try waits a moment

# Errors that are no item's fault and may pass: an outage, a lock, a limit, a token whose rights may be restored.
PASSING = (Unavailable, LimitReached, Conflict, Unauthenticated)
# Errors that will be the same next time. Any error that is in neither group is a bug, and is tried again a few times.
REFUSALS = (InvalidInput, Forbidden, NotFound)
# Errors of a database that was reached, which may be the fault of one item of the batch.
ANSWERS = (*REFUSALS, Conflict)

Item = Report | Lease
T = TypeVar("T")
Send = Callable[[Sequence[Any]], Awaitable[list[ReportStatus]]]
OnAnswer = Callable[[Report | Lease, ReportStatus], None]


class Reporter:
    """Sends reports and releases in order, one batch at a time."""

    def __init__(self, link: Link, on_answer: OnAnswer, *, before_answers: Callable[[], None] = lambda: None) -> None:
        self._link = link
        self._on_answer = on_answer
        self._before_answers = before_answers  # called once for each batch of answers
        self._reports: list[Report] = []
        self._releases: list[Lease] = []
        self._apart: list[Item] = []  # items that were refused for a passing reason, and are due again
        self._unsent = self._unreleased = 0  # reports and releases that have no answer yet
        self._failures: dict[tuple[UUID, int], int] = {}  # of claims that were set apart
        self._refusals = 0  # in a row
        self._refused: set[tuple[UUID, int]] = set()  # claims whose report was refused, so that their job has to fail
        self._notes: dict[UUID, Progress] = {}
        self._has_some = asyncio.Event()
        self._has_apart = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._backoff = Backoff()

    @property
    def unsent(self) -> int:
        """Return how many results have no answer yet."""
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
        """Send the progress of a job with the next batch of notes; a later note of the same job replaces it."""
        self._notes[progress.id] = progress

    async def idle(self) -> None:
        """Return once nothing is left to send."""
        while not self._is_idle.is_set():
            await self._is_idle.wait()
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Send reports, releases and notes until cancelled."""
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
        reports, self._reports = self._reports[:BATCH_SIZE], self._reports[BATCH_SIZE:]
        if reports:
            if self._notes and any(report.id in self._notes for report in reports):
                await self.send_notes()  # before the report: progress of a job that was reported is refused
            await self._deliver(reports, self._link.report)
        releases, self._releases = self._releases[:BATCH_SIZE], self._releases[BATCH_SIZE:]
        if releases:
            await self._deliver(releases, self._link.release)

    async def _send_apart_forever(self) -> None:
        """Repeat items that were refused for a passing reason, so that no other item waits for them."""
        while True:
            await self._has_apart.wait()
            self._has_apart.clear()
            items, self._apart = self._apart, []
            if reports := [item for item in items if isinstance(item, Report)]:
                await self._deliver(reports, self._link.report)
            if releases := [item for item in items if isinstance(item, Lease)]:
                await self._deliver(releases, self._link.release)

    async def _deliver(self, items: Sequence[Item], send: Send, failures: int = 0) -> None:
        """Send items until each is answered, given up, or set apart to be sent again."""
        while (error := await self._try(items, send)) is not None:
            failures += not isinstance(error, ANSWERS)
            if isinstance(error, ANSWERS) or failures > MAX_TRIES:
                await self._deliver_apart(items, send, error, failures)
                return
            log.warning("results could not be reported, trying again: %s", _describe(error))
            await self._pause(failures)

    async def _deliver_apart(self, items: Sequence[Item], send: Send, error: Exception, failures: int) -> None:
        if len(items) == 1:
            await self._handle_failed_item(items[0], error, failures)
            return
        for half in _halves(items):
            if self._refusals > REFUSALS_BEFORE_PAUSE:
                await self._pause(1)
            await self._deliver(half, send, failures)

    async def _try(self, items: Sequence[Item], send: Send) -> Exception | None:
        try:
            answers = await send(items)
        except Exception as error:  # any error is handled, so that the next batch is sent
            self._refusals += isinstance(error, Conflict)
            return error
        self._refusals = 0
        self._settle(items, answers)
        return None

    async def _handle_failed_item(self, item: Item, error: Exception, failures: int) -> None:
        """Give up an item that failed on its own, or set it apart to be tried again if the error may pass."""
        if not isinstance(error, PASSING):
            self._give_up(item, error)
            return
        log.warning("the report of job %s failed, trying again: %s", item.id, error)
        if not isinstance(error, ANSWERS):  # perhaps an outage, which the other items would meet, too
            await self._pause(failures)
        self._set_apart(item)

    def _set_apart(self, item: Item) -> None:
        """Send an item again after a delay that grows, until it is answered. Once its lease has ended, it is: LOST."""
        claim = (item.id, item.lease_id)
        self._failures[claim] = self._failures.get(claim, 0) + 1
        delay = self._backoff.delay(self._failures[claim])
        asyncio.get_running_loop().call_later(delay.total_seconds(), self._put_apart, item)

    def _put_apart(self, item: Item) -> None:
        self._apart.append(item)
        self._has_apart.set()

    def _give_up(self, item: Item, error: Exception) -> None:
        """Log the refusal of an item and, if it is the first of a report, fail its job with the error.

        Otherwise the job would show nothing until its lease ends.
        """
        log.error("the report of job %s was refused: %s", item.id, _describe(error), exc_info=_if_unexpected(error))
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
        self._before_answers()
        for item, answer in zip(items, answers, strict=True):
            if (
                answer is ReportStatus.BUSY
            ):  # the row is locked, perhaps by the handler's own transaction: send it again
                self._put(item)
            else:
                self._forget(item)
                self._on_answer(item, answer)
        if not self._unsent and not self._unreleased:
            self._is_idle.set()

    def _forget(self, item: Item) -> None:
        """Forget everything about a claim that was answered. The job may come back here with a new claim."""
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
        """Send the progress notes. Those that cannot be sent now go with the next batch, unless a newer note comes."""
        notes, self._notes = self._notes, {}
        if notes:
            await self._send_notes(list(notes.values()))

    async def _send_notes(self, notes: Sequence[Progress]) -> None:
        try:
            await self._link.progress(notes)
        except Exception as error:  # any error is handled, because the results still have to be sent
            if isinstance(error, PASSING) and not isinstance(error, ANSWERS):
                log.warning("progress could not be recorded, trying again: %s", error)
                for note in notes:
                    self._notes.setdefault(note.id, note)
            elif len(notes) > 1:
                for half in _halves(notes):
                    await self._send_notes(half)
            else:
                log.warning("the progress of job %s could not be recorded: %s", notes[0].id, _describe(error))


def _halves(items: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    middle = len(items) // 2
    return items[:middle], items[middle:]


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, PulseError) else f"{type(error).__name__}: {error}"


def _if_unexpected(error: Exception) -> Exception | None:
    """Return an error whose traceback is worth logging: one that Pulse did not raise itself."""
    return None if isinstance(error, PulseError) else error
