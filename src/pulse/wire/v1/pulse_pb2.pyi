import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATUS_UNSPECIFIED: _ClassVar[JobStatus]
    SCHEDULED: _ClassVar[JobStatus]
    PENDING: _ClassVar[JobStatus]
    RUNNING: _ClassVar[JobStatus]
    RETRYING: _ClassVar[JobStatus]
    COMPLETED: _ClassVar[JobStatus]
    DEAD_LETTERED: _ClassVar[JobStatus]
    CANCELLED: _ClassVar[JobStatus]

class Answer(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANSWER_UNSPECIFIED: _ClassVar[Answer]
    ACCEPTED: _ClassVar[Answer]
    ALREADY: _ClassVar[Answer]
    LOST: _ClassVar[Answer]
    JOB_CANCELLED: _ClassVar[Answer]
    BUSY: _ClassVar[Answer]
    REFUSED: _ClassVar[Answer]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    COMPLETE: _ClassVar[Outcome]
    FAIL: _ClassVar[Outcome]
    SNOOZE: _ClassVar[Outcome]
    DISCARD: _ClassVar[Outcome]

class ScheduleStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_STATUS_UNSPECIFIED: _ClassVar[ScheduleStatus]
    SCHEDULE_ACTIVE: _ClassVar[ScheduleStatus]
    SCHEDULE_COMPLETED: _ClassVar[ScheduleStatus]
    SCHEDULE_BROKEN: _ClassVar[ScheduleStatus]
    SCHEDULE_DISABLED: _ClassVar[ScheduleStatus]

class CatchUp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CATCH_UP_UNSPECIFIED: _ClassVar[CatchUp]
    CATCH_UP_FIRE_ONCE: _ClassVar[CatchUp]
    CATCH_UP_SKIP: _ClassVar[CatchUp]
    CATCH_UP_REPLAY: _ClassVar[CatchUp]

class Overlap(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_UNSPECIFIED: _ClassVar[Overlap]
    OVERLAP_ALLOW: _ClassVar[Overlap]
    OVERLAP_SKIP: _ClassVar[Overlap]
    OVERLAP_BUFFER_ONE: _ClassVar[Overlap]

class FireOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIRE_OUTCOME_UNSPECIFIED: _ClassVar[FireOutcome]
    FIRED: _ClassVar[FireOutcome]
    COALESCED: _ClassVar[FireOutcome]
    SKIPPED: _ClassVar[FireOutcome]
    BUFFERED: _ClassVar[FireOutcome]

class AlarmStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALARM_STATUS_UNSPECIFIED: _ClassVar[AlarmStatus]
    ALARM_ACTIVE: _ClassVar[AlarmStatus]
    ALARM_FIRED: _ClassVar[AlarmStatus]
    ALARM_FAILED: _ClassVar[AlarmStatus]
    ALARM_CANCELLED: _ClassVar[AlarmStatus]

class DeliveryOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DELIVERY_OUTCOME_UNSPECIFIED: _ClassVar[DeliveryOutcome]
    DELIVERY_DELIVERED: _ClassVar[DeliveryOutcome]
    DELIVERY_FAILED: _ClassVar[DeliveryOutcome]
    DELIVERY_GIVEN_UP: _ClassVar[DeliveryOutcome]
    DELIVERY_LATE: _ClassVar[DeliveryOutcome]
JOB_STATUS_UNSPECIFIED: JobStatus
SCHEDULED: JobStatus
PENDING: JobStatus
RUNNING: JobStatus
RETRYING: JobStatus
COMPLETED: JobStatus
DEAD_LETTERED: JobStatus
CANCELLED: JobStatus
ANSWER_UNSPECIFIED: Answer
ACCEPTED: Answer
ALREADY: Answer
LOST: Answer
JOB_CANCELLED: Answer
BUSY: Answer
REFUSED: Answer
OUTCOME_UNSPECIFIED: Outcome
COMPLETE: Outcome
FAIL: Outcome
SNOOZE: Outcome
DISCARD: Outcome
SCHEDULE_STATUS_UNSPECIFIED: ScheduleStatus
SCHEDULE_ACTIVE: ScheduleStatus
SCHEDULE_COMPLETED: ScheduleStatus
SCHEDULE_BROKEN: ScheduleStatus
SCHEDULE_DISABLED: ScheduleStatus
CATCH_UP_UNSPECIFIED: CatchUp
CATCH_UP_FIRE_ONCE: CatchUp
CATCH_UP_SKIP: CatchUp
CATCH_UP_REPLAY: CatchUp
OVERLAP_UNSPECIFIED: Overlap
OVERLAP_ALLOW: Overlap
OVERLAP_SKIP: Overlap
OVERLAP_BUFFER_ONE: Overlap
FIRE_OUTCOME_UNSPECIFIED: FireOutcome
FIRED: FireOutcome
COALESCED: FireOutcome
SKIPPED: FireOutcome
BUFFERED: FireOutcome
ALARM_STATUS_UNSPECIFIED: AlarmStatus
ALARM_ACTIVE: AlarmStatus
ALARM_FIRED: AlarmStatus
ALARM_FAILED: AlarmStatus
ALARM_CANCELLED: AlarmStatus
DELIVERY_OUTCOME_UNSPECIFIED: DeliveryOutcome
DELIVERY_DELIVERED: DeliveryOutcome
DELIVERY_FAILED: DeliveryOutcome
DELIVERY_GIVEN_UP: DeliveryOutcome
DELIVERY_LATE: DeliveryOutcome

class NewJob(_message.Message):
    __slots__ = ("task", "payload", "topic", "id", "priority", "delay", "run_at", "max_attempts", "retry", "timeout", "deadline", "unique_key", "unique_window", "result_ttl", "tags", "trace")
    class TraceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TASK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    RESULT_TTL_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    task: str
    payload: str
    topic: str
    id: str
    priority: int
    delay: _duration_pb2.Duration
    run_at: _timestamp_pb2.Timestamp
    max_attempts: int
    retry: str
    timeout: _duration_pb2.Duration
    deadline: _timestamp_pb2.Timestamp
    unique_key: str
    unique_window: _duration_pb2.Duration
    result_ttl: _duration_pb2.Duration
    tags: _containers.RepeatedScalarFieldContainer[str]
    trace: _containers.ScalarMap[str, str]
    def __init__(self, task: _Optional[str] = ..., payload: _Optional[str] = ..., topic: _Optional[str] = ..., id: _Optional[str] = ..., priority: _Optional[int] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_attempts: _Optional[int] = ..., retry: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., unique_key: _Optional[str] = ..., unique_window: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., result_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tags: _Optional[_Iterable[str]] = ..., trace: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubmitJobsRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class SubmitJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Submitted]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Submitted, _Mapping]]] = ...) -> None: ...

