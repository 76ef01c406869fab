"""Which errors does Pulse raise, and what does each of them mean?

    PulseError
    ├── InvalidInput            the caller can correct it; nothing was changed
    │   ├── InvalidName
    │   ├── InvalidPayload
    │   ├── InvalidOption       one option of a job is out of range
    │   ├── InvalidReport       a lease_id of 0, an unknown outcome
    │   ├── InvalidFilter
    │   ├── InvalidSchedule     a timetable that cannot be read, or has no future time
    │   ├── InvalidAlarm        the same for an alarm
    │   ├── BatchTooLarge
    │   ├── InvalidTask         a task that cannot be declared: its name is taken, or its types are not JSON
    │   ├── InvalidArguments    a call that does not fit the signature of its task
    │   ├── InvalidResult       a handler returned something that is not JSON, or not what its annotation says
    │   ├── InvalidApp          `module:app` does not lead to an app
    │   ├── InvalidSettings
    │   ├── InvalidDatabaseUrl
    │   ├── InvalidServerUrl
    │   ├── InvalidTarget       an address that alarms may not call
    │   ├── InvalidSignature    a wake that was not signed with the secret, or not within the tolerated time
    │   ├── MissingPackage      an optional part of the installation is not there
    │   └── UnknownConnection   an object that is not a connection or session which Pulse can use
    ├── AccessDenied
    │   ├── Unauthenticated     no token, or one that is unknown, expired or revoked
    │   └── Forbidden           no scope of the token allows this
    ├── NotFound
    │   ├── AlarmNotFound
    │   ├── JobNotFound
    │   ├── ScheduleNotFound
    │   ├── StreamNotFound      the stream has ended, or belongs to another server
    │   └── TokenNotFound
    ├── Conflict                the row is not in a state that allows this
    │   ├── AlarmConflict       the alarm has ended, is paused, or is being delivered
    │   ├── AlarmExists         the idempotency key was already used for another alarm
    │   ├── IllegalTransition
    │   ├── LeaseLost
    │   ├── KeyTaken
    │   ├── JobBusy             a handler's own transaction holds the row
    │   ├── ScheduleExists      the name is taken by another definition
    │   ├── ScheduleOwned       declared in code, so it is changed there
    │   ├── StaleDeploy         a newer deploy has declared its schedules
    │   ├── TokenNameTaken
    │   └── TransactionFailed   the caller's transaction can only be rolled back
    ├── Unfinished              there is no result to return
    │   ├── JobFailed           the job is a dead letter; the message contains its last error
    │   ├── JobCancelled
    │   └── ResultTimeout       not finished within the time given
    ├── LimitReached            too many at once: try later, or with fewer
    │   └── LimitExceeded       too many calls or streams of one token
    └── Unavailable             something that Pulse depends on fails; the caller did nothing wrong
        ├── DatabaseUnreachable
        ├── DatabaseReadOnly
        ├── UnsupportedDatabase
        ├── SchemaMismatch
        ├── ServerUnreachable   no pulsed answers
        ├── StreamSilent        a stream was ended because nothing arrived on it
        └── EmbeddedPostgresFailed

Every door looks for the nearest ancestor that it has a status for, so a new error needs no new line there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from uuid import UUID


NOT_SHOWN = object()  # instead of a value that an error must not quote, or that would explain nothing


class PulseError(Exception):
    """The base class of every error that Pulse raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(PulseError):
    code = "invalid_input"


class InvalidName(InvalidInput):
    code = "invalid_name"


class InvalidPayload(InvalidInput):
    code = "invalid_payload"


class InvalidOption(InvalidInput):
    """An option that is out of range or of the wrong type. Its message is "OPTION must MUST, not FOUND"."""

    code = "invalid_option"

    def __init__(self, option: str, found: object, must: str) -> None:
        super().__init__(f"{option} must {must}" if found is NOT_SHOWN else f"{option} must {must}, not {found!r}")
        self.option = option


class InvalidReport(InvalidInput):
    code = "invalid_report"


class InvalidFilter(InvalidInput):
    code = "invalid_filter"


class InvalidSchedule(InvalidInput):
    code = "invalid_schedule"


class InvalidAlarm(InvalidInput):
    code = "invalid_alarm"


class BatchTooLarge(InvalidInput):
    code = "batch_too_large"

    def __init__(self, items: str, size: int, limit: int) -> None:
        super().__init__(f"a batch may have at most {limit} {items}, not {size}: send them in parts")
        self.size, self.limit = size, limit


class InvalidTask(InvalidInput):
    code = "invalid_task"


class InvalidArguments(InvalidInput):
    code = "invalid_arguments"

    def __init__(self, task: str, reason: str) -> None:
        super().__init__(f"{task}: {reason}")
        self.task = task


