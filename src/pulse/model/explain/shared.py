"""How is the explanation of a job put together, and which phrases do several of them need?"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pulse.model.explain.facts import Explanation, Facts, Reason
from pulse.model.human_text import about

if TYPE_CHECKING:
    from pulse.model.jobs import Job

A_MOMENT = timedelta(seconds=5)  # every duty and every worker acts within this, if any is running


def write_explanation(
    facts: Facts,
    reason: Reason,
    *sentences: str,
    worker: str | None = None,
    ahead: int | None = None,
    expected_at: datetime | None = None,
) -> Explanation:
    """Return an explanation whose text is these sentences, without the empty ones."""
    job = facts.job
    return Explanation(
        job_id=job.id,
        status=job.status,
        topic=job.topic,
        reason=reason,
        text=" ".join(sentence for sentence in sentences if sentence),
        worker=worker,
        ahead=ahead,
        expected_at=expected_at,
    )


def charged(job: Job) -> int:
    return job.attempt - job.refunded


def ago(facts: Facts, then: datetime) -> str:
    return f"{about(facts.now - then)} ago" if facts.now - then >= timedelta(seconds=1) else "just now"