class Submitted(_message.Message):
    __slots__ = ("id", "created")
    ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    created: bool
    def __init__(self, id: _Optional[str] = ..., created: bool = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class WaitJobRequest(_message.Message):
    __slots__ = ("id", "patience")
    ID_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    id: str
    patience: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., patience: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("id", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "status", "topic", "task", "payload", "priority", "attempt", "max_attempts", "refunded", "lease_id", "submitted_at", "ready_at", "run_at", "claimed_at", "lease_until", "finished_at", "locked_by", "last_error", "result", "progress", "retry", "tags", "trace", "timeout", "deadline", "result_ttl", "unique_key", "key_held_until", "holds_key", "schedule_id", "scheduled_for")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REFUNDED_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    READY_AT_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_AT_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    LOCKED_BY_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    RESULT_TTL_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    KEY_HELD_UNTIL_FIELD_NUMBER: _ClassVar[int]
    HOLDS_KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: JobStatus
    topic: str
    task: str
    payload: str
    priority: int
    attempt: int
    max_attempts: int
    refunded: int
    lease_id: int
    submitted_at: _timestamp_pb2.Timestamp
    ready_at: _timestamp_pb2.Timestamp
    run_at: _timestamp_pb2.Timestamp
    claimed_at: _timestamp_pb2.Timestamp
    lease_until: _timestamp_pb2.Timestamp
    finished_at: _timestamp_pb2.Timestamp
    locked_by: str
    last_error: str
    result: str
    progress: str
    retry: str
    tags: str
    trace: str
    timeout: _duration_pb2.Duration
    deadline: _timestamp_pb2.Timestamp
    result_ttl: _duration_pb2.Duration
    unique_key: str
    key_held_until: _timestamp_pb2.Timestamp
    holds_key: bool
    schedule_id: str
    scheduled_for: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., topic: _Optional[str] = ..., task: _Optional[str] = ..., payload: _Optional[str] = ..., priority: _Optional[int] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., refunded: _Optional[int] = ..., lease_id: _Optional[int] = ..., submitted_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ready_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., claimed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., lease_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., locked_by: _Optional[str] = ..., last_error: _Optional[str] = ..., result: _Optional[str] = ..., progress: _Optional[str] = ..., retry: _Optional[str] = ..., tags: _Optional[str] = ..., trace: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., result_ttl: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., unique_key: _Optional[str] = ..., key_held_until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., holds_key: bool = ..., schedule_id: _Optional[str] = ..., scheduled_for: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "lease_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_id: int
    def __init__(self, job_id: _Optional[str] = ..., lease_id: _Optional[int] = ...) -> None: ...

class Pool(_message.Message):
    __slots__ = ("topics", "slots")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ...) -> None: ...

