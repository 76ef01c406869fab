"""How do schedules fire? One transaction locks the due ones, decides about them, and writes the decisions down.

There is no leader: rows that another process has locked are skipped, and an occurrence makes one job whichever process
is first (docs/decisions/0025). A batch that the database refuses is halved until the schedule to blame stands alone;
that one is parked with its error, and the others fire.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from pulse.engine.instruments import Instruments
from pulse.model.decisions.firing import (
    DueSchedule,
    FireDecision,
    FireNote,
    decide,
    decide_broken,
    is_owed,
    jitter_start,
    note_passed_over,
    regular_successor,
)
from pulse.model.ids import fire_id
from pulse.model.schedules import FireOutcome, Overlap
from pulse.store.duties import peeks
from pulse.store.schedules import fire_log
from pulse.store.schedules import fires as fires_store
from pulse.store.schedules.fires import FireNoteRow, FireResult, JobToFire, Plan, RegularFire

if TYPE_CHECKING:
    from pulse.model.schedules import Schedule
    from pulse.store.connections.notifications import Notifications
    from pulse.store.connections.pool import Connection, Database
    from pulse.store.jobs.rows import ReadyTopic

log = logging.getLogger("pulse.schedules")

LANES = 3  # concurrent batches while they are full: one is decided here while the database writes the others
IN_A_ROW = 10  # batches of a lane: less than a second
PATIENCE = 0.005  # seconds for which deciding may block the event loop
MAX_JOBS = 5_000  # of one transaction: a quarter of a second. 1,000 schedules may have 1,000 each to replay
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and runs this one when something is due
AT_ONCE = timedelta()
NOTHING = FireResult(0, [])

Read = Callable[["Connection"], Awaitable[list[DueSchedule]]]
Decide = Callable[[DueSchedule, datetime], FireDecision]


class RefusedSchedules(Exception):
    """Schedules whose jobs or rows the database refused."""

    def __init__(self, ids: Sequence[UUID], reason: str) -> None:
        super().__init__(reason)
        self.ids = ids


class FireDuty:
    """The fire duty of one process."""

    def __init__(
        self, database: Database, notifications: Notifications, instruments: Instruments | None = None
    ) -> None:
        self._database = database
        self._instruments = instruments or Instruments()
        self._notifications = notifications
        self._tick = database.settings.schedule_tick
        self._batch = database.settings.schedule_batch
        self._has_more = False  # more schedules were due than fit into one transaction

    async def step(self) -> timedelta:
        """Fire the due schedules, and return how long until the next is due."""
        peek = await self._database.run_duty(peeks.peek_schedules)
        if peek.is_buffering:
            await self.fire_buffered()
        wait = self._tick if peek.is_buffering else LONGEST_SLEEP
        if peek.until_due is None:
            return wait
        if peek.until_due > AT_ONCE:
            return min(wait, peek.until_due)
        # After a batch, look again at once: a schedule that fell due meanwhile is not one that another process has.
        return AT_ONCE if await self._fire_in_lanes() else self._tick

    async def _fire_in_lanes(self) -> int:
        """Fire a batch and, if more are due, batches in several lanes, for no longer than a stop can wait. Return how
        many were due in the first batch."""
        self._has_more = False
        fired = await self.fire_due()
        if self._has_more:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(LANES):
                    lanes.create_task(self._fire_in_a_row())
        return fired

    async def _fire_in_a_row(self) -> None:
        for _ in range(IN_A_ROW):
            if not await self.fire_due():
                break

    async def fire_due(self) -> int:
        """Fire one batch of due schedules, and return how many it had."""
        return await self._fire(lambda conn: fires_store.due_schedules(conn, limit=self._batch), decide)

    async def fire_buffered(self) -> int:
        """Fire buffered occurrences whose earlier job has finished, and return how many."""
        return await self._fire(lambda conn: fires_store.unbuffered_schedules(conn, limit=self._batch), decide)

    async def _fire(self, read: Read, choose: Decide, *, careful: bool = False) -> int:
        try:
            return await self._fire_together(read, choose, careful=careful)
        except RefusedSchedules as error:
            if not careful:  # an occurrence may have a job already, for example from a backfill
                return await self._fire(_due_among(error.ids), choose, careful=True)
            return await self._fire_apart(error)

    async def _fire_apart(self, refused: RefusedSchedules) -> int:
        """Fire refused schedules in halves, until the one to blame stands alone. Return how many were handled."""
        if len(refused.ids) == 1:
            return await self._park(refused)
        middle = len(refused.ids) // 2
        fired = 0
        for half in (refused.ids[:middle], refused.ids[middle:]):
            fired += await self._fire(_due_among(half), decide, careful=True)
        return fired

    async def _park(self, refused: RefusedSchedules) -> int:
        log.warning("schedule %s cannot fire and is parked: %s", refused.ids[0], refused)
        try:
            return await self._fire_together(
                _due_among(refused.ids), lambda due, _: decide_broken(due, str(refused)), careful=True
            )
        except RefusedSchedules as error:  # it must not keep the others from firing
            log.error("schedule %s cannot be parked: %s", refused.ids[0], error)  # noqa: TRY400
            return 0

    async def _fire_together(self, read: Read, choose: Decide, *, careful: bool) -> int:
        async def work(conn: Connection) -> tuple[Sequence[DueSchedule], list[ReadyTopic]]:
            due = await read(conn)
            if not due:
                return [], []
            self._has_more |= len(due) >= self._batch
            batch = await _decide_all(await _with_busy(conn, due), choose, careful=careful)
            if careful:
                batch = await _without_taken(conn, batch)
            try:
                fired = await batch.fire(conn)
            except fires_store.RefusedByDatabase as error:
                raise RefusedSchedules([each.id for each in due], str(error)) from error
            assert fired.moved == batch.schedules, "a locked schedule has changed"
            self._has_more |= batch.schedules < len(due)
            return due[: batch.schedules], fired.ready

        fired, ready = await self._database.run_together(work)
        self._notifications.notify_ready(ready)
        self._note_lateness(fired)
        return len(fired)

    def _note_lateness(self, fired: Sequence[DueSchedule]) -> None:
        for due_at, together in groupby(fired, attrgetter("next_run_at")):
            first = next(together)
            if due_at is not None and due_at <= first.now:  # buffered ones waited for a job and were not late
                late = (first.now - due_at).total_seconds()
                self._instruments.fires.note(late, times=1 + sum(1 for _ in together))


class FireBatch(NamedTuple):
    """The decisions of one transaction, as rows."""

    regular: list[RegularFire]
    plans: list[Plan]
    jobs: list[JobToFire]
    notes: list[FireNoteRow]

    @property
    def schedules(self) -> int:
        return len(self.regular) + len(self.plans)

    async def fire(self, conn: Connection) -> FireResult:
        fired = await fires_store.fire_regular(conn, self.regular) if self.regular else NOTHING
        if not self.plans:
            return fired
        rest = await fires_store.fire_schedules(
            conn, plans=self.plans, jobs=self.jobs, notes=self.notes, cause="timetable"
        )
        return FireResult(fired.moved + rest.moved, fired.ready + rest.ready)


async def _with_busy(conn: Connection, due: Sequence[DueSchedule]) -> Sequence[DueSchedule]:
    """Return the schedules with `is_busy` set. This is read after they are locked, since the statement that locked them
    does not see what others have committed since its beginning."""
    careful = [each.id for each in due if each.overlap != Overlap.ALLOW]
    if not careful:
        return due
    busy = await fires_store.busy_schedules(conn, ids=careful)
    return [msgspec.structs.replace(each, is_busy=each.id in busy) for each in due]


async def log_passed_over(conn: Connection, schedules: Sequence[Schedule], reason: str, now: datetime) -> None:
    """Log the due occurrences of these schedules that will not fire."""
    lines = [_line(each.id, note) for each in schedules for note in note_passed_over(each, reason, now)]
    if lines:
        await fires_store.fire_schedules(conn, plans=[], jobs=[], notes=lines, cause="timetable")


async def resume_at(conn: Connection, schedule: Schedule, now: datetime) -> datetime | None:
    """Return the new cursor of a paused schedule that is resumed, and log the occurrences that it passes over."""
    if schedule.timed.kind == "once" and await has_fired(conn, schedule):
        return None
    if is_owed(schedule, now):
        return schedule.next_run_at
    following = schedule.timed.next_after(now)
    await log_passed_over(conn, [schedule], "paused", now)
    return following


async def has_fired(conn: Connection, schedule: Schedule) -> bool:
    """Tell whether the occurrence at its cursor has a job already, from a backfill."""
    cursor = schedule.next_run_at
    if cursor is None:
        return False
    return bool(await fire_log.fired_occurrences(conn, schedule_id=schedule.id, occurrences=[cursor]))


def _line(schedule_id: UUID, note: FireNote) -> FireNoteRow:
    newest = note.newest or note.occurrence
    return FireNoteRow(schedule_id, note.occurrence, note.outcome, note.reason, note.occurrences, newest)


async def _decide_all(due: Sequence[DueSchedule], choose: Decide, *, careful: bool) -> FireBatch:
    """Return the decisions about as many schedules as fit into one transaction. If careful, none takes the short way of
    regular fires."""
    batch = FireBatch([], [], [], [])
    room, rested_at = MAX_JOBS, time.monotonic()
    for each in due:
        if room <= 0:
            break
        if time.monotonic() - rested_at > PATIENCE:  # a thousand schedules that missed days take a second to decide
            await asyncio.sleep(0)
            rested_at = time.monotonic()
        following = None if careful else _following(each)
        if following is not None:
            batch.regular.append(_regular_fire(each, following))
            room -= 1
        else:
            room -= _add_decision(batch, each, _decide_one(each, choose))
    return batch


async def _without_taken(conn: Connection, batch: FireBatch) -> FireBatch:
    """Leave out occurrences whose ids other jobs have, and log each of them. Only the server makes such ids, but an
    older release or SQL may have given one to a job."""
    taken = await fires_store.taken_occurrences(conn, batch.jobs) if batch.jobs else set()
    if not taken:
        return batch
    jobs = [each for each in batch.jobs if each.job_id not in taken]
    left_out = [each for each in batch.jobs if each.job_id in taken]
    for each in left_out:
        log.error("schedule %s makes no job for %s: another job has its id, %s", *each[:3])
    count = Counter(each.schedule_id for each in jobs)
    last = {each.schedule_id: each.occurrence for each in jobs}
    plans = [plan._replace(fired=count[plan.id], last=last.get(plan.id)) for plan in batch.plans]
    lines = [_line(each.schedule_id, _note_taken(each)) for each in left_out]
    return FireBatch(batch.regular, plans, jobs, batch.notes + lines)


def _note_taken(job: JobToFire) -> FireNote:
    return FireNote(job.occurrence, FireOutcome.SKIPPED, f"error: another job has its id, {job.job_id}")


def _following(due: DueSchedule) -> datetime | None:
    try:
        return regular_successor(due)
    except Exception:  # the decision meets the same error, and reports it
        return None


def _regular_fire(due: DueSchedule, following: datetime) -> RegularFire:
    at = due.next_run_at
    assert at is not None
    return due.id, at, following, fire_id(due.id, at, due.bucket)


def _add_decision(batch: FireBatch, due: DueSchedule, decision: FireDecision) -> int:
    """Add a decision to the batch, and return how many rows it has, without lines of the log."""
    fires = decision.fires
    last = fires[-1] if fires else None
    rest = (decision.status, decision.error, decision.buffered_for)
    batch.plans.append(Plan(due.id, due.next_run_at, decision.next_run_at, *rest, len(fires), last))
    batch.jobs.extend(_jobs_to_fire(due, decision))
    batch.notes.extend(_line(due.id, note) for note in decision.notes)
    return 1 + len(fires)


def _jobs_to_fire(due: DueSchedule, decision: FireDecision) -> list[JobToFire]:
    return [
        JobToFire(due.id, at, fire_id(due.id, at, due.bucket), jitter_start(due, at, decision.next_run_at))
        for at in decision.fires
    ]


def _decide_one(due: DueSchedule, choose: Decide) -> FireDecision:
    try:
        return choose(due, due.now)
    except Exception as error:  # no error of one schedule may keep the others of the batch from firing
        log.exception("schedule %s cannot be evaluated and is parked", due.id)
        return decide_broken(due, f"{type(error).__name__}: {error}")


def _due_among(ids: Sequence[UUID]) -> Read:
    return lambda conn: fires_store.due_among(conn, ids=ids)
