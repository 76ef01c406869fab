"""Why does a job that a worker has claimed not go on? Sentences for a running job and for one whose worker is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pulse.model.explain.facts import Explanation, Facts, Reason
from pulse.model.explain.shared import A_MOMENT, ago, charged, write_explanation
from pulse.model.human_text import about, first_words

if TYPE_CHECKING:
    from pulse.model.jobs import Job

UNRECORDED = timedelta(seconds=6)  # a worker gets jobs at once, and its presence is recorded within five seconds
UNSEEN = timedelta(seconds=25)  # the presence of every worker is recorded every twenty seconds at the latest


def explain_held(facts: Facts) -> Explanation:
    return _worker_gone(facts) if _is_worker_gone(facts) else _running(facts)


def _running(facts: Facts) -> Explanation:
    job = facts.job
    assert job.claimed_at is not None
    assert job.lease_until is not None
    seen = f"; the worker was last seen {ago(facts, facts.job_worker.seen_at)}" if facts.job_worker else ""
    return write_explanation(
        facts,
        Reason.RUNNING,
        f"It is running: {job.locked_by} has had it for {about(facts.now - job.claimed_at)}, as attempt "
        f"{charged(job)} of {job.max_attempts}.",
        f"Its lease holds for another {about(job.lease_until - facts.now)} and is renewed while the worker "
        f"lives{seen}.",
        f"Its last progress: {first_words(job.progress, 100)}." if job.progress else "",
        worker=job.locked_by,
    )


def _is_worker_gone(facts: Facts) -> bool:
    if facts.job_worker is not None:
        return facts.now - facts.job_worker.seen_at > UNSEEN
    assert facts.job.claimed_at is not None
    return facts.now - facts.job.claimed_at > UNRECORDED


def _worker_gone(facts: Facts) -> Explanation:
    """Explain that the worker seems to be gone. It may still come back, for example by way of another server."""
    job, worker = facts.job, facts.job_worker
    assert job.lease_until is not None
    why = f"was last seen {ago(facts, worker.seen_at)}" if worker else "is not connected any more"
    return write_explanation(
        facts,
        Reason.WORKER_GONE,
        f"{job.locked_by} has it, as attempt {charged(job)} of {job.max_attempts}, but seems to be gone: it {why}.",
        f"Unless it comes back, the lease ends in {about(job.lease_until - facts.now)}; the watchdog of any worker or "
        f"server takes the job back within about {about(facts.watchdog)} of that, and then {_after_expiry(job)}.",
        worker=job.locked_by,
    )


def _after_expiry(job: Job) -> str:
    left = job.max_attempts - charged(job)
    return "it is tried again" if left > 0 else "it becomes a dead letter, because that was its last attempt"


def explain_expired(facts: Facts) -> Explanation:
    job = facts.job
    assert job.lease_until is not None
    after = _after_expiry(job)
    late = facts.now - job.lease_until
    if late <= 3 * facts.watchdog + A_MOMENT:
        outlook = f"The watchdog takes it back within about {about(facts.watchdog)}; then {after}."
    else:
        outlook = (
            f"No watchdog has taken it back since, so no worker or server seems to run: start one, and {after}. "
            "After an outage of the database or of all of them, they wait for the length of one lease first."
        )
    return write_explanation(
        facts,
        Reason.LEASE_EXPIRED,
        f"{job.locked_by} had it, but its lease ran out {about(late)} ago: the worker died or hangs.",
        outlook,
        worker=job.locked_by,
    )
