"""Why does a job not run? The first reason that applies, in sentences that are the same at every door."""

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
from pulse.model.explain.shared import A_MOMENT, ago, charged, write_explanation
from pulse.model.human_text import about, first_words, instant, listed, plural
from pulse.model.jobs import LONGEST, JobStatus, Pause

PUT_OFF = timedelta(minutes=1)  # longer than a worker postpones a job whose task it does not know


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
        return write_explanation(
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


# --- the job is finished


def _completed(facts: Facts) -> Explanation:
    text = f"It was completed {_ended(facts)} by {facts.job.locked_by}."
    return write_explanation(facts, Reason.COMPLETED, text, worker=facts.job.locked_by)


def _cancelled(facts: Facts) -> Explanation:
    reason = (facts.job.last_error or "cancelled").removeprefix("cancelled").removeprefix(": ")
    why = f": {first_words(reason)}" if reason else ""
    return write_explanation(
        facts,
        Reason.CANCELLED,
        f"It was cancelled {_ended(facts)}{why}.",
        "A cancelled job stays cancelled: if it should run after all, enqueue a new one.",
    )


def _dead_lettered(facts: Facts) -> Explanation:
    job = facts.job
    return write_explanation(
        facts,
        Reason.DEAD_LETTERED,
        f"It failed for good {_ended(facts)}, after {charged(job):,} of {plural(job.max_attempts, 'attempt')}: "
        f"{first_words(job.last_error or 'without an error')}.",
        f"`pulse jobs show {job.id}` lists its attempts; `pulse jobs replay {job.id}` gives it new ones.",
        worker=job.locked_by,
    )


_FINISHED = {
    JobStatus.COMPLETED: _completed,
    JobStatus.CANCELLED: _cancelled,
    JobStatus.DEAD_LETTERED: _dead_lettered,
}


def _ended(facts: Facts) -> str:
    assert facts.job.finished_at is not None  # a CHECK of the table
    return ago(facts, facts.job.finished_at)


# --- the time of the job has not come


def _not_due(facts: Facts) -> Explanation:
    job = facts.job
    when = f"{instant(job.run_at)}, in {about(job.run_at - facts.now)}"
    if job.status is JobStatus.RETRYING:
        left = job.max_attempts - charged(job)
        error = first_words(job.last_error or "without an error")
        sentences = [
            f"Attempt {charged(job)} of {job.max_attempts} failed: {error}.",
            f"The next attempt is at {when}; {plural(left, 'attempt')} {'is' if left == 1 else 'are'} left.",
        ]
    else:
        postponed = f"It was postponed: {first_words(job.last_error)}." if job.attempt and job.last_error else ""
        sentences = [f"It waits for its time: {when}.", postponed]
    reason = Reason.RETRYING if job.status is JobStatus.RETRYING else Reason.SCHEDULED
    obstacles = [*_paused(facts), *([] if facts.topic_workers else [_no_worker(facts)])]
    more = [_even_then(text) for text in obstacles[:1]]
    is_too_late = job.deadline is not None and job.deadline <= job.run_at
    if is_too_late:
        more = ["Its deadline is before that, so it will become a dead letter instead."]
    expected_at = None if obstacles or is_too_late else job.run_at
    return write_explanation(facts, reason, *sentences, *more, expected_at=expected_at)


def _even_then(obstacle: str) -> str:
    return f"Even then it would not run: {obstacle[0].lower()}{obstacle[1:]}"


def _is_unknown(facts: Facts) -> bool:
    """Tell whether the last worker did not know the task. A handler that snoozes its job keeps the older error on it,
    but mostly snoozes for longer than a worker postpones an unknown task."""
    job = facts.job
    if job.status is not JobStatus.SCHEDULED or job.last_error != unknown_task_error(job.task):
        return False
    assert job.claimed_at is not None  # a worker recorded that error, so one has claimed the job
    return job.run_at - job.claimed_at <= PUT_OFF and facts.now - job.run_at <= A_MOMENT


def _unknown_task(facts: Facts) -> Explanation:
    job = facts.job
    return write_explanation(
        facts,
        Reason.UNKNOWN_TASK,
        f"No worker that claimed it knows task {job.task!r}: the last was {job.locked_by}, whose app has no such task.",
        "It is postponed for a few seconds again and again, without using up attempts, until a worker of topic "
        f"{job.topic!r} knows the task.",
        f"Start a worker whose app has the task; or, if the name is wrong, run `pulse jobs cancel {job.id}` and "
        "enqueue a new job.",
        *(_even_then(text) for text in _paused(facts)[:1]),
        _deadline(facts),
        worker=job.locked_by,
    )


def _overdue(facts: Facts) -> Explanation:
    job = facts.job
    return write_explanation(
        facts,
        Reason.OVERDUE,
        f"Its time came {ago(facts, job.run_at)}, and it is about to be made ready.",
        _duties_hint(facts, job.run_at),
    )


def _duties_hint(facts: Facts, since: datetime) -> str:
    if facts.now - since <= A_MOMENT:
        return ""
    return "Any worker or server would have done that by now: is one running? `pulse doctor` can tell."


# --- the job waits in line


def _locked(facts: Facts) -> Explanation:
    holders = [_describe_holder(facts, holder) for holder in facts.holders[:MAX_NAMED]]
    holder = "That transaction has just ended, or this database role cannot see it."
    if holders:
        holder = f"It is probably {holders[0]}."
    more = f"Other transactions that work on jobs: {listed(holders[1:])}." if holders[1:] else ""
    return write_explanation(
        facts,
        Reason.LOCKED,
        "Another transaction has locked its row, and workers and servers pass over locked rows.",
        holder,
        more,
        "The job goes on when that transaction ends.",
        worker=facts.job.locked_by if facts.job.status is JobStatus.RUNNING else None,
    )


def _describe_holder(facts: Facts, holder: Holder) -> str:
    age = f" for {about(facts.now - holder.since)}" if holder.since else ""
    query = f": {first_words(holder.query, 80)}" if holder.query else ""
    return f"pid {holder.pid} ({holder.application or 'no name'}, {holder.state or 'unknown'}{age}{query})"


def _pending(facts: Facts) -> Explanation:
    where = [_place(facts), _deadline(facts)]
    if facts.pauses:
        return write_explanation(facts, Reason.PAUSED, *_paused(facts), *where, ahead=facts.ahead)
    if not facts.topic_workers:
        return write_explanation(facts, Reason.NO_WORKER, _no_worker(facts), *where, ahead=facts.ahead)
    if facts.ahead is not None and facts.ahead < facts.free_slots:
        return _next(facts)
    reason = Reason.WORKERS_BUSY if facts.ahead == 0 else Reason.BEHIND
    sentences, expected_at = _estimate(facts)
    return write_explanation(
        facts, reason, _place(facts), _busy(facts), *sentences, ahead=facts.ahead, expected_at=expected_at
    )


def _paused(facts: Facts) -> list[str]:
    return [_describe_pause(facts, pause) for pause in facts.pauses]


def _describe_pause(facts: Facts, pause: Pause) -> str:
    topic, resume = ("All topics are", "--all") if pause.topic == "*" else (f"Topic {pause.topic!r} is", pause.topic)
    why = f": {first_words(pause.reason)}" if pause.reason else ""
    since = f"since {instant(pause.paused_at)}, for {about(facts.now - pause.paused_at)}"
    return f"{topic} paused ({since}){why}. `pulse topics resume {resume}` ends the pause."


def _some(names: Sequence[str]) -> str:
    more = [f"{len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return listed([*names[:MAX_NAMED], *more])


def _no_worker(facts: Facts) -> str:
    named = [f"{worker.name} ({_some(worker.topics)})" for worker in facts.workers[:MAX_NAMED]]
    others = len(facts.workers) - len(named)
    more = [plural(others, "other")] if others else []
    connected = "no worker is connected at all"
    if named:
        connected = f"only {listed([*named, *more])} {'is' if len(named) == 1 else 'are'} connected"
    return (
        f"No worker takes topic {facts.job.topic!r}: {connected}. Start one that does; it may use the database itself "
        "or a server."
    )


def _place(facts: Facts) -> str:
    if facts.ahead is None:
        return f"More than {MAX_COUNTED:,} jobs of its topic are before it."
    if facts.ahead == 0:
        return "No job of its topic is before it."
    return f"{plural(facts.ahead, 'job')} of its topic {'is' if facts.ahead == 1 else 'are'} before it."


def _busy(facts: Facts) -> str:
    workers = facts.topic_workers
    slots, busy = sum(worker.slots for worker in workers), sum(worker.busy for worker in workers)
    takes = "takes" if len(workers) == 1 else "take"
    count = plural(len(workers), "worker")
    return f"{count} {takes} the topic, with {min(busy, slots):,} of {plural(slots, 'slot')} busy."


def _estimate(facts: Facts) -> tuple[list[str], datetime | None]:
    """Return sentences about when it should begin, and the instant if it can be estimated."""
    rate = facts.pace.per_second if facts.pace else None
    if rate is None:
        few = f"fewer than {MIN_ENDS} jobs of its topic have ended recently"
        return [f"When it begins cannot be estimated: {few}.", _deadline(facts)], None
    turns = 1 + (MAX_COUNTED if facts.ahead is None else facts.ahead)
    at = facts.now + min(timedelta(seconds=turns / rate), LONGEST)
    wait = "at least" if facts.ahead is None else "about"
    pace = f"{rate:,.1f} jobs a second" if rate >= 0.1 else f"{rate * 3600:,.0f} jobs an hour"
    estimate = f"Expected in {wait} {about(at - facts.now)} at the recent pace of {pace}, unless more urgent jobs come."
    if facts.job.deadline is not None and facts.job.deadline <= at:
        return [estimate, "Its deadline is before that, so it will become a dead letter instead."], None
    return [estimate, _deadline(facts)], None if facts.ahead is None else at


def _next(facts: Facts) -> Explanation:
    job = facts.job
    waited = facts.now - (job.ready_at or facts.now)
    outlook, stuck = f"A slot is free for it: it should begin within {about(A_MOMENT)}.", ""
    if waited > 2 * A_MOMENT:
        stuck = (
            f"But it has been ready for {about(waited)} already: the free slots may be of another kind (threads, "
            "processes), or the worker cannot claim, as its log would say. `pulse doctor` checks the database."
        )
    return write_explanation(
        facts,
        Reason.NEXT,
        outlook,
        _busy(facts),
        stuck,
        _deadline(facts),
        ahead=facts.ahead,
        expected_at=None if stuck else facts.now,
    )


def _deadline(facts: Facts) -> str:
    deadline = facts.job.deadline
    return f"If it has not begun within {about(deadline - facts.now)}, it becomes a dead letter." if deadline else ""
