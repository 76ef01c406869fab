"""Which errors can Pulse raise, and what does each tell its reader?

    PulseError
    ├── InvalidInput            the caller can mend it; nothing was changed
    │   ├── InvalidName
    │   ├── InvalidPayload
    │   ├── InvalidOption       one option of a job is out of range
    │   ├── InvalidReport       a lease_id of 0, an unknown outcome
    │   ├── InvalidFilter
    │   ├── InvalidSchedule     a timetable that cannot be read, or has no future time
    │   ├── InvalidAlarm        the same of an alarm
    │   ├── BatchTooLarge
    │   ├── InvalidTask         a task that cannot be declared so: its name is taken, its types are not JSON
    │   ├── InvalidArguments    a call its task could not take
    │   ├── InvalidResult       a handler returned what is not JSON, or not what its annotation says
    │   ├── InvalidApp          `module:app` does not lead to one
    │   ├── InvalidSettings
    │   ├── InvalidDatabaseUrl
    │   ├── InvalidServerUrl
    │   ├── InvalidTarget       an address that alarms may not call
    │   ├── InvalidSignature    a wake that nobody with the secret has sent, or not now
    │   ├── MissingPackage      an optional part of the installation is not there
    │   └── UnknownConnection   not a connection or session that can carry a job
    ├── AccessDenied
    │   ├── Unauthenticated     no token, or one that is unknown, expired or revoked
    │   └── Forbidden           the token has no scope for this
    ├── NotFound
    │   ├── AlarmNotFound
    │   ├── JobNotFound
    │   ├── ScheduleNotFound
    │   ├── StreamNotFound      a stream that has ended, or is at another server
    │   └── TokenNotFound
    ├── Conflict                the row is not in the state this needs
    │   ├── AlarmConflict       it has ended, or a delivery of it is under way
    │   ├── AlarmExists         the idempotency key was used for another alarm
    │   ├── IllegalTransition
    │   ├── LeaseLost
    │   ├── KeyTaken
    │   ├── JobBusy             a handler's own transaction holds the row
    │   ├── ScheduleExists      the name is taken by another definition
    │   ├── ScheduleOwned       declared in code, so it is changed there
    │   ├── StaleDeploy         a newer deploy has declared its schedules
    │   ├── TokenNameTaken
    │   └── TransactionFailed   the caller's transaction can only be rolled back
    ├── Unfinished              asked for a result that is not there
    │   ├── JobFailed           dead-lettered; the message is its last error
    │   ├── JobCancelled
    │   └── ResultTimeout       not finished within the time given
    ├── LimitReached            not now, or not so many
    │   └── LimitExceeded       too many calls or streams of one token
    └── Unavailable             the database, not the caller
        ├── DatabaseUnreachable
        ├── DatabaseReadOnly
        ├── UnsupportedDatabase
        ├── SchemaMismatch
        ├── ServerUnreachable   no pulsed answers
        ├── StreamSilent        a stream was given up because nothing was heard on it
        └── EmbeddedPostgresFailed

Every door maps the nearest ancestor it knows to its own status, so a new error needs no new line there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from uuid import UUID


class PulseError(Exception):
    """The ancestor of every error Pulse raises on purpose."""

    code: ClassVar[str] = "error"


class InvalidInput(PulseError):
    code = "invalid_input"


class InvalidName(InvalidInput):
    code = "invalid_name"


class InvalidPayload(InvalidInput):
    code = "invalid_payload"


class InvalidOption(InvalidInput):
    """An option that is out of range or of the wrong kind."""

    code = "invalid_option"

    def __init__(self, option: str, found: object, must: str) -> None:
        super().__init__(f"{option} must {must}, not {found!r}")
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

    def __init__(self, what: str, size: int, limit: int) -> None:
        super().__init__(f"{size} {what} in one batch; at most {limit} are taken, so send them in parts")
        self.size, self.limit = size, limit


class InvalidTask(InvalidInput):
    code = "invalid_task"


class InvalidArguments(InvalidInput):
    code = "invalid_arguments"

    def __init__(self, task: str, why: str) -> None:
        super().__init__(f"{task}: {why}")
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
    """Never says which part of a signature was wrong: only its maker could use that."""

    code = "invalid_signature"


class MissingPackage(InvalidInput):
    """What was asked for needs an extra that is not installed."""

    code = "missing_package"

    def __init__(self, what: str, extra: str, missing: str | None) -> None:
        super().__init__(f"{what} needs {missing or 'more packages'}: `pip install 'pulse-postgres[{extra}]'`")
        self.extra = extra


class UnknownConnection(InvalidInput):
    code = "unknown_connection"

    def __init__(self, given: object, understood: str) -> None:
        kind = type(given)
        super().__init__(
            f"{kind.__module__}.{kind.__qualname__} is not a connection Pulse understands: give {understood}"
        )


class AccessDenied(PulseError):
    code = "access_denied"


class Unauthenticated(AccessDenied):
    """Nobody we know. The message never says more than the holder of that very secret may learn."""

    code = "unauthenticated"


class Forbidden(AccessDenied):
    """Somebody we know, who may not do this."""

    code = "forbidden"

    def __init__(self, token: str, said: str) -> None:
        super().__init__(f"token {token!r} {said}")
        self.token = token


class NotFound(PulseError):
    code = "not_found"


class AlarmNotFound(NotFound):
    """Also where it is someone else's: what one may not see is not there."""

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
        super().__init__(f"stream {stream[:40]!r} has ended or is at another server: open a new one")


