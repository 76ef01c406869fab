"""How do values of the model become messages of the wire, and messages become values?

The server and the client use the same functions, so each can read what the other writes. The model's constructors check
what a client sends, so a message is refused with the same error as the same values in Python.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pulse.model.errors import InvalidInput, InvalidOption, InvalidReport
from pulse.model.jobs import (
    Attempt,
    Claim,
    Job,
    JobFilter,
    JobStatus,
    Lease,
    NewJob,
    Outcome,
    Pause,
    Progress,
    Report,
    ReportStatus,
    RetryPolicy,
    TopicCount,
)
from pulse.model.workers import WorkerSeen
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pulse.model.tokens import Token

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
RETRY_LIMIT = 64 << 10  # characters: enough for a delay for each of the attempts that a job may have
FOREVER = datetime.max.replace(tzinfo=UTC)

STATUS_TO_WIRE: dict[JobStatus, Any] = {status: pb.JobStatus.Value(status.value) for status in JobStatus}
STATUS_FROM_WIRE = {number: status for status, number in STATUS_TO_WIRE.items()}
REPORT_STATUS_TO_WIRE: dict[ReportStatus, Any] = {
    answer: pb.Answer.Value("JOB_CANCELLED" if answer is ReportStatus.CANCELLED else answer.value)
    for answer in ReportStatus
}
REPORT_STATUS_FROM_WIRE = {number: answer for answer, number in REPORT_STATUS_TO_WIRE.items()}
OUTCOME_TO_WIRE: dict[Outcome, Any] = {outcome: pb.Outcome.Value(outcome.value) for outcome in Outcome}
_COMPLETE = OUTCOME_TO_WIRE[Outcome.COMPLETE]
OUTCOME_FROM_WIRE = {number: outcome for outcome, number in OUTCOME_TO_WIRE.items()}


# --- ids, instants and lengths


def read_id(text: str, field: str = "id") -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidOption(field, text[:60], "be a uuid") from None


def write_instant(instant: datetime | None) -> Timestamp | None:
    if instant is None:
        return None
    microseconds = (instant - EPOCH) // MICROSECOND
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1_000)


def read_instant(message: Any, field: str) -> datetime | None:  # noqa: ANN401
    if not message.HasField(field):
        return None
    found: Timestamp = getattr(message, field)
    try:
        return EPOCH + timedelta(seconds=found.seconds, microseconds=found.nanos // 1_000)
    except OverflowError:
        raise InvalidOption(field, found.seconds, "be an instant before the year 10000") from None


def write_length(length: timedelta | None) -> Duration | None:
    if length is None:
        return None
    microseconds = length // MICROSECOND
    return Duration(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1_000)


def read_length(message: Any, field: str) -> timedelta | None:  # noqa: ANN401
    if not message.HasField(field):
        return None
    found: Duration = getattr(message, field)
    try:
        return timedelta(seconds=found.seconds, microseconds=found.nanos // 1_000)
    except OverflowError:
        raise InvalidOption(field, found.seconds, "be at most ten years") from None


def write_clock(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def read_clock(found: Duration) -> float:
    return found.seconds + found.nanos / 1e9


# --- jobs as they are submitted


def write_new_job(job: NewJob) -> pb.NewJob:
    return pb.NewJob(
        task=job.task,
        payload=job.payload,
        topic=job.topic,
        id=str(job.id) if job.id else "",
        priority=job.priority,
        delay=write_length(job.delay),
        run_at=write_instant(job.run_at),
        max_attempts=job.max_attempts,
        retry=msgspec.json.encode(job.retry).decode() if job.retry else "",
        timeout=write_length(job.timeout),
        deadline=write_instant(job.deadline),
        unique_key=job.unique_key or "",
        unique_window=write_length(job.unique_window),
        result_ttl=write_length(job.result_ttl),
        tags=job.tags,
        trace=job.trace,
    )


def read_new_job(message: pb.NewJob) -> NewJob:
    return NewJob(
        task=message.task,
        payload=message.payload or "{}",
        topic=message.topic,
        id=read_id(message.id) if message.id else None,
        priority=message.priority,
        delay=read_length(message, "delay"),
        run_at=read_instant(message, "run_at"),
        max_attempts=message.max_attempts or 3,
        retry=read_retry(message.retry) if message.retry else None,
        timeout=read_length(message, "timeout"),
        deadline=read_instant(message, "deadline"),
        unique_key=message.unique_key or None,
        unique_window=read_length(message, "unique_window"),
        result_ttl=read_length(message, "result_ttl"),
        tags=tuple(message.tags),
        trace=dict(message.trace) or None,
    )


def read_retry(text: str) -> RetryPolicy:
    if len(text) > RETRY_LIMIT:
        raise InvalidOption("retry", text[:100], f"be a retry policy as JSON of at most {RETRY_LIMIT} characters")
    try:
        return msgspec.json.decode(text, type=RetryPolicy)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidOption("retry", text[:100], f"be a retry policy as JSON ({error})") from None


# --- jobs as they are stored


def write_job(job: Job) -> pb.Job:
    is_held = job.key_held_until is not None and job.key_held_until >= FOREVER.replace(microsecond=0)
    return pb.Job(
        id=str(job.id),
        status=STATUS_TO_WIRE[job.status],
        topic=job.topic,
        task=job.task,
        payload=job.payload,
        priority=job.priority,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        refunded=job.refunded,
        lease_id=job.lease_id,
        submitted_at=write_instant(job.submitted_at),
        ready_at=write_instant(job.ready_at),
        run_at=write_instant(job.run_at),
        claimed_at=write_instant(job.claimed_at),
        lease_until=write_instant(job.lease_until),
        finished_at=write_instant(job.finished_at),
        locked_by=job.locked_by,
        last_error=job.last_error,
        result=job.result,
        progress=job.progress,
        retry=job.retry,
        tags=job.tags,
        trace=job.trace,
        timeout=write_length(job.timeout),
        deadline=write_instant(job.deadline),
        result_ttl=write_length(job.result_ttl),
        unique_key=job.unique_key,
        key_held_until=None if is_held else write_instant(job.key_held_until),
        holds_key=is_held,
        schedule_id=str(job.schedule_id) if job.schedule_id else None,
        scheduled_for=write_instant(job.scheduled_for),
    )


def read_job(message: pb.Job) -> Job:
    submitted_at, run_at = read_instant(message, "submitted_at"), read_instant(message, "run_at")
    assert submitted_at is not None  # every job has both instants
    assert run_at is not None
    return Job(
        id=UUID(message.id),
        status=STATUS_FROM_WIRE[message.status],
        topic=message.topic,
        task=message.task,
        payload=message.payload,
        priority=message.priority,
        attempt=message.attempt,
        max_attempts=message.max_attempts,
        refunded=message.refunded,
        lease_id=message.lease_id,
        submitted_at=submitted_at,
        ready_at=read_instant(message, "ready_at"),
        run_at=run_at,
        claimed_at=read_instant(message, "claimed_at"),
        lease_until=read_instant(message, "lease_until"),
        finished_at=read_instant(message, "finished_at"),
        locked_by=read_text(message, "locked_by"),
        last_error=read_text(message, "last_error"),
        result=read_text(message, "result"),
        progress=read_text(message, "progress"),
        retry=read_text(message, "retry"),
        tags=read_text(message, "tags"),
        trace=read_text(message, "trace"),
        timeout=read_length(message, "timeout"),
        deadline=read_instant(message, "deadline"),
        result_ttl=read_length(message, "result_ttl"),
        unique_key=read_text(message, "unique_key"),
        key_held_until=FOREVER if message.holds_key else read_instant(message, "key_held_until"),
        schedule_id=UUID(message.schedule_id) if message.schedule_id else None,
        scheduled_for=read_instant(message, "scheduled_for"),
    )


def read_text(message: Any, field: str) -> str | None:  # noqa: ANN401
    return getattr(message, field) if message.HasField(field) else None


def write_attempt(attempt: Attempt) -> pb.Attempt:
    return pb.Attempt(
        lease_id=attempt.lease_id,
        attempt=attempt.attempt,
        worker=attempt.worker,
        started_at=write_instant(attempt.started_at),
        ended_at=write_instant(attempt.ended_at),
        error=attempt.error,
        traceback=attempt.traceback,
    )


def read_attempt(message: pb.Attempt) -> Attempt:
    ended_at = read_instant(message, "ended_at")
    assert ended_at is not None
    return Attempt(
        lease_id=message.lease_id,
        attempt=message.attempt,
        worker=read_text(message, "worker"),
        started_at=read_instant(message, "started_at"),
        ended_at=ended_at,
        error=message.error,
        traceback=read_text(message, "traceback"),
    )


# --- claims and reports


def write_assignments(claims: Sequence[Claim], *, server_time: float, lease: timedelta) -> pb.Assignments:
    return pb.Assignments(
        jobs=[_write_assignment(claim) for claim in claims],
        server_time=write_clock(server_time),
        lease=write_length(lease),
        claimed_at=write_instant(claims[0].claimed_at),
    )


def _write_assignment(claim: Claim) -> pb.Assignment:
    message = pb.Assignment(
        job_id=str(claim.id),
        lease_id=claim.lease_id,
        topic=claim.topic,
        task=claim.task,
        payload=claim.payload,
        attempt=claim.attempt,
        max_attempts=claim.max_attempts,
        refunded=claim.refunded,
        priority=claim.priority,
        ready_at_us=(claim.ready_at - EPOCH) // MICROSECOND,
    )
    # These are rare, and setting one submessage costs as much as all the fields above together.
    if timeout := write_length(claim.timeout):
        message.timeout.CopyFrom(timeout)
    if deadline := write_instant(claim.deadline):
        message.deadline.CopyFrom(deadline)
    if claim.trace is not None:
        message.trace = claim.trace
    if scheduled_for := write_instant(claim.scheduled_for):
        message.scheduled_for.CopyFrom(scheduled_for)
    return message


def read_assignments(message: pb.Assignments, worker: str) -> list[Claim]:
    claimed_at = read_instant(message, "claimed_at") or EPOCH
    lease_until = claimed_at + (read_length(message, "lease") or timedelta())
    return [_read_assignment(job, worker, claimed_at, lease_until) for job in message.jobs]


def _read_assignment(message: pb.Assignment, worker: str, claimed_at: datetime, lease_until: datetime) -> Claim:
    return Claim(
        UUID(message.job_id),
        message.lease_id,
        worker,
        message.topic,
        message.task,
        message.payload,
        message.attempt,
        message.max_attempts,
        message.refunded,
        message.priority,
        EPOCH + timedelta(microseconds=message.ready_at_us),
        claimed_at,
        lease_until,
        read_length(message, "timeout"),
        read_instant(message, "deadline"),
        message.trace if message.HasField("trace") else None,
        read_instant(message, "scheduled_for"),
    )


def write_lease(lease: Lease) -> pb.Lease:
    return pb.Lease(job_id=str(lease.id), lease_id=lease.lease_id)


def read_lease(message: pb.Lease) -> Lease:
    return Lease(read_id(message.job_id, "job_id"), message.lease_id)


def write_report(report: Report) -> pb.Report:
    """Write a report, without the characters of its error that could neither be stored nor sent."""
    if report.outcome is Outcome.COMPLETE:
        return pb.Report(job_id=str(report.id), lease_id=report.lease_id, outcome=_COMPLETE, result=report.result)
    return pb.Report(
        job_id=str(report.id),
        lease_id=report.lease_id,
        outcome=OUTCOME_TO_WIRE[report.outcome],
        result=report.result,
        error=report.clean_error or "",
        traceback=report.clean_traceback,
        delay=write_length(report.delay),
    )


def read_report(message: pb.Report) -> Report:
    outcome = OUTCOME_FROM_WIRE.get(message.outcome)
    if outcome is None:
        raise InvalidReport(f"the outcome of job {message.job_id} must be a known one, not {message.outcome}")
    return Report(
        id=read_id(message.job_id, "job_id"),
        lease_id=message.lease_id,
        outcome=outcome,
        result=message.result if message.HasField("result") else None,
        error=message.error,
        traceback=read_text(message, "traceback"),
        delay=read_length(message, "delay"),
    )


def write_progress(progress: Progress) -> pb.Progress:
    return pb.Progress(job_id=str(progress.id), lease_id=progress.lease_id, value=progress.value)


def read_progress(message: pb.Progress) -> Progress:
    return Progress(id=read_id(message.job_id, "job_id"), lease_id=message.lease_id, value=message.value)


def write_answers(answers: Iterable[ReportStatus]) -> list[Any]:
    return [REPORT_STATUS_TO_WIRE[answer] for answer in answers]


def read_answers(numbers: Iterable[int]) -> list[ReportStatus]:
    """Read answers. An answer that this client does not know yet is read as LOST, the safe choice."""
    return [REPORT_STATUS_FROM_WIRE.get(number, ReportStatus.LOST) for number in numbers]


# --- tokens


def write_token(token: Token) -> pb.Token:
    return pb.Token(
        name=token.name,
        scopes=[str(scope) for scope in token.scopes],
        created_at=write_instant(token.created_at),
        expires_at=write_instant(token.expires_at),
        revoked_at=write_instant(token.revoked_at),
    )


# --- lists, workers and topics


def write_filter(wanted: JobFilter) -> pb.JobFilter:
    return pb.JobFilter(
        topic=wanted.topic or "",
        task=wanted.task or "",
        status=STATUS_TO_WIRE[wanted.status] if wanted.status else None,
        tag=wanted.tag or "",
        error=wanted.error or "",
        submitted_after=write_instant(wanted.submitted_after),
        submitted_before=write_instant(wanted.submitted_before),
        schedule_id=str(wanted.schedule_id) if wanted.schedule_id else "",
    )


def read_filter(message: pb.JobFilter) -> JobFilter:
    if message.status and message.status not in STATUS_FROM_WIRE:
        raise InvalidInput(f"status must be a known one, not {message.status}")
    return JobFilter(
        topic=message.topic or None,
        task=message.task or None,
        status=STATUS_FROM_WIRE.get(message.status),
        tag=message.tag or None,
        error=message.error or None,
        submitted_after=read_instant(message, "submitted_after"),
        submitted_before=read_instant(message, "submitted_before"),
        schedule_id=read_id(message.schedule_id, "schedule_id") if message.schedule_id else None,
    )


def write_worker(worker: WorkerSeen) -> pb.Worker:
    return pb.Worker(
        name=worker.name,
        server=worker.server,
        version=worker.version,
        topics=worker.topics,
        slots=worker.slots,
        busy=worker.busy,
        connected_at=write_instant(worker.connected_at),
        seen_at=write_instant(worker.seen_at),
    )


def read_worker(message: pb.Worker) -> WorkerSeen:
    return WorkerSeen(
        name=message.name,
        server=message.server,
        version=message.version,
        topics=list(message.topics),
        slots=message.slots,
        busy=message.busy,
        connected_at=read_instant(message, "connected_at") or EPOCH,
        seen_at=read_instant(message, "seen_at") or EPOCH,
    )


def write_pause(pause: Pause) -> pb.Pause:
    return pb.Pause(topic=pause.topic, reason=pause.reason, paused_at=write_instant(pause.paused_at))


def read_pause(message: pb.Pause) -> Pause:
    return Pause(message.topic, message.reason, read_instant(message, "paused_at") or EPOCH)


def write_topic(topic: TopicCount) -> pb.Topic:
    counts = {status.value: jobs for status, jobs in topic.counts.items()}
    return pb.Topic(topic=topic.topic, counts=counts, paused=topic.paused)


def read_topic(message: pb.Topic) -> TopicCount:
    counts = {JobStatus(status): jobs for status, jobs in message.counts.items() if status in JobStatus.__members__}
    return TopicCount(message.topic, counts, message.paused)