class StreamJobsRequest(_message.Message):
    __slots__ = ("worker", "pools", "resume", "version", "wants_dead_letters")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    POOLS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WANTS_DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    pools: _containers.RepeatedCompositeFieldContainer[Pool]
    resume: Resume
    version: str
    wants_dead_letters: bool
    def __init__(self, worker: _Optional[str] = ..., pools: _Optional[_Iterable[_Union[Pool, _Mapping]]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., version: _Optional[str] = ..., wants_dead_letters: bool = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("held",)
    HELD_FIELD_NUMBER: _ClassVar[int]
    held: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, held: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class StreamJobsResponse(_message.Message):
    __slots__ = ("sequence", "hello", "assignments", "ping", "drain", "cancelled", "replaced", "dead_letters")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    hello: Hello
    assignments: Assignments
    ping: Ping
    drain: Drain
    cancelled: Cancellations
    replaced: Replaced
    dead_letters: DeadLetters
    def __init__(self, sequence: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., assignments: _Optional[_Union[Assignments, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., drain: _Optional[_Union[Drain, _Mapping]] = ..., cancelled: _Optional[_Union[Cancellations, _Mapping]] = ..., replaced: _Optional[_Union[Replaced, _Mapping]] = ..., dead_letters: _Optional[_Union[DeadLetters, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("stream", "worker", "server_time")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    stream: str
    worker: str
    server_time: _duration_pb2.Duration
    def __init__(self, stream: _Optional[str] = ..., worker: _Optional[str] = ..., server_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Assignments(_message.Message):
    __slots__ = ("jobs", "server_time", "lease", "claimed_at")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_AT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Assignment]
    server_time: _duration_pb2.Duration
    lease: _duration_pb2.Duration
    claimed_at: _timestamp_pb2.Timestamp
    def __init__(self, jobs: _Optional[_Iterable[_Union[Assignment, _Mapping]]] = ..., server_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., claimed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("job_id", "lease_id", "topic", "task", "payload", "attempt", "max_attempts", "refunded", "priority", "ready_at_us", "timeout", "deadline", "trace", "scheduled_for")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REFUNDED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    READY_AT_US_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FOR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_id: int
    topic: str
    task: str
    payload: str
    attempt: int
    max_attempts: int
    refunded: int
    priority: int
    ready_at_us: int
    timeout: _duration_pb2.Duration
    deadline: _timestamp_pb2.Timestamp
    trace: str
    scheduled_for: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., lease_id: _Optional[int] = ..., topic: _Optional[str] = ..., task: _Optional[str] = ..., payload: _Optional[str] = ..., attempt: _Optional[int] = ..., max_attempts: _Optional[int] = ..., refunded: _Optional[int] = ..., priority: _Optional[int] = ..., ready_at_us: _Optional[int] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., deadline: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., trace: _Optional[str] = ..., scheduled_for: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Drain(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Cancellations(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Replaced(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeadLetters(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("stream", "received", "free", "number")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    stream: str
    received: int
    free: _containers.RepeatedScalarFieldContainer[int]
    number: int
    def __init__(self, stream: _Optional[str] = ..., received: _Optional[int] = ..., free: _Optional[_Iterable[int]] = ..., number: _Optional[int] = ...) -> None: ...

class UpdateCreditRequest(_message.Message):
    __slots__ = ("credit",)
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    credit: Credit
    def __init__(self, credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class UpdateCreditResponse(_message.Message):
    __slots__ = ("server_time", "sent")
    SERVER_TIME_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    server_time: _duration_pb2.Duration
    sent: int
    def __init__(self, server_time: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., sent: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker", "leases", "topics")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, worker: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("answers", "refusals")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, str]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("job_id", "lease_id", "outcome", "result", "error", "traceback", "delay")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_id: int
    outcome: Outcome
    result: str
    error: str
    traceback: str
    delay: _duration_pb2.Duration
    def __init__(self, job_id: _Optional[str] = ..., lease_id: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., result: _Optional[str] = ..., error: _Optional[str] = ..., traceback: _Optional[str] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ReportResultsRequest(_message.Message):
    __slots__ = ("worker", "reports", "credit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    reports: _containers.RepeatedCompositeFieldContainer[Report]
    credit: Credit
    def __init__(self, worker: _Optional[str] = ..., reports: _Optional[_Iterable[_Union[Report, _Mapping]]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class ReportResultsResponse(_message.Message):
    __slots__ = ("answers", "refusals")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, str]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("job_id", "lease_id", "value")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    lease_id: int
    value: str
    def __init__(self, job_id: _Optional[str] = ..., lease_id: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("worker", "progress")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, worker: _Optional[str] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ("answers", "refusals")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, str]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class ReleaseJobsRequest(_message.Message):
    __slots__ = ("worker", "leases")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    worker: str
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, worker: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class ReleaseJobsResponse(_message.Message):
    __slots__ = ("answers", "refusals")
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedScalarFieldContainer[Answer]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, answers: _Optional[_Iterable[_Union[Answer, str]]] = ..., refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class GetDeadLetterRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetDeadLetterResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class JobFilter(_message.Message):
    __slots__ = ("topic", "task", "status", "tag", "error", "submitted_after", "submitted_before", "schedule_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AFTER_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    task: str
    status: JobStatus
    tag: str
    error: str
    submitted_after: _timestamp_pb2.Timestamp
    submitted_before: _timestamp_pb2.Timestamp
    schedule_id: str
    def __init__(self, topic: _Optional[str] = ..., task: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., tag: _Optional[str] = ..., error: _Optional[str] = ..., submitted_after: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., submitted_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., schedule_id: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("filter", "after", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: JobFilter
    after: str
    limit: int
    def __init__(self, filter: _Optional[_Union[JobFilter, _Mapping]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ListAttemptsRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ListAttemptsResponse(_message.Message):
    __slots__ = ("attempts",)
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    def __init__(self, attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("lease_id", "attempt", "worker", "started_at", "ended_at", "error", "traceback")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    attempt: int
    worker: str
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    error: str
    traceback: str
    def __init__(self, lease_id: _Optional[int] = ..., attempt: _Optional[int] = ..., worker: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., error: _Optional[str] = ..., traceback: _Optional[str] = ...) -> None: ...

class CancelJobsRequest(_message.Message):
    __slots__ = ("ids", "reason")
    IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReplayJobsRequest(_message.Message):
    __slots__ = ("ids", "matching", "limit", "after", "before")
    IDS_FIELD_NUMBER: _ClassVar[int]
    MATCHING_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    matching: JobFilter
    limit: int
    after: str
    before: _timestamp_pb2.Timestamp
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., matching: _Optional[_Union[JobFilter, _Mapping]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class RunJobNowRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class ActResponse(_message.Message):
    __slots__ = ("refusals", "done", "next")
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    done: int
    next: str
    def __init__(self, refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., done: _Optional[int] = ..., next: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("id", "code", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    code: str
    message: str
    def __init__(self, id: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class PauseTopicRequest(_message.Message):
    __slots__ = ("topic", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reason: str
    def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ("topic", "reason", "paused_at")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PAUSED_AT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reason: str
    paused_at: _timestamp_pb2.Timestamp
    def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ..., paused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResumeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ResumeTopicResponse(_message.Message):
    __slots__ = ("was_paused",)
    WAS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    was_paused: bool
    def __init__(self, was_paused: bool = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "pauses")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    pauses: _containers.RepeatedCompositeFieldContainer[Pause]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., pauses: _Optional[_Iterable[_Union[Pause, _Mapping]]] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic", "counts", "paused")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    counts: _containers.ScalarMap[str, int]
    paused: bool
    def __init__(self, topic: _Optional[str] = ..., counts: _Optional[_Mapping[str, int]] = ..., paused: bool = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("job_id", "status", "topic", "reason", "text", "worker", "ahead", "expected_at")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_AT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: JobStatus
    topic: str
    reason: str
    text: str
    worker: str
    ahead: int
    expected_at: _timestamp_pb2.Timestamp
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[JobStatus, str]] = ..., topic: _Optional[str] = ..., reason: _Optional[str] = ..., text: _Optional[str] = ..., worker: _Optional[str] = ..., ahead: _Optional[int] = ..., expected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("name", "server", "version", "topics", "slots", "busy", "connected_at", "seen_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    server: str
    version: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    slots: int
    busy: int
    connected_at: _timestamp_pb2.Timestamp
    seen_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., server: _Optional[str] = ..., version: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., slots: _Optional[int] = ..., busy: _Optional[int] = ..., connected_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetOverviewRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Overview(_message.Message):
    __slots__ = ("at", "topics", "workers", "concerns", "rate_in", "rate_out", "failing", "broken_schedules", "failing_alarms", "schedules_overdue", "alarms_overdue")
    AT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CONCERNS_FIELD_NUMBER: _ClassVar[int]
    RATE_IN_FIELD_NUMBER: _ClassVar[int]
    RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    BROKEN_SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    FAILING_ALARMS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_OVERDUE_FIELD_NUMBER: _ClassVar[int]
    ALARMS_OVERDUE_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    topics: _containers.RepeatedCompositeFieldContainer[TopicFacts]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    concerns: _containers.RepeatedCompositeFieldContainer[Concern]
    rate_in: float
    rate_out: float
    failing: float
    broken_schedules: int
    failing_alarms: int
    schedules_overdue: _duration_pb2.Duration
    alarms_overdue: _duration_pb2.Duration
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., topics: _Optional[_Iterable[_Union[TopicFacts, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., concerns: _Optional[_Iterable[_Union[Concern, _Mapping]]] = ..., rate_in: _Optional[float] = ..., rate_out: _Optional[float] = ..., failing: _Optional[float] = ..., broken_schedules: _Optional[int] = ..., failing_alarms: _Optional[int] = ..., schedules_overdue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., alarms_overdue: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TopicFacts(_message.Message):
    __slots__ = ("topic", "counts", "paused", "oldest_at", "rate_in", "rate_out", "failing")
    class CountsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AT_FIELD_NUMBER: _ClassVar[int]
    RATE_IN_FIELD_NUMBER: _ClassVar[int]
    RATE_OUT_FIELD_NUMBER: _ClassVar[int]
    FAILING_FIELD_NUMBER: _ClassVar[int]
    topic: str
    counts: _containers.ScalarMap[str, int]
    paused: bool
    oldest_at: _timestamp_pb2.Timestamp
    rate_in: float
    rate_out: float
    failing: float
    def __init__(self, topic: _Optional[str] = ..., counts: _Optional[_Mapping[str, int]] = ..., paused: bool = ..., oldest_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., rate_in: _Optional[float] = ..., rate_out: _Optional[float] = ..., failing: _Optional[float] = ...) -> None: ...

class Concern(_message.Message):
    __slots__ = ("kind", "text", "urgent", "topic")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    URGENT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    kind: str
    text: str
    urgent: bool
    topic: str
    def __init__(self, kind: _Optional[str] = ..., text: _Optional[str] = ..., urgent: bool = ..., topic: _Optional[str] = ...) -> None: ...

class NewSchedule(_message.Message):
    __slots__ = ("name", "job", "cron", "every", "run_at", "delay", "tz", "starts_at", "ends_at", "max_occurrences", "jitter", "catch_up", "replay_limit", "overlap")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    TZ_FIELD_NUMBER: _ClassVar[int]
    STARTS_AT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    MAX_OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    REPLAY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    name: str
    job: NewJob
    cron: str
    every: _duration_pb2.Duration
    run_at: _timestamp_pb2.Timestamp
    delay: _duration_pb2.Duration
    tz: str
    starts_at: _timestamp_pb2.Timestamp
    ends_at: _timestamp_pb2.Timestamp
    max_occurrences: int
    jitter: _duration_pb2.Duration
    catch_up: CatchUp
    replay_limit: int
    overlap: Overlap
    def __init__(self, name: _Optional[str] = ..., job: _Optional[_Union[NewJob, _Mapping]] = ..., cron: _Optional[str] = ..., every: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., tz: _Optional[str] = ..., starts_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ends_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., max_occurrences: _Optional[int] = ..., jitter: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., catch_up: _Optional[_Union[CatchUp, str]] = ..., replay_limit: _Optional[int] = ..., overlap: _Optional[_Union[Overlap, str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("id", "status", "definition", "anchor", "next_run_at", "buffered_for", "last_run_at", "fired", "paused_at", "pause_reason", "error", "app", "created_at", "updated_at")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_FIELD_NUMBER: _ClassVar[int]
    NEXT_RUN_AT_FIELD_NUMBER: _ClassVar[int]
    BUFFERED_FOR_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_AT_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_AT_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    APP_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    status: ScheduleStatus
    definition: NewSchedule
    anchor: _timestamp_pb2.Timestamp
    next_run_at: _timestamp_pb2.Timestamp
    buffered_for: _timestamp_pb2.Timestamp
    last_run_at: _timestamp_pb2.Timestamp
    fired: int
    paused_at: _timestamp_pb2.Timestamp
    pause_reason: str
    error: str
    app: str
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., status: _Optional[_Union[ScheduleStatus, str]] = ..., definition: _Optional[_Union[NewSchedule, _Mapping]] = ..., anchor: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., buffered_for: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_run_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., fired: _Optional[int] = ..., paused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., pause_reason: _Optional[str] = ..., error: _Optional[str] = ..., app: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateScheduleRequest(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: NewSchedule
    def __init__(self, schedule: _Optional[_Union[NewSchedule, _Mapping]] = ...) -> None: ...

class CreateScheduleResponse(_message.Message):
    __slots__ = ("schedule", "created")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    created: bool
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., created: bool = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ScheduleFilter(_message.Message):
    __slots__ = ("status", "paused", "task", "topic", "tag")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    status: ScheduleStatus
    paused: bool
    task: str
    topic: str
    tag: str
    def __init__(self, status: _Optional[_Union[ScheduleStatus, str]] = ..., paused: bool = ..., task: _Optional[str] = ..., topic: _Optional[str] = ..., tag: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("filter", "after", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: ScheduleFilter
    after: str
    limit: int
    def __init__(self, filter: _Optional[_Union[ScheduleFilter, _Mapping]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules", "next")
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    next: str
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class EditScheduleRequest(_message.Message):
    __slots__ = ("name", "definition", "fields")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    definition: NewSchedule
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., definition: _Optional[_Union[NewSchedule, _Mapping]] = ..., fields: _Optional[_Iterable[str]] = ...) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class TriggerScheduleRequest(_message.Message):
    __slots__ = ("name", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class BackfillScheduleRequest(_message.Message):
    __slots__ = ("name", "start", "end", "limit", "dry_run")
    NAME_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    name: str
    start: _timestamp_pb2.Timestamp
    end: _timestamp_pb2.Timestamp
    limit: int
    dry_run: bool
    def __init__(self, name: _Optional[str] = ..., start: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., limit: _Optional[int] = ..., dry_run: bool = ...) -> None: ...

class BackfillScheduleResponse(_message.Message):
    __slots__ = ("occurrences", "job_ids", "dry_run")
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    occurrences: _containers.RepeatedCompositeFieldContainer[_timestamp_pb2.Timestamp]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, occurrences: _Optional[_Iterable[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]]] = ..., job_ids: _Optional[_Iterable[str]] = ..., dry_run: bool = ...) -> None: ...

class PreviewScheduleRequest(_message.Message):
    __slots__ = ("name", "definition", "n")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    name: str
    definition: NewSchedule
    n: int
    def __init__(self, name: _Optional[str] = ..., definition: _Optional[_Union[NewSchedule, _Mapping]] = ..., n: _Optional[int] = ...) -> None: ...

class PreviewScheduleResponse(_message.Message):
    __slots__ = ("occurrences",)
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    occurrences: _containers.RepeatedCompositeFieldContainer[Occurrence]
    def __init__(self, occurrences: _Optional[_Iterable[_Union[Occurrence, _Mapping]]] = ...) -> None: ...

class Occurrence(_message.Message):
    __slots__ = ("at", "offset", "abbreviation", "note")
    AT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ABBREVIATION_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    at: _timestamp_pb2.Timestamp
    offset: _duration_pb2.Duration
    abbreviation: str
    note: str
    def __init__(self, at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., offset: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., abbreviation: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class Fire(_message.Message):
    __slots__ = ("occurrence", "outcome", "cause", "logged_at", "occurrences", "newest", "reason", "job_id", "job_status")
    OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    LOGGED_AT_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_STATUS_FIELD_NUMBER: _ClassVar[int]
    occurrence: _timestamp_pb2.Timestamp
    outcome: FireOutcome
    cause: str
    logged_at: _timestamp_pb2.Timestamp
    occurrences: int
    newest: _timestamp_pb2.Timestamp
    reason: str
    job_id: str
    job_status: JobStatus
    def __init__(self, occurrence: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., outcome: _Optional[_Union[FireOutcome, str]] = ..., cause: _Optional[str] = ..., logged_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., occurrences: _Optional[int] = ..., newest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., reason: _Optional[str] = ..., job_id: _Optional[str] = ..., job_status: _Optional[_Union[JobStatus, str]] = ...) -> None: ...

class ListFiresRequest(_message.Message):
    __slots__ = ("name", "after", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    after: str
    limit: int
    def __init__(self, name: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListFiresResponse(_message.Message):
    __slots__ = ("fires", "next")
    FIRES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    fires: _containers.RepeatedCompositeFieldContainer[Fire]
    next: str
    def __init__(self, fires: _Optional[_Iterable[_Union[Fire, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class DeclaredSchedule(_message.Message):
    __slots__ = ("schedule", "aliases")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    schedule: NewSchedule
    aliases: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, schedule: _Optional[_Union[NewSchedule, _Mapping]] = ..., aliases: _Optional[_Iterable[str]] = ...) -> None: ...

class SyncSchedulesRequest(_message.Message):
    __slots__ = ("app", "schedules", "deploy", "prune", "dry_run")
    APP_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    DEPLOY_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    app: str
    schedules: _containers.RepeatedCompositeFieldContainer[DeclaredSchedule]
    deploy: int
    prune: bool
    dry_run: bool
    def __init__(self, app: _Optional[str] = ..., schedules: _Optional[_Iterable[_Union[DeclaredSchedule, _Mapping]]] = ..., deploy: _Optional[int] = ..., prune: bool = ..., dry_run: bool = ...) -> None: ...

class SyncSchedulesResponse(_message.Message):
    __slots__ = ("created", "changed", "renamed", "enabled", "disabled", "deleted", "unchanged", "dry_run")
    CREATED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    RENAMED_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    DISABLED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    created: _containers.RepeatedScalarFieldContainer[str]
    changed: _containers.RepeatedScalarFieldContainer[str]
    renamed: _containers.RepeatedCompositeFieldContainer[Renamed]
    enabled: _containers.RepeatedScalarFieldContainer[str]
    disabled: _containers.RepeatedScalarFieldContainer[str]
    deleted: _containers.RepeatedScalarFieldContainer[str]
    unchanged: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, created: _Optional[_Iterable[str]] = ..., changed: _Optional[_Iterable[str]] = ..., renamed: _Optional[_Iterable[_Union[Renamed, _Mapping]]] = ..., enabled: _Optional[_Iterable[str]] = ..., disabled: _Optional[_Iterable[str]] = ..., deleted: _Optional[_Iterable[str]] = ..., unchanged: _Optional[_Iterable[str]] = ..., dry_run: bool = ...) -> None: ...

class Renamed(_message.Message):
    __slots__ = ("old_name", "new_name")
    OLD_NAME_FIELD_NUMBER: _ClassVar[int]
    NEW_NAME_FIELD_NUMBER: _ClassVar[int]
    old_name: str
    new_name: str
    def __init__(self, old_name: _Optional[str] = ..., new_name: _Optional[str] = ...) -> None: ...

class SetAlarmRequest(_message.Message):
    __slots__ = ("owner", "name", "label", "payload", "url", "headers", "delay_seconds", "fire_at", "cron_expr", "tz", "max_failures", "idempotency_key", "id")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELAY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRE_AT_FIELD_NUMBER: _ClassVar[int]
    CRON_EXPR_FIELD_NUMBER: _ClassVar[int]
    TZ_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    name: str
    label: str
    payload: str
    url: str
    headers: _containers.ScalarMap[str, str]
    delay_seconds: float
    fire_at: _timestamp_pb2.Timestamp
    cron_expr: str
    tz: str
    max_failures: int
    idempotency_key: str
    id: str
    def __init__(self, owner: _Optional[str] = ..., name: _Optional[str] = ..., label: _Optional[str] = ..., payload: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., delay_seconds: _Optional[float] = ..., fire_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cron_expr: _Optional[str] = ..., tz: _Optional[str] = ..., max_failures: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class SetAlarmResponse(_message.Message):
    __slots__ = ("alarm", "created")
    ALARM_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    alarm: Alarm
    created: bool
    def __init__(self, alarm: _Optional[_Union[Alarm, _Mapping]] = ..., created: bool = ...) -> None: ...

class Alarm(_message.Message):
    __slots__ = ("id", "owner", "name", "label", "status", "kind", "cron_expr", "tz", "payload", "url", "headers", "max_failures", "idempotency_key", "revision", "occurrence", "next_fire_at", "last_fired_at", "failure_count", "last_error", "paused_at", "is_ringing", "created_at", "updated_at")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CRON_EXPR_FIELD_NUMBER: _ClassVar[int]
    TZ_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILURES_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIRE_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_FIRED_AT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    PAUSED_AT_FIELD_NUMBER: _ClassVar[int]
    IS_RINGING_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_FIELD_NUMBER: _ClassVar[int]
    id: str
    owner: str
    name: str
    label: str
    status: AlarmStatus
    kind: str
    cron_expr: str
    tz: str
    payload: str
    url: str
    headers: _containers.ScalarMap[str, str]
    max_failures: int
    idempotency_key: str
    revision: int
    occurrence: _timestamp_pb2.Timestamp
    next_fire_at: _timestamp_pb2.Timestamp
    last_fired_at: _timestamp_pb2.Timestamp
    failure_count: int
    last_error: str
    paused_at: _timestamp_pb2.Timestamp
    is_ringing: bool
    created_at: _timestamp_pb2.Timestamp
    updated_at: _timestamp_pb2.Timestamp
    def __init__(self, id: _Optional[str] = ..., owner: _Optional[str] = ..., name: _Optional[str] = ..., label: _Optional[str] = ..., status: _Optional[_Union[AlarmStatus, str]] = ..., kind: _Optional[str] = ..., cron_expr: _Optional[str] = ..., tz: _Optional[str] = ..., payload: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., max_failures: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., revision: _Optional[int] = ..., occurrence: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., next_fire_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_fired_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., failure_count: _Optional[int] = ..., last_error: _Optional[str] = ..., paused_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., is_ringing: bool = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., updated_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetAlarmRequest(_message.Message):
    __slots__ = ("name", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class AlarmFilter(_message.Message):
    __slots__ = ("owner", "status", "paused", "label")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    owner: str
    status: AlarmStatus
    paused: bool
    label: str
    def __init__(self, owner: _Optional[str] = ..., status: _Optional[_Union[AlarmStatus, str]] = ..., paused: bool = ..., label: _Optional[str] = ...) -> None: ...

class ListAlarmsRequest(_message.Message):
    __slots__ = ("filter", "after", "limit")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    filter: AlarmFilter
    after: str
    limit: int
    def __init__(self, filter: _Optional[_Union[AlarmFilter, _Mapping]] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListAlarmsResponse(_message.Message):
    __slots__ = ("alarms", "next")
    ALARMS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    alarms: _containers.RepeatedCompositeFieldContainer[Alarm]
    next: str
    def __init__(self, alarms: _Optional[_Iterable[_Union[Alarm, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class CancelAlarmRequest(_message.Message):
    __slots__ = ("name", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class PauseAlarmRequest(_message.Message):
    __slots__ = ("name", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class ResumeAlarmRequest(_message.Message):
    __slots__ = ("name", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class FireAlarmRequest(_message.Message):
    __slots__ = ("name", "owner")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("occurrence", "attempt", "outcome", "started_at", "duration", "status", "error", "answer", "note")
    OCCURRENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    occurrence: _timestamp_pb2.Timestamp
    attempt: int
    outcome: DeliveryOutcome
    started_at: _timestamp_pb2.Timestamp
    duration: _duration_pb2.Duration
    status: int
    error: str
    answer: str
    note: str
    def __init__(self, occurrence: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt: _Optional[int] = ..., outcome: _Optional[_Union[DeliveryOutcome, str]] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., status: _Optional[int] = ..., error: _Optional[str] = ..., answer: _Optional[str] = ..., note: _Optional[str] = ...) -> None: ...

class ListDeliveriesRequest(_message.Message):
    __slots__ = ("name", "owner", "after", "limit")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    after: str
    limit: int
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ListDeliveriesResponse(_message.Message):
    __slots__ = ("deliveries", "next")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next: str
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class GetWakeSecretsRequest(_message.Message):
    __slots__ = ("owner",)
    OWNER_FIELD_NUMBER: _ClassVar[int]
    owner: str
    def __init__(self, owner: _Optional[str] = ...) -> None: ...

class RotateWakeSecretRequest(_message.Message):
    __slots__ = ("overlap", "owner")
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    overlap: _duration_pb2.Duration
    owner: str
    def __init__(self, overlap: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., owner: _Optional[str] = ...) -> None: ...

class WakeSecret(_message.Message):
    __slots__ = ("secret", "created_at", "expires_at")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    secret: str
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, secret: _Optional[str] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class WakeSecrets(_message.Message):
    __slots__ = ("secrets",)
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedCompositeFieldContainer[WakeSecret]
    def __init__(self, secrets: _Optional[_Iterable[_Union[WakeSecret, _Mapping]]] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("name", "scopes", "created_at", "expires_at", "revoked_at")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_FIELD_NUMBER: _ClassVar[int]
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    created_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    revoked_at: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., revoked_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("name", "scopes", "lifetime")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    LIFETIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    scopes: _containers.RepeatedScalarFieldContainer[str]
    lifetime: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., scopes: _Optional[_Iterable[str]] = ..., lifetime: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    token: Token
    secret: str
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerInfo(_message.Message):
    __slots__ = ("version", "server", "contract", "buckets", "lease", "heartbeat", "silence", "batch_limit", "slots_limit", "message_limit")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SLOTS_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    version: str
    server: str
    contract: int
    buckets: int
    lease: _duration_pb2.Duration
    heartbeat: _duration_pb2.Duration
    silence: _duration_pb2.Duration
    batch_limit: int
    slots_limit: int
    message_limit: int
    def __init__(self, version: _Optional[str] = ..., server: _Optional[str] = ..., contract: _Optional[int] = ..., buckets: _Optional[int] = ..., lease: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., heartbeat: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., batch_limit: _Optional[int] = ..., slots_limit: _Optional[int] = ..., message_limit: _Optional[int] = ...) -> None: ...
