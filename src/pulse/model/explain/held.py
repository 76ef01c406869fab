"""In which words is it said what became of a job that a worker has, or had until its lease ran out?"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.explain.facts import Explanation, Facts, Reason
from pulse.model.explain.shared import A_MOMENT, ago, charged, say
from pulse.model.human_text import about, first_words

if TYPE_CHECKING:
    from pulse.model.jobs import Job

UNNOTED = timedelta(seconds=6)  # a new worker is noted within five, and may have had a job before
UNSEEN = timedelta(seconds=25)  # every worker is noted every twenty at the latest


def explain_held(facts: Facts) -> Explanation:
    return _worker_gone(facts) if _is_worker_gone(facts) else _running(facts)


def _running(facts: Facts) -> Explanation:
    job = facts.job
    assert job.claimed_at is not None
    assert job.lease_until is not None
    heard = f"; it was last seen {ago(facts, facts.holder.seen_at)}" if facts.holder else ""
    return say(
        facts,
        Reason.RUNNING,
        f"It runs: {job.locked_by} has had it for {about(facts.now - job.claimed_at)}, as attempt "
        f"{charged(job)} of {job.max_attempts}.",
        f"Its lease holds for another {about(job.lease_until - facts.now)} and is renewed while the worker "
        f"lives{heard}.",
        f"It last said: {first_words(job.progress, 100)}." if job.progress else "",
        worker=job.locked_by,
    )


def _is_worker_gone(facts: Facts) -> bool:
    if facts.holder is not None:
        return facts.now - facts.holder.seen_at > UNSEEN
    assert facts.job.claimed_at is not None
    return facts.now - facts.job.claimed_at > UNNOTED


def _worker_gone(facts: Facts) -> Explanation:
    """As far as can be known: it may be on its way from one server to another."""
    job, holder = facts.job, facts.holder
    assert job.lease_until is not None
    why = f"was last seen {ago(facts, holder.seen_at)}" if holder else "is not connected any more"
    return say(
        facts,
        Reason.WORKER_GONE,
        f"{job.locked_by} has it, as attempt {charged(job)} of {job.max_attempts}, but seems to be gone: it {why}.",
        f"Unless it comes back, the lease ends in {about(job.lease_until - facts.now)}; the watchdog of any worker or "
        f"server takes the job back within about {about(facts.watchdog)} of that, and then {_after_loss(job)}.",
        worker=job.locked_by,
    )


def _after_loss(job: Job) -> str:
    left = job.max_attempts - charged(job)
    return "it is tried again" if left > 0 else "it becomes a dead letter, for that was its last attempt"


def explain_expired(facts: Facts) -> Explanation:
    job = facts.job
    assert job.lease_until is not None
    then = _after_loss(job)
    late = facts.now - job.lease_until
    if late <= 3 * facts.watchdog + A_MOMENT:
        what = f"The watchdog takes it back within about {about(facts.watchdog)}; then {then}."
    else:
        what = (
            f"Nobody has taken it back since, so no worker or server seems to run: start one, and {then}. "
            "After an absence of the database or of all of them, they wait for one lease before they judge."
        )
    return say(
        facts,
        Reason.LEASE_EXPIRED,
        f"{job.locked_by} had it, but its lease ran out {about(late)} ago: the worker died or stands still.",
        what,
        worker=job.locked_by,
    )
