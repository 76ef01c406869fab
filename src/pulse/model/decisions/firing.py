"""What happens to a schedule that is due? The whole decision, without I/O.

The catch-up rule says which of the due occurrences make a job; the overlap rule says which of these have to wait or are
skipped. The others leave a line in the log, and the cursor moves to the first occurrence after now.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from pulse.model.schedules import CatchUp, FireOutcome, Overlap, Schedule, ScheduleStatus
from pulse.timing.cron import InvalidCron
from pulse.timing.timetable import Missed, Timetable

GRACE = timedelta(seconds=10)  # the catch-up rule `skip` counts an occurrence as missed when it is this late
ALLOW, SKIP = Overlap.ALLOW.value, CatchUp.SKIP.value  # constants, because looking up members of an enum is slower
_MICROSECOND = timedelta(microseconds=1)


class DueSchedule(msgspec.Struct, frozen=True, gc=False):
    """The facts about a due schedule that the decision needs. The fields are the columns of its statement."""

    id: UUID
    bucket: int
    next_run_at: datetime | None
    buffered_for: datetime | None
    fired: int
    max_occurrences: int | None
    jitter: timedelta | None
    catch_up: str
    replay_limit: int
    overlap: str
    cron: str | None
    every: timedelta | None
    anchor: datetime | None
    run_at: datetime | None
    tz: str
    starts_at: datetime | None
    ends_at: datetime | None
    now: datetime
    is_busy: bool = False  # it has unfinished jobs; read later, and only if the overlap rule depends on it

    @property
    def timetable(self) -> Timetable:
        return Timetable(
            run_at=self.run_at,
            every=self.every,
            anchor=self.anchor,
            cron=self.cron,
            tz=self.tz,
            starts_at=self.starts_at,
            ends_at=self.ends_at,
        )


class FireNote(NamedTuple):
    """A line in the log for occurrences that made no job."""

    occurrence: datetime
    outcome: FireOutcome
    reason: str | None
    occurrences: int = 1
    newest: datetime | None = None  # none: the same as `occurrence`


class FireDecision(NamedTuple):
    """The decision about one due schedule."""

    fires: list[datetime]  # occurrences that make a job each
    notes: list[FireNote]
    next_run_at: datetime | None
    status: ScheduleStatus
    buffered_for: datetime | None = None
    error: str | None = None


def regular_successor(due: DueSchedule) -> datetime | None:
    """Return the next occurrence of a schedule that just fires the occurrence at its cursor, as nearly all do.

    Return None if more has to be decided.
    """
    cursor = due.next_run_at
    if cursor is None or due.overlap != ALLOW or due.max_occurrences is not None or due.buffered_for is not None:
        return None
    if due.jitter is not None or (due.catch_up == SKIP and due.now - cursor > GRACE):
        return None
    following = due.timetable.next_after(cursor)
    return following if following is not None and following > due.now >= cursor else None


def decide(due: DueSchedule, now: datetime) -> FireDecision:
    try:
        fires, notes, following = _split_due(due, due.timetable, now)
    except InvalidCron as error:  # it was valid when it was written, but its time zone is no longer known
        return decide_broken(due, str(error))
    fires, buffered, overlapping = _apply_overlap(due, fires)
    if overlapping and not fires and buffered is None:  # no job covers the coalesced occurrences either
        notes = [note._replace(outcome=FireOutcome.SKIPPED) for note in notes]
    notes += [FireNote(each, FireOutcome.SKIPPED, "overlap: an earlier job is unfinished") for each in overlapping]
    if due.max_occurrences is not None:
        left = max(0, due.max_occurrences - due.fired)
        fires = fires[:left]  # the timetable ends with the last of these, so later instants are no occurrences
        if due.fired + len(fires) >= due.max_occurrences:
            following = buffered = None
    if buffered is not None and buffered != due.buffered_for:
        notes.append(FireNote(buffered, FireOutcome.BUFFERED, "overlap: waits for an earlier job to end"))
    status = ScheduleStatus.ACTIVE if following is not None else ScheduleStatus.COMPLETED
    return FireDecision(fires, notes, following, status, buffered)


def decide_broken(due: DueSchedule, error: str) -> FireDecision:
    """Park a schedule that cannot fire: log its due occurrences as skipped, and leave it until somebody repairs it."""
    skipped = [each for each in (due.buffered_for, due.next_run_at) if each is not None]
    notes = [FireNote(each, FireOutcome.SKIPPED, "broken") for each in skipped]
    return FireDecision([], notes, None, ScheduleStatus.BROKEN, error=error)


def note_passed_over(schedule: Schedule, reason: str, now: datetime) -> list[FireNote]:
    """Return a line for the due occurrences that will not fire because somebody changed the schedule first."""
    cursor = schedule.next_run_at
    if cursor is None or cursor > now:
        return []
    try:
        missed = schedule.timed.upto(cursor, now)
    except InvalidCron:  # its time zone is no longer known, so the other occurrences cannot be computed
        missed = Missed(1, [cursor])
    return [FireNote(cursor, FireOutcome.SKIPPED, reason, missed.total, missed.newest[-1])]


def is_owed(schedule: Schedule, now: datetime) -> bool:
    """Tell whether the only occurrence of a paused schedule has passed and is still to run, late."""
    cursor = schedule.next_run_at
    if schedule.timed.kind != "once" or schedule.paused_at is None or cursor is None or cursor > now:
        return False
    return schedule.catch_up is not CatchUp.SKIP or now - cursor <= GRACE


def _split_due(
    due: DueSchedule, timetable: Timetable, now: datetime
) -> tuple[list[datetime], list[FireNote], datetime | None]:
    """Return the occurrences that make a job, notes about the others, and the next occurrence."""
    cursor = due.next_run_at
    if cursor is None or cursor > now:  # only the buffered occurrence is due
        return [], [], cursor
    following = timetable.next_after(cursor)
    is_only_one = following is None or following > now
    if is_only_one and (due.catch_up != CatchUp.SKIP or now - cursor <= GRACE):
        return [cursor], [], following
    fires, notes = _catch_up(due, timetable, cursor, now)
    return fires, notes, timetable.next_after(now)


def _catch_up(
    due: DueSchedule, timetable: Timetable, cursor: datetime, now: datetime
) -> tuple[list[datetime], list[FireNote]]:
    """Return the occurrences up to now that make a job, and notes about the others."""
    limit = due.replay_limit if due.catch_up == CatchUp.REPLAY else 1
    missed = timetable.upto(cursor, now, newest=limit)
    newest = missed.newest[-1]
    if due.catch_up == CatchUp.FIRE_ONCE:
        return [cursor], _note_coalesced(timetable, cursor, missed)
    if due.catch_up == CatchUp.SKIP:
        is_in_time = now - newest <= GRACE
        count = missed.total - is_in_time
        last = newest if not is_in_time or missed.total == 1 else _one_before(timetable, cursor, newest)
        notes = [FireNote(cursor, FireOutcome.SKIPPED, "missed", count, last)] if count else []
        return [newest] if is_in_time else [], notes
    count = missed.total - len(missed.newest)
    if not count:
        return missed.newest, []
    last = _one_before(timetable, cursor, missed.newest[0])
    reason = f"missed, beyond the {due.replay_limit} that are replayed"
    return missed.newest, [FireNote(cursor, FireOutcome.SKIPPED, reason, count, last)]


def _note_coalesced(timetable: Timetable, cursor: datetime, missed: Missed) -> list[FireNote]:
    """Return a line for all occurrences after the one at the cursor, whose job covers them."""
    if missed.total == 1:
        return []
    first = timetable.next_after(cursor)
    assert first is not None
    return [FireNote(first, FireOutcome.COALESCED, "missed", missed.total - 1, missed.newest[-1])]


def _one_before(timetable: Timetable, cursor: datetime, occurrence: datetime) -> datetime:
    return timetable.upto(cursor, occurrence - _MICROSECOND).newest[-1]


def _apply_overlap(due: DueSchedule, fires: list[datetime]) -> tuple[list[datetime], datetime | None, list[datetime]]:
    """Return the occurrences that fire now, the one that waits in the buffer, and those that are skipped."""
    waiting = [due.buffered_for] if due.buffered_for else []
    queue = waiting + fires
    if due.overlap == Overlap.ALLOW:
        return queue, None, []
    now = [] if due.is_busy else queue[:1]
    queue = queue[len(now) :]
    if due.overlap == Overlap.SKIP:
        return now, None, queue
    return now, (queue[0] if queue else None), queue[1:]


def jitter_start(due: DueSchedule, occurrence: datetime, following: datetime | None) -> datetime | None:
    """Return when the job of an occurrence may start: a pseudo-random instant within the jitter, the same at every try,
    and before the next occurrence. Return None if the schedule has no jitter."""
    if due.jitter is None:
        return None
    digest = hashlib.blake2b(due.id.bytes + occurrence.isoformat().encode(), digest_size=8).digest()
    window = due.jitter
    if following is not None and following > occurrence:
        window = min(window, following - occurrence)
    return occurrence + (int.from_bytes(digest) % (window // _MICROSECOND)) * _MICROSECOND