class InvalidResult(InvalidInput):
    code = "invalid_result"


class InvalidApp(InvalidInput):
    code = "invalid_app"


class InvalidSettings(InvalidInput):
    code = "invalid_settings"


class InvalidDatabaseUrl(InvalidInput):
    code = "invalid_database_url"


class InvalidServerUrl(InvalidInput):
    code = "invalid_server_url"


class InvalidTarget(InvalidInput):
    code = "invalid_target"


class InvalidSignature(InvalidInput):
    """A wake whose sender or time cannot be trusted.

    The message never says which part of a signature was wrong: that would only help somebody who forges one.
    """

    code = "invalid_signature"


class MissingPackage(InvalidInput):
    """A feature that needs an extra of this package which is not installed."""

    code = "missing_package"

    def __init__(self, feature: str, extra: str, missing: str | None) -> None:
        super().__init__(f"{feature} needs {missing or 'more packages'}: `pip install 'pulse-postgres[{extra}]'`")
        self.extra = extra


class UnknownConnection(InvalidInput):
    code = "unknown_connection"

    def __init__(self, given: object, accepted: str) -> None:
        kind = type(given)
        super().__init__(
            f"{kind.__module__}.{kind.__qualname__} is not a connection that Pulse can use: give {accepted}"
        )


class AccessDenied(PulseError):
    code = "access_denied"


class Unauthenticated(AccessDenied):
    """A caller whose token is missing, unknown, expired or revoked.

    The message says no more than the holder of that secret may know.
    """

    code = "unauthenticated"


class Forbidden(AccessDenied):
    """A caller whose token is valid, but allows no such call."""

    code = "forbidden"

    def __init__(self, token: str, reason: str) -> None:
        super().__init__(f"token {token!r} {reason}")
        self.token = token


class NotFound(PulseError):
    code = "not_found"


class AlarmNotFound(NotFound):
    """An alarm that does not exist, or that belongs to another owner: the caller cannot tell which."""

    code = "alarm_not_found"

    def __init__(self, key: object) -> None:
        super().__init__(f"no alarm {str(key)[:200]!r}: the id or name is wrong, or retention has removed it")


NO_SUCH_JOB = "the id is wrong, or retention has removed it, or its transaction has not committed"


class JobNotFound(NotFound):
    code = "job_not_found"

    def __init__(self, job_id: UUID, *, hint: str = "") -> None:
        super().__init__(f"no job {job_id}: {hint or NO_SUCH_JOB}")
        self.job_id = job_id


class ScheduleNotFound(NotFound):
    code = "schedule_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r}: `pulse schedules list` shows them all")
        self.name = name


class StreamNotFound(NotFound):
    code = "stream_not_found"

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream[:40]!r} has ended or belongs to another server: open a new one")


class TokenNotFound(NotFound):
    code = "token_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no token {name!r}: `pulse tokens list` shows them all")
        self.name = name


class Conflict(PulseError):
    code = "conflict"


class AlarmConflict(Conflict):
    code = "alarm_conflict"

    def __init__(self, alarm_id: object, reason: str) -> None:
        super().__init__(f"alarm {alarm_id} {reason}")


class AlarmExists(Conflict):
    code = "alarm_exists"

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key[:100]!r} was already used for another alarm: use a new key for each alarm")


# How messages call the states of a job and the events that change it. Every JobStatus and every JobEvent is here.
STATES = {
    "SCHEDULED": "scheduled for later",
    "PENDING": "waiting for a worker",
    "RUNNING": "running",
    "RETRYING": "waiting for its next attempt",
    "COMPLETED": "completed",
    "DEAD_LETTERED": "a dead letter",
    "CANCELLED": "cancelled",
}
EVENTS = {
    "PROMOTE": "be made ready",
    "CLAIM": "be claimed",
    "HEARTBEAT": "have its lease extended",
    "COMPLETE": "be completed",
    "RETRY": "be tried again",
    "SNOOZE": "be snoozed",
    "RELEASE": "be given back",
    "DEAD_LETTER": "become a dead letter",
    "EXPIRE": "expire",
    "CANCEL": "be cancelled",
    "REPLAY": "be replayed",
    "RUN_NOW": "be run ahead of its time",
}
ALREADY = {
    "CANCELLED": ("CANCEL",),
    "PENDING": ("RUN_NOW",),
    "RUNNING": ("RUN_NOW", "CLAIM"),
    "COMPLETED": ("COMPLETE",),
}


