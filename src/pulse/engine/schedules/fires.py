"""How do schedules fire? Lock what is due, decide, and write it all down in one transaction.

No leader: rows that another process holds are passed over, and an occurrence makes one job whoever gets there first
(docs/decisions/0025). A batch the database refuses is halved until the schedule it refuses stands alone; that one is
parked with its error, and the others have fired.
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
    broken,
    decide,
    is_owed,
    jittered,
    passed_over,
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

LANES = 3  # while batches are full: one is decided here while the database writes the others
IN_A_ROW = 10  # batches of a lane: less than a second
PATIENCE = 0.005  # seconds for which others that share the loop can wait
MAX_JOBS = 5_000  # of one transaction: a quarter of a second, where 1,000 schedules may have 1,000 each to replay
LONGEST_SLEEP = timedelta(minutes=1)  # the promote duty looks more often, and wakes this one when something is due
AT_ONCE = timedelta()
NOTHING = FireResult(0, [])

Read = Callable[["Connection"], Awaitable[list[DueSchedule]]]
Decide = Callable[[DueSchedule, datetime], FireDecision]


class RefusedSchedules(Exception):
    """The database refused what these schedules would have made."""

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
        self._has_more = False  # more was due than one transaction takes

    async def step(self) -> timedelta:
        """Fire what is due; answers with how long until the next is."""
        peek = await self._database.run_duty(peeks.peek_schedules)
        if peek.is_buffering:
            await self.fire_buffered()
        wait = self._tick if peek.is_buffering else LONGEST_SLEEP
        if peek.until_due is None:
            return wait
        if peek.until_due > AT_ONCE:
            return min(wait, peek.until_due)
        # Looked at before and after: what falls due in between is not taken for what another process has.
        return AT_ONCE if await self._fire_side_by_side() else self._tick

    async def _fire_side_by_side(self) -> int:
        """A batch; while there are more, several lanes of them, for as long as a stop can wait."""
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
        """One batch; answers with how many were due."""
        return await self._fire(lambda conn: fires_store.due_schedules(conn, limit=self._batch), decide)

    async def fire_buffered(self) -> int:
        """The occurrences that waited for a job which has finished."""
        return await self._fire(lambda conn: fires_store.unbuffered_schedules(conn, limit=self._batch), decide)

    async def _fire(self, read: Read, choose: Decide, *, careful: bool = False) -> int:
        try:
            return await self._fire_together(read, choose, careful=careful)
        except RefusedSchedules as error:
            if not careful:  # one of them may have fired already, by a backfill say
                return await self._fire(_among(error.ids), choose, careful=True)
            return await self._fire_apart(error)

    async def _fire_apart(self, refused: RefusedSchedules) -> int:
        """Half by half, until the one that is refused stands alone."""
        if len(refused.ids) == 1:
            return await self._park(refused)
        middle = len(refused.ids) // 2
        fired = 0
        for half in (refused.ids[:middle], refused.ids[middle:]):
            fired += await self._fire(_among(half), decide, careful=True)
        return fired

    async def _park(self, refused: RefusedSchedules) -> int:
        log.warning("schedule %s cannot fire and is parked: %s", refused.ids[0], refused)
        try:
            return await self._fire_together(
                _among(refused.ids), lambda due, _: broken(due, str(refused)), careful=True
            )
        except RefusedSchedules as error:  # the others must not wait for it
            log.error("schedule %s cannot be parked: %s", refused.ids[0], error)  # noqa: TRY400
            return 0

    async def _fire_together(self, read: Read, choose: Decide, *, careful: bool) -> int:
        async def work(conn: Connection) -> tuple[Sequence[DueSchedule], list[ReadyTopic]]:
            due = await read(conn)
            if not due:
                return [], []
            self._has_more |= len(due) >= self._batch
            batch = await _write_down(await _with_busy(conn, due), choose, careful=careful)
            if careful:
                batch = await _without_taken(conn, batch)
            try:
                fired = await batch.fire(conn)
            except fires_store.RefusedByDatabase as error:
                raise RefusedSchedules([each.id for each in due], str(error)) from error
            assert fired.moved == batch.schedules, "a schedule that is locked was changed"
            self._has_more |= batch.schedules < len(due)
            return due[: batch.schedules], fired.ready

        fired, ready = await self._database.run_together(work)
        self._notifications.notify_ready(ready)
        self._note_lateness(fired)
        return len(fired)

    def _note_lateness(self, fired: Sequence[DueSchedule]) -> None:
        for due_at, together in groupby(fired, attrgetter("next_run_at")):
            first = next(together)
            if due_at is not None and due_at <= first.now:  # not those that waited for another job
                late = (first.now - due_at).total_seconds()
                self._instruments.fires.note(late, times=1 + sum(1 for _ in together))


class FireBatch(NamedTuple):
    """What was decided, as rows."""

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
    """Asked once they are locked: the statement that locked them reads as of its beginning, before others committed."""
    careful = [each.id for each in due if each.overlap != Overlap.ALLOW]
    if not careful:
        return due
    busy = await fires_store.busy_schedules(conn, ids=careful)
    return [msgspec.structs.replace(each, is_busy=each.id in busy) for each in due]


async def log_passed_over(conn: Connection, schedules: Sequence[Schedule], reason: str, now: datetime) -> None:
    """What is due of these and will not be fired still leaves its line."""
    lines = [_line(each.id, note) for each in schedules for note in passed_over(each, reason, now)]
    if lines:
        await fires_store.fire_schedules(conn, plans=[], jobs=[], notes=lines, cause="timetable")


async def resume_at(conn: Connection, schedule: Schedule, now: datetime) -> datetime | None:
    """Where the cursor of a paused schedule goes when it is resumed. What it passes over leaves its line."""
    if schedule.timed.kind == "once" and await has_fired(conn, schedule):
        return None
    if is_owed(schedule, now):
        return schedule.next_run_at
    following = schedule.timed.next_after(now)
    await log_passed_over(conn, [schedule], "paused", now)
    return following


async def has_fired(conn: Connection, schedule: Schedule) -> bool:
    """Whether the occurrence at its cursor has its job already, by a backfill."""
    cursor = schedule.next_run_at
    if cursor is None:
        return False
    return bool(await fire_log.fired_occurrences(conn, schedule_id=schedule.id, occurrences=[cursor]))


def _line(schedule_id: UUID, note: FireNote) -> FireNoteRow:
    newest = note.newest or note.occurrence
    return FireNoteRow(schedule_id, note.occurrence, note.outcome, note.reason, note.occurrences, newest)


async def _write_down(due: Sequence[DueSchedule], choose: Decide, *, careful: bool) -> FireBatch:
    """What was decided about each, as far as one transaction goes. If careful, nothing is taken for the usual."""
    batch = FireBatch([], [], [], [])
    room, rested_at = MAX_JOBS, time.monotonic()
    for each in due:
        if room <= 0:
            break
        if time.monotonic() - rested_at > PATIENCE:  # a thousand that missed days take a second to decide
            await asyncio.sleep(0)
            rested_at = time.monotonic()
        following = None if careful else _following(each)
        if following is not None:
            batch.regular.append(_regular_fire(each, following))
            room -= 1
        else:
            room -= _write_down_one(batch, each, _decided(each, choose))
    return batch


async def _without_taken(conn: Connection, batch: FireBatch) -> FireBatch:
    """Leave out the occurrences whose ids other jobs have, each with a line that says so. Only the server makes such
    ids, but one may have been given to a job before that was so, or by hand."""
    taken = await fires_store.taken_occurrences(conn, batch.jobs) if batch.jobs else set()
    if not taken:
        return batch
    jobs = [each for each in batch.jobs if each.job_id not in taken]
    lost = [each for each in batch.jobs if each.job_id in taken]
    for each in lost:
        log.error("schedule %s makes no job for %s: another job has its id, %s", *each[:3])
    count = Counter(each.schedule_id for each in jobs)
    last = {each.schedule_id: each.occurrence for each in jobs}
    plans = [plan._replace(fired=count[plan.id], last=last.get(plan.id)) for plan in batch.plans]
    lines = [_line(each.schedule_id, _taken(each)) for each in lost]
    return FireBatch(batch.regular, plans, jobs, batch.notes + lines)


def _taken(job: JobToFire) -> FireNote:
    return FireNote(job.occurrence, FireOutcome.SKIPPED, f"error: another job has its id, {job.job_id}")


def _following(due: DueSchedule) -> datetime | None:
    try:
        return regular_successor(due)
    except Exception:  # whatever it is, the decision says it
        return None


def _regular_fire(due: DueSchedule, following: datetime) -> RegularFire:
    at = due.next_run_at
    assert at is not None
    return due.id, at, following, fire_id(due.id, at, due.bucket)


def _write_down_one(batch: FireBatch, due: DueSchedule, firing: FireDecision) -> int:
    """Answers with how many rows that makes, lines of the log aside."""
    fires = firing.fires
    last = fires[-1] if fires else None
    rest = (firing.status, firing.error, firing.buffered_for)
    batch.plans.append(Plan(due.id, due.next_run_at, firing.next_run_at, *rest, len(fires), last))
    batch.jobs.extend(_made(due, firing))
    batch.notes.extend(_line(due.id, note) for note in firing.notes)
    return 1 + len(fires)


def _made(due: DueSchedule, firing: FireDecision) -> list[JobToFire]:
    return [
        JobToFire(due.id, at, fire_id(due.id, at, due.bucket), jittered(due, at, firing.next_run_at))
        for at in firing.fires
    ]


def _decided(due: DueSchedule, choose: Decide) -> FireDecision:
    try:
        return choose(due, due.now)
    except Exception as error:  # whatever it is, the others of the batch are not to blame
        log.exception("schedule %s cannot be read and is parked", due.id)
        return broken(due, f"{type(error).__name__}: {error}")


def _among(ids: Sequence[UUID]) -> Read:
    return lambda conn: fires_store.due_among(conn, ids=ids)
