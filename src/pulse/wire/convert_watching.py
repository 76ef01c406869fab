"""How do explanations of jobs and the overview become messages of the wire, and back?"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pulse.model.explain.facts import Explanation, Reason
from pulse.model.jobs import JobStatus
from pulse.model.statistics import Concern, ConcernKind, Overview, TopicFacts
from pulse.wire.convert import (
    EPOCH,
    STATUS_FROM_WIRE,
    STATUS_TO_WIRE,
    read_id,
    read_instant,
    read_length,
    read_text,
    read_worker,
    write_instant,
    write_length,
    write_worker,
)
from pulse.wire.v1 import pulse_pb2 as pb


def write_explanation(found: Explanation) -> pb.Explanation:
    return pb.Explanation(
        job_id=str(found.job_id),
        status=STATUS_TO_WIRE[found.status],
        topic=found.topic,
        reason=found.reason.value,
        text=found.text,
        worker=found.worker,
        ahead=found.ahead,
        expected_at=write_instant(found.expected_at),
    )


def read_explanation(message: pb.Explanation) -> Explanation:
    known = message.reason in Reason.__members__
    return Explanation(
        job_id=read_id(message.job_id),
        status=STATUS_FROM_WIRE[message.status],
        topic=message.topic,
        reason=Reason(message.reason) if known else Reason.OTHER,
        text=message.text,
        worker=read_text(message, "worker"),
        ahead=message.ahead if message.HasField("ahead") else None,
        expected_at=read_instant(message, "expected_at"),
    )


def write_overview(found: Overview) -> pb.Overview:
    return pb.Overview(
        at=write_instant(found.at),
        topics=[_write_topic(topic) for topic in found.topics],
        workers=[write_worker(worker) for worker in found.workers],
        concerns=[
            pb.Concern(kind=each.kind.value, text=each.text, urgent=each.is_urgent, topic=each.topic)
            for each in found.concerns
        ],
        rate_in=found.rate_in,
        rate_out=found.rate_out,
        failing=found.failing,
        broken_schedules=found.broken_schedules,
        failing_alarms=found.failing_alarms,
        schedules_overdue=write_length(found.schedules_overdue),
        alarms_overdue=write_length(found.alarms_overdue),
    )


def _write_topic(facts: TopicFacts) -> pb.TopicFacts:
    return pb.TopicFacts(
        topic=facts.topic,
        counts={status.value: jobs for status, jobs in facts.counts.items()},
        paused=facts.is_paused,
        oldest_at=write_instant(facts.oldest_at),
        rate_in=facts.rate_in,
        rate_out=facts.rate_out,
        failing=facts.failing,
    )


def read_overview(message: pb.Overview) -> Overview:
    return Overview(
        at=read_instant(message, "at") or EPOCH,
        topics=[_read_topic(topic) for topic in message.topics],
        workers=[read_worker(worker) for worker in message.workers],
        concerns=[_read_concern(concern) for concern in message.concerns],
        rate_in=message.rate_in,
        rate_out=message.rate_out,
        failing=_read_share(message),
        broken_schedules=message.broken_schedules,
        failing_alarms=message.failing_alarms,
        schedules_overdue=read_length(message, "schedules_overdue") or timedelta(),
        alarms_overdue=read_length(message, "alarms_overdue") or timedelta(),
    )


def _read_topic(message: pb.TopicFacts) -> TopicFacts:
    return TopicFacts(
        message.topic,
        {JobStatus(status): jobs for status, jobs in message.counts.items() if status in JobStatus.__members__},
        message.paused,
        read_instant(message, "oldest_at"),
        message.rate_in,
        message.rate_out,
        _read_share(message),
    )


def _read_concern(message: pb.Concern) -> Concern:
    """Read a concern. One of a kind that only newer releases know becomes OTHER, and keeps its text."""
    kinds = {kind.value: kind for kind in ConcernKind}
    kind = kinds.get(message.kind, ConcernKind.OTHER)
    return Concern(kind, message.text, message.urgent, read_text(message, "topic"))


def _read_share(message: Any) -> float | None:  # noqa: ANN401
    return float(message.failing) if message.HasField("failing") else None