class TokenNotFound(NotFound):
    code = "token_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"no token {name!r}: `pulse tokens list` shows them all")
        self.name = name


class Conflict(PulseError):
    code = "conflict"


class AlarmConflict(Conflict):
    code = "alarm_conflict"

    def __init__(self, alarm_id: object, why: str) -> None:
        super().__init__(f"alarm {alarm_id} {why}")


class AlarmExists(Conflict):
    code = "alarm_exists"

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key[:100]!r} was used for another alarm: use a new one for each")


# What people call the states of a job, and what is done with it: no state of one, no event of the other is missing.
STATES = {
    "SCHEDULED": "scheduled for later",
    "PENDING": "waiting for a worker",
    "RUNNING": "running",
    "RETRYING": "waiting for its next attempt",
    "COMPLETED": "completed",
    "DEAD_LETTERED": "a dead letter",
    "CANCELLED": "cancelled",
}
DEEDS = {
    "PROMOTE": "be made ready",
    "CLAIM": "be claimed",
    "HEARTBEAT": "be kept",
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
    """The job is in a state from which this event leads nowhere."""

    code = "illegal_transition"

    def __init__(self, job_id: UUID, status: str, event: str) -> None:
        state = STATES.get(status, status.lower())
        if event in ALREADY.get(status, ()):
            super().__init__(f"job {job_id} is already {state}")
        else:
            super().__init__(f"job {job_id} is {state}, so it cannot {DEEDS.get(event, event.lower())}")
        self.job_id, self.status, self.event = job_id, status, event


class LeaseLost(Conflict):
    """The worker's lease ended before it reported; another worker may hold the job."""

    code = "lease_lost"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"lease on job {job_id} was lost; discard this result")
        self.job_id = job_id


class KeyTaken(Conflict):
    """A replayed job wants back a unique key that a newer job now holds."""

    code = "key_taken"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} cannot be replayed: another job holds its unique key")
        self.job_id = job_id


class JobBusy(Conflict):
    """A handler holds the row in a transaction of its own; nobody waits for it."""

    code = "job_busy"

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"job {job_id} is locked by its handler's own transaction; try again when it ends")
        self.job_id = job_id


class ScheduleExists(Conflict):
    """Creating it again changes nothing if all is the same; here something differs."""

    code = "schedule_exists"

    def __init__(self, name: str, differs: str | None = None) -> None:
        """`differs` names the fields, for those who may know; to others only the name is taken."""
        if differs:
            words = f"schedule {name!r} is there already with another {differs}: edit it, or choose another name"
        else:
            words = f"schedule {name!r} is there already: choose another name"
        super().__init__(words)
        self.name = name


class ScheduleOwned(Conflict):
    """A schedule that code declares is changed in the code: the next deploy would undo what is done here."""

    code = "schedule_owned"

    def __init__(self, name: str, app: str | None, instead: str) -> None:
        owner = f"declared in code ({app})" if app else "not declared in code"
        super().__init__(f"schedule {name!r} is {owner}: {instead}")
        self.name = name


class StaleDeploy(Conflict):
    code = "stale_deploy"

    def __init__(self, app: str, why: str) -> None:
        super().__init__(f"the schedules of {app} are left as they are: {why}")
        self.app = app


class TokenNameTaken(Conflict):
    """A name stays taken when its token is revoked: jobs and workers of the past carry it."""

    code = "token_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(f"token {name!r} is there already, perhaps revoked: choose a name that was never used")
        self.name = name


class TransactionFailed(Conflict):
    """A statement before this one failed, so the caller's transaction takes no more of them."""

    code = "transaction_failed"

    def __init__(self) -> None:
        super().__init__("this transaction has already failed: roll it back first")


class Unfinished(PulseError):
    code = "unfinished"


class JobFailed(Unfinished):
    """The job is a dead letter: it will not run again unless someone replays it."""

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
        """`why`: sentences about what it waits for, where that is known."""
        why = why or f"It goes on, so ask again later; `pulse explain {job_id}` says what it waits for."
        super().__init__(f"job {job_id} is still {status} after {seconds:g} s. {why}")
        self.job_id = job_id


class LimitReached(PulseError):
    """The server has as much of this as it takes; nothing was changed."""

    code = "limit_reached"


class LimitExceeded(LimitReached):
    code = "limit_exceeded"

    def __init__(self, token: str, what: str) -> None:
        super().__init__(f"token {token!r} {what}")
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
        super().__init__(f"nothing was heard from {worker} for {seconds:.0f} s, so its stream was ended")


class EmbeddedPostgresFailed(Unavailable):
    code = "embedded_postgres_failed"