class IllegalTransition(Conflict):
    """An event that the state of the job does not allow."""

    code = "illegal_transition"

    def __init__(self, job_id: UUID, status: str, event: str) -> None:
        state = STATES.get(status, status.lower())
        if event in ALREADY.get(status, ()):
            super().__init__(f"job {job_id} is already {state}")
        else:
            super().__init__(f"job {job_id} is {state}, so it cannot {EVENTS.get(event, event.lower())}")
        self.job_id, self.status, self.event = job_id, status, event


class LeaseLost(Conflict):
    """A report that came after its lease had ended; another worker may hold the job by now."""

    code = "lease_lost"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"lease on job {job_id} was lost; discard this result")
        self.job_id = job_id


class KeyTaken(Conflict):
    """A dead letter that cannot be replayed because a newer job holds its unique key."""

    code = "key_taken"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} cannot be replayed: another job holds its unique key")
        self.job_id = job_id


class JobBusy(Conflict):
    """A job whose row is locked by its handler's own transaction. Pulse does not wait for that to end."""

    code = "job_busy"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} is locked by its handler's own transaction; try again when it ends")
        self.job_id = job_id


class ScheduleExists(Conflict):
    """A schedule of this name that differs. Creating one again exactly as it is changes nothing and is no error."""

    code = "schedule_exists"

    def __init__(self, name: str, differs: str | None = None) -> None:
        """Leave `differs`, the names of the fields, out for callers who may not see the schedule."""
        if differs:
            message = f"schedule {name!r} already exists with another {differs}: edit it, or choose another name"
        else:
            message = f"schedule {name!r} already exists: choose another name"
        super().__init__(message)
        self.name = name


class ScheduleOwned(Conflict):
    """A change to a schedule that code declares. It is changed in the code: a deploy would undo any other change."""

    code = "schedule_owned"

    def __init__(self, name: str, app: str | None, instead: str) -> None:
        owner = f"declared in code ({app})" if app else "not declared in code"
        super().__init__(f"schedule {name!r} is {owner}: {instead}")
        self.name = name


class StaleDeploy(Conflict):
    code = "stale_deploy"

    def __init__(self, app: str, reason: str) -> None:
        super().__init__(f"the schedules of {app} were left unchanged: {reason}")
        self.app = app


class TokenNameTaken(Conflict):
    """A token name that was used before. It stays taken after a revocation: old jobs and workers still bear it."""

    code = "token_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"token {name!r} already exists, perhaps revoked: choose a name that was never used")
        self.name = name


class TransactionFailed(Conflict):
    """A transaction of the caller's in which a statement has failed, so that it accepts no more statements."""

    code = "transaction_failed"

    def __init__(self) -> None:
        super().__init__("this transaction has already failed: roll it back first")


class Unfinished(PulseError):
    code = "unfinished"


class JobFailed(Unfinished):
    """A job that is a dead letter: it does not run again unless somebody replays it."""

    code = "job_failed"

    def __init__(self, job_id: UUID, error: str | None) -> None:
        super().__init__(f"job {job_id} failed for good: {error or 'no error was recorded'}")
        self.job_id, self.error = job_id, error


class JobCancelled(Unfinished):
    code = "job_cancelled"

    def __init__(self, job_id: UUID, reason: str | None) -> None:
        super().__init__(f"job {job_id} was {reason or 'cancelled'}")
        self.job_id = job_id


class ResultTimeout(Unfinished, TimeoutError):
    code = "result_timeout"

    def __init__(self, job_id: UUID, status: str, seconds: float, *, why: str = "") -> None:
        """Say in the message what the job waits for: `why` is one or more sentences, if the reason is known."""
        why = why or f"The job goes on, so ask again later; `pulse explain {job_id}` says what it waits for."
        super().__init__(f"job {job_id} is still {status} after {seconds:g} s. {why}")
        self.job_id = job_id


class LimitReached(PulseError):
    """A limit of the server that is reached. Nothing was changed."""

    code = "limit_reached"


class LimitExceeded(LimitReached):
    code = "limit_exceeded"

    def __init__(self, token: str, reason: str) -> None:
        super().__init__(f"token {token!r} {reason}")
        self.token = token


class Unavailable(PulseError):
    code = "unavailable"


class DatabaseUnreachable(Unavailable):
    code = "database_unreachable"


class DatabaseReadOnly(Unavailable):
    code = "database_read_only"


class UnsupportedDatabase(Unavailable):
    code = "unsupported_database"


class SchemaMismatch(Unavailable):
    code = "schema_mismatch"


class ServerUnreachable(Unavailable):
    code = "server_unreachable"


class StreamSilent(Unavailable):
    code = "stream_silent"

    def __init__(self, worker: str, seconds: float) -> None:
        super().__init__(f"nothing arrived from {worker} for {seconds:.0f} s, so its stream was ended")


class EmbeddedPostgresFailed(Unavailable):
    code = "embedded_postgres_failed"
