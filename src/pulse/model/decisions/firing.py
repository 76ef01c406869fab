"""What happens to a schedule whose time has come? The whole decision, without any I/O.

Catch-up says which of the occurrences that are due make a job, overlap which of those have to wait or go; the rest
leave a line in the log, and the cursor goes to the first occurrence after now.
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

GRACE = timedelta(seconds=10)  # an occurrence is not missed, for `skip`, before it is so late
ALLOW, SKIP = Overlap.ALLOW.value, CatchUp.SKIP.value  # members of an enum take longer to look up
_MICROSECOND = timedelta(microseconds=1)


class DueSchedule(msgspec.Struct, frozen=True, gc=False):
    """What the decision needs to know of a schedule, in the order of its statement's columns."""

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
    is_busy: bool = False  # it has unfinished jobs; asked afterwards, and only where overlap matters

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
    """A line of the log for occurrences that made no job."""

    occurrence: datetime
    outcome: FireOutcome
    reason: str | None
    occurrences: int = 1
    newest: datetime | None = None  # none: as occurrence


class FireDecision(NamedTuple):
    """What is to be done about one schedule that is due."""

    fires: list[datetime]  # a job for each
    notes: list[FireNote]
    next_run_at: datetime | None
    status: ScheduleStatus
    buffered_for: datetime | None = None
    error: str | None = None


def regular_successor(due: DueSchedule) -> datetime | None:
    """The next occurrence of one whose cursor's occurrence fires now, with nothing more to be said, as nearly all do.

    None: more is to be decided.
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
        fires, notes, following = _on_time(due, due.timetable, now)
    except InvalidCron as error:  # it was read when it was written: its zone has gone since
        return broken(due, str(error))
    fires, buffered, in_the_way = _without_overlap(due, fires)
    if in_the_way and not fires and buffered is None:  # nobody stands for the others either
        notes = [note._replace(outcome=FireOutcome.SKIPPED) for note in notes]
    notes += [FireNote(each, FireOutcome.SKIPPED, "overlap: a job before it is unfinished") for each in in_the_way]
    if due.max_occurrences is not None:
        left = max(0, due.max_occurrences - due.fired)
        fires = fires[:left]  # with the last of them its timetable has ended: what would follow is no occurrence
        if due.fired + len(fires) >= due.max_occurrences:
            following = buffered = None
    if buffered is not None and buffered != due.buffered_for:
        notes.append(FireNote(buffered, FireOutcome.BUFFERED, "overlap: waits for the job before it"))
    status = ScheduleStatus.ACTIVE if following is not None else ScheduleStatus.COMPLETED
    return FireDecision(fires, notes, following, status, buffered)


def broken(due: DueSchedule, error: str) -> FireDecision:
    """Parked: its occurrences are accounted for, and it is in nobody's way until someone mends it."""
    given_up = [each for each in (due.buffered_for, due.next_run_at) if each is not None]
    notes = [FireNote(each, FireOutcome.SKIPPED, "broken") for each in given_up]
    return FireDecision([], notes, None, ScheduleStatus.BROKEN, error=error)


def passed_over(schedule: Schedule, reason: str, now: datetime) -> list[FireNote]:
    """One line for all that is due and will not be fired, because someone changed the schedule first."""
    cursor = schedule.next_run_at
    if cursor is None or cursor > now:
        return []
    try:
        missed = schedule.timed.upto(cursor, now)
    except InvalidCron:  # its zone has gone: what it would have meant nobody knows
        missed = Missed(1, [cursor])
    return [FireNote(cursor, FireOutcome.SKIPPED, reason, missed.total, missed.newest[-1])]


def is_owed(schedule: Schedule, now: datetime) -> bool:
    """Whether a pause has outlasted the only occurrence of a schedule: it runs late, unless it is to be skipped."""
    cursor = schedule.next_run_at
    if schedule.timed.kind != "once" or schedule.paused_at is None or cursor is None or cursor > now:
        return False
    return schedule.catch_up is not CatchUp.SKIP or now - cursor <= GRACE


def _on_time(
    due: DueSchedule, timetable: Timetable, now: datetime
) -> tuple[list[datetime], list[FireNote], datetime | None]:
    """The occurrences that make a job, what is to be said of the others, and the next one."""
    cursor = due.next_run_at
    if cursor is None or cursor > now:  # only the one in the buffer has its turn
        return [], [], cursor
    following = timetable.next_after(cursor)
    is_alone = following is None or following > now
    if is_alone and (due.catch_up != CatchUp.SKIP or now - cursor <= GRACE):
        return [cursor], [], following
    fires, notes = _caught_up(due, timetable, cursor, now)
    return fires, notes, timetable.next_after(now)


def _caught_up(
    due: DueSchedule, timetable: Timetable, cursor: datetime, now: datetime
) -> tuple[list[datetime], list[FireNote]]:
    """Which of the occurrences up to now make a job."""
    wanted = due.replay_limit if due.catch_up == CatchUp.REPLAY else 1
    missed = timetable.upto(cursor, now, newest=wanted)
    newest = missed.newest[-1]
    if due.catch_up == CatchUp.FIRE_ONCE:
        return [cursor], _rest(timetable, cursor, missed)
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


def _rest(timetable: Timetable, cursor: datetime, missed: Missed) -> list[FireNote]:
    """All but the cursor's own occurrence, which stands for them."""
    if missed.total == 1:
        return []
    first = timetable.next_after(cursor)
    assert first is not None
    return [FireNote(first, FireOutcome.COALESCED, "missed", missed.total - 1, missed.newest[-1])]


def _one_before(timetable: Timetable, cursor: datetime, occurrence: datetime) -> datetime:
    return timetable.upto(cursor, occurrence - _MICROSECOND).newest[-1]


def _without_overlap(due: DueSchedule, fires: list[datetime]) -> tuple[list[datetime], datetime | None, list[datetime]]:
    """What fires now, what waits in the buffer, and what is skipped."""
    waiting = [due.buffered_for] if due.buffered_for else []
    queue = waiting + fires
    if due.overlap == Overlap.ALLOW:
        return queue, None, []
    now = [] if due.is_busy else queue[:1]
    queue = queue[len(now) :]
    if due.overlap == Overlap.SKIP:
        return now, None, queue
    return now, (queue[0] if queue else None), queue[1:]


def jittered(due: DueSchedule, occurrence: datetime, following: datetime | None) -> datetime | None:
    """When the job of an occurrence may start: spread, the same way each time, and before the next one falls due."""
    if due.jitter is None:
        return None
    digest = hashlib.blake2b(due.id.bytes + occurrence.isoformat().encode(), digest_size=8).digest()
    window = due.jitter
    if following is not None and following > occurrence:
        window = min(window, following - occurrence)
    return occurrence + (int.from_bytes(digest) % (window // _MICROSECOND)) * _MICROSECOND
