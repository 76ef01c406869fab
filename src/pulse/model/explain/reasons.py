"""In which words is it said why a job does not run? One reason, the first that applies, the same text at every door."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pulse.model.explain.facts import (
    MAX_COUNTED,
    MAX_NAMED,
    MIN_ENDS,
    Explanation,
    Facts,
    Holder,
    Reason,
    unknown_task_error,
)
from pulse.model.explain.held import explain_expired, explain_held
from pulse.model.explain.shared import A_MOMENT, ago, charged, say
from pulse.model.human_text import about, first_words, instant, listed, plural
from pulse.model.jobs import LONGEST, JobStatus, Pause

PUT_OFF = timedelta(minutes=1)  # longer than a worker puts off what it does not know


def explain(facts: Facts) -> Explanation:
    job = facts.job
    if job.status in _FINISHED:
        return _FINISHED[job.status](facts)
    if job.status is JobStatus.RUNNING and job.lease_until is not None and job.lease_until >= facts.now:
        return explain_held(facts)
    if facts.is_locked:
        return _locked(facts)
    if job.status is JobStatus.RUNNING:
        return explain_expired(facts)
    if job.deadline is not None and job.deadline <= facts.now:
        return say(
            facts,
            Reason.DEADLINE_PASSED,
            f"Its deadline passed {ago(facts, job.deadline)}, so it will not run: it becomes a dead letter.",
            _duties_hint(facts, job.deadline),
        )
    if job.status is JobStatus.PENDING:
        return _pending(facts)
    if _is_unknown(facts):
        return _unknown_task(facts)
    return _overdue(facts) if job.run_at <= facts.now else _not_due(facts)


# --- it is over


def _completed(facts: Facts) -> Explanation:
    job = facts.job
    return say(facts, Reason.COMPLETED, f"It was completed {_over(facts)} by {job.locked_by}.", worker=job.locked_by)


def _cancelled(facts: Facts) -> Explanation:
    why = (facts.job.last_error or "cancelled").removeprefix("cancelled").removeprefix(": ")
    said = f": {first_words(why)}." if why else "."
    return say(
        facts, Reason.CANCELLED, f"It was cancelled {_over(facts)}{said}", "A cancelled job stays so: enqueue anew."
    )


def _dead_lettered(facts: Facts) -> Explanation:
    job = facts.job
    return say(
        facts,
        Reason.DEAD_LETTERED,
        f"It failed for good {_over(facts)}, after {plural(charged(job), 'attempt')} of {job.max_attempts}: "
        f"{first_words(job.last_error or 'without an error')}.",
        f"`pulse jobs show {job.id}` has its attempts; `pulse jobs replay {job.id}` sends it back to work.",
        worker=job.locked_by,
    )


_FINISHED = {
    JobStatus.COMPLETED: _completed,
    JobStatus.CANCELLED: _cancelled,
    JobStatus.DEAD_LETTERED: _dead_lettered,
}


def _over(facts: Facts) -> str:
    assert facts.job.finished_at is not None  # a CHECK of the table
    return ago(facts, facts.job.finished_at)


# --- its time has not come


def _not_due(facts: Facts) -> Explanation:
    job = facts.job
    when = f"{instant(job.run_at)}, in {about(job.run_at - facts.now)}"
    if job.status is JobStatus.RETRYING:
        left = job.max_attempts - charged(job)
        error = first_words(job.last_error or "without an error")
        said = [
            f"Attempt {charged(job)} of {job.max_attempts} failed: {error}.",
            f"The next is at {when}; {plural(left, 'attempt')} {'is' if left == 1 else 'are'} left.",
        ]
    else:
        put_off = f"It was put off: {first_words(job.last_error)}." if job.attempt and job.last_error else ""
        said = [f"It waits for its time: {when}.", put_off]
    reason = Reason.RETRYING if job.status is JobStatus.RETRYING else Reason.SCHEDULED
    obstacles = [*_paused(facts), *([] if facts.takers else [_no_worker(facts)])]
    also = [f"Even then: {text[0].lower()}{text[1:]}" for text in obstacles[:1]]
    is_lost = job.deadline is not None and job.deadline <= job.run_at
    if is_lost:
        also = ["Its deadline is before that, so it will become a dead letter instead."]
    return say(facts, reason, *said, *also, expected_at=None if obstacles or is_lost else job.run_at)


def _is_unknown(facts: Facts) -> bool:
    """Whether its last turn ended so. A handler that puts its job off leaves the older error, but for longer mostly."""
    job = facts.job
    if job.status is not JobStatus.SCHEDULED or job.last_error != unknown_task_error(job.task):
        return False
    assert job.claimed_at is not None  # whoever left that error had it
    return job.run_at - job.claimed_at <= PUT_OFF and facts.now - job.run_at <= A_MOMENT


def _unknown_task(facts: Facts) -> Explanation:
    job = facts.job
    return say(
        facts,
        Reason.UNKNOWN_TASK,
        f"No worker that had it knows task {job.task!r}: {job.locked_by} was the last, and its app has no such task.",
        f"It is put off for a few seconds, uncharged, again and again, until a worker of topic {job.topic!r} knows it.",
        f"Start one whose app has the task; or, if the name is wrong, `pulse jobs cancel {job.id}` and enqueue anew.",
        *(f"Even then: {text[0].lower()}{text[1:]}" for text in _paused(facts)[:1]),
        _deadline(facts),
        worker=job.locked_by,
    )


def _overdue(facts: Facts) -> Explanation:
    job = facts.job
    return say(
        facts,
        Reason.OVERDUE,
        f"Its time came {ago(facts, job.run_at)}, and it is about to be made ready.",
        _duties_hint(facts, job.run_at),
    )


def _duties_hint(facts: Facts, since: datetime) -> str:
    if facts.now - since <= A_MOMENT:
        return ""
    return "That is the duty of every worker and server, and none has done it: is any running? `pulse doctor` looks."


# --- it waits in line


def _locked(facts: Facts) -> Explanation:
    holders = [_holder(facts, holder) for holder in facts.holders[:MAX_NAMED]]
    who = f"Probably {holders[0]}." if holders else "It ended just now, or may not be seen by this database role."
    more = f"Other transactions at work on jobs: {listed(holders[1:])}." if holders[1:] else ""
    return say(
        facts,
        Reason.LOCKED,
        "Another transaction holds its row, and whoever would move it passes over that.",
        who,
        more,
        "It goes on when that transaction ends.",
        worker=facts.job.locked_by if facts.job.status is JobStatus.RUNNING else None,
    )


def _holder(facts: Facts, holder: Holder) -> str:
    age = f" for {about(facts.now - holder.since)}" if holder.since else ""
    query = f": {first_words(holder.query, 80)}" if holder.query else ""
    return f"pid {holder.pid} ({holder.application or 'no name'}, {holder.state or 'unknown'}{age}{query})"


def _pending(facts: Facts) -> Explanation:
    if facts.pauses:
        return say(facts, Reason.PAUSED, *_paused(facts), _place(facts), _deadline(facts), ahead=facts.ahead)
    if not facts.takers:
        return say(facts, Reason.NO_WORKER, _no_worker(facts), _place(facts), _deadline(facts), ahead=facts.ahead)
    if facts.ahead is not None and facts.ahead < facts.free:
        return _next(facts)
    reason = Reason.WORKERS_BUSY if facts.ahead == 0 else Reason.BEHIND
    words, expected_at = _turn(facts)
    return say(facts, reason, _place(facts), _busy(facts), *words, ahead=facts.ahead, expected_at=expected_at)


def _paused(facts: Facts) -> list[str]:
    return [_pause(facts, pause) for pause in facts.pauses]


def _pause(facts: Facts, pause: Pause) -> str:
    what, resume = ("All topics are", "--all") if pause.topic == "*" else (f"Topic {pause.topic!r} is", pause.topic)
    why = f": {first_words(pause.reason)}" if pause.reason else ""
    since = f"{instant(pause.paused_at)}, for {about(facts.now - pause.paused_at)}"
    return f"{what} paused since {since}{why}. `pulse topics resume {resume}` ends that."


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return listed([*names[:MAX_NAMED], *more])


def _no_worker(facts: Facts) -> str:
    named = [f"{worker.name} ({_some(worker.topics)})" for worker in facts.workers[:MAX_NAMED]]
    others = len(facts.workers) - len(named)
    more = [plural(others, "other")] if others else []
    there = f"there {'is' if len(named) == 1 else 'are'} {listed([*named, *more])}" if named else "there is none at all"
    return (
        f"No worker takes topic {facts.job.topic!r}: {there}. Start one that does: straight to the database or through "
        "a server, both count."
    )


def _place(facts: Facts) -> str:
    if facts.ahead is None:
        return f"More than {MAX_COUNTED:,} jobs of its topic are before it."
    if facts.ahead == 0:
        return "No job of its topic is before it."
    return f"{plural(facts.ahead, 'job')} of its topic {'is' if facts.ahead == 1 else 'are'} before it."


def _busy(facts: Facts) -> str:
    slots, busy = sum(worker.slots for worker in facts.takers), sum(worker.busy for worker in facts.takers)
    takes = "takes" if len(facts.takers) == 1 else "take"
    workers = plural(len(facts.takers), "worker")
    return f"{workers} {takes} the topic, with {min(busy, slots):,} of {plural(slots, 'slot')} busy."


def _turn(facts: Facts) -> tuple[list[str], datetime | None]:
    """When it should begin, in words; and the instant, where it is more than a guess."""
    rate = facts.pace.per_second if facts.pace else None
    if rate is None:
        few = f"fewer than {MIN_ENDS} jobs of its topic have ended lately"
        return [f"When it begins cannot be reckoned: {few}.", _deadline(facts)], None
    turns = 1 + (MAX_COUNTED if facts.ahead is None else facts.ahead)
    at = facts.now + min(timedelta(seconds=turns / rate), LONGEST)
    word = "Not before" if facts.ahead is None else "Expected in"
    pace = f"{rate:,.1f} jobs a second" if rate >= 0.1 else f"{rate * 3600:,.0f} jobs an hour"
    said = f"{word} about {about(at - facts.now)} at the pace of late, {pace}, unless more urgent ones come."
    if facts.job.deadline is not None and facts.job.deadline <= at:
        return [said, "Its deadline is before that: it will become a dead letter."], None
    return [said, _deadline(facts)], None if facts.ahead is None else at


def _next(facts: Facts) -> Explanation:
    job = facts.job
    waited = facts.now - (job.ready_at or facts.now)
    room, stuck = f"There is room for it: it should begin within {about(A_MOMENT)}.", ""
    if waited > 2 * A_MOMENT:
        stuck = (
            f"It has been ready for {about(waited)} all the same: the free places may be of another kind (threads, "
            "processes), or the worker cannot claim. Its log says so; `pulse doctor` looks at the database."
        )
    return say(
        facts,
        Reason.NEXT,
        room,
        _busy(facts),
        stuck,
        _deadline(facts),
        ahead=facts.ahead,
        expected_at=None if stuck else facts.now,
    )


def _deadline(facts: Facts) -> str:
    deadline = facts.job.deadline
    return f"If it has not begun in {about(deadline - facts.now)}, its deadline ends it." if deadline else ""
