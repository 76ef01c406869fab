"""Which tools does an agent get, and what are their inputs and outputs?

Each tool has a type for its input, whose fields make its input schema, a type for its output, and a function that calls
a link. Tools know nothing of the protocol, which is in door.py.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from pulse.model.alarms import PAYLOAD_LIMIT, AlarmFilter, AlarmStatus, NewAlarm, read_fire_at
from pulse.model.errors import InvalidInput, InvalidPayload
from pulse.model.jobs import FINISHED, PAGE_LIMIT, JobStatus, NewJob
from pulse.model.tokens import Right

if TYPE_CHECKING:
    from pulse.doors.access import Caller
    from pulse.links.link import ProducerLink
    from pulse.model.alarms import Alarm
    from pulse.model.jobs import Job

LONGEST_ID = 36

INSTRUCTIONS = """\
Pulse keeps alarms and jobs in a database, so they outlast you, this conversation and every process.

To sleep: do not wait or poll. Call alarm_set with when to be woken (delay_seconds, fire_at or cron_expr) and a
payload that holds all you will need to go on: you may remember nothing else. Then end your turn.

To be woken: at that time Pulse sends an HTTP POST to the alarm's url, or to the default target if it has none,
with the payload, the label and a signature. The program that receives it starts you again with it. A delivery that is
not answered with 2xx is repeated, so the same wake may arrive twice: both then have the same webhook-id header.

Give an alarm a name if there should be only one of it: setting it again replaces the earlier one. Give a call an
idempotency_key if you may have to repeat the call itself. Cancel alarms that you no longer need. You see only your own
alarms.

To have a worker do something instead, call job_submit, and follow the job with job_status.
"""


def described(text: str) -> Meta:
    return Meta(description=text)


# --- alarms

Seconds = Annotated[
    float | None, described("Fire once, this many seconds from now. Give exactly one of this, fire_at and cron_expr.")
]
Instant = Annotated[
    Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None,  # a string: the model reads it
    described("Fire once, at this time in the future: RFC 3339 with an offset, such as 2026-07-31T09:00:00+02:00."),
]
Expression = Annotated[
    str | None,
    described("Fire repeatedly: a cron expression such as `0 9 * * mon-fri`, or `@daily`, or `@every 30m`."),
]


class AlarmSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    delay_seconds: Seconds = None
    fire_at: Instant = None
    cron_expr: Expression = None
    tz: Annotated[str, described("For cron_expr: an IANA name, such as Europe/Berlin.")] = "UTC"
    payload: Annotated[
        Any,
        described(
            f"Any JSON, at most {PAYLOAD_LIMIT >> 10} KiB, which you get back when you are woken: "
            "what you were doing, and what to do next."
        ),
    ] = None
    label: Annotated[str, described("A few words for people that say what the alarm is for.")] = ""
    name: Annotated[
        str | None, described("A name of your choice. An alarm replaces your earlier alarm of the same name.")
    ] = None
    url: Annotated[str | None, described("Where to send the wake, https://… Leave it out for the default target.")] = (
        None
    )
    max_failures: Annotated[
        int | None, described("How often a failed delivery is tried again. Leave it out for the default.")
    ] = None
    idempotency_key: Annotated[
        str | None, described("A repeated call with the same key sets no second alarm, and returns the first.")
    ] = None


class AlarmList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[
        AlarmStatus | None,
        described("Only alarms with this status; active alarms will still fire. Leave it out for all."),
    ] = None
    label: Annotated[str | None, described("Only alarms with exactly this label.")] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_LIMIT, description="How many alarms at most, newest first.")] = 50
    after: Annotated[str | None, described("The `next` of the page before, to get the page after it.")] = None


class AlarmCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alarm: Annotated[str, described("The id or the name of the alarm.")]


class AlarmAnswer(Struct, frozen=True, kw_only=True):
    id: str
    status: AlarmStatus
    next_fire_at: datetime | None  # None: it does not fire again
    kind: str
    owner: str
    name: str | None
    label: str
    cron_expr: str | None
    tz: str
    url: str | None  # None: the default target
    payload: Any
    is_paused: bool
    failure_count: int
    last_error: str | None
    last_fired_at: datetime | None
    created_at: datetime


class AlarmSetAnswer(AlarmAnswer, frozen=True, kw_only=True):
    is_new: bool  # False: an earlier call has set this alarm already


class AlarmListAnswer(Struct, frozen=True, kw_only=True):
    alarms: list[AlarmAnswer]
    next: str | None


# --- jobs


class JobSubmit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: Annotated[str, described("The name of the task, as the workers know it.")]
    payload: Annotated[dict[str, Any], described("Its arguments by name.")] = {}
    topic: Annotated[str, described("The topic of the job. Leave it out for the task's own topic.")] = ""
    delay_seconds: Annotated[float | None, described("Run the job no earlier than this many seconds from now.")] = None
    run_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        described("Run the job no earlier than this time: RFC 3339 with an offset."),
    ] = None
    priority: Annotated[int, described("-100 to 100. Jobs of higher priority run first.")] = 0
    max_attempts: Annotated[int, described("How many attempts the job may have.")] = 3
    unique_key: Annotated[
        str | None, described("While a job of the topic with this key is unfinished, the call returns that job.")
    ] = None


class JobQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, described("The id that job_submit returned.")]


class JobSubmitAnswer(Struct, frozen=True, kw_only=True):
    id: str
    is_new: bool  # False: this is an earlier job with the same unique_key


class JobAnswer(Struct, frozen=True, kw_only=True):
    id: str
    status: JobStatus
    is_finished: bool
    task: str
    topic: str
    attempt: int
    max_attempts: int
    submitted_at: datetime
    run_at: datetime
    finished_at: datetime | None
    result: Any
    progress: Any
    last_error: str | None


# --- the functions of the tools


class ToolContext(NamedTuple):
    """The caller of a tool, the owner of its alarms, and the link that the tool uses."""

    link: ProducerLink
    caller: Caller
    owner: str


async def set_alarm(context: ToolContext, given: AlarmSet) -> AlarmSetAnswer:
    context.caller.check(Right.SET_ALARM, context.owner)
    new = NewAlarm(
        owner=context.owner,
        name=given.name,
        label=given.label,
        payload=_json("payload", given.payload),
        url=given.url,
        delay=_length(given.delay_seconds),
        fire_at=None if given.fire_at is None else read_fire_at(given.fire_at),
        cron=given.cron_expr,
        tz=given.tz,
        max_failures=given.max_failures,
        idempotency_key=given.idempotency_key,
    )
    found = await context.link.alarms.set(new)
    return AlarmSetAnswer(**_facts(found.alarm), is_new=found.is_new)


async def list_alarms(context: ToolContext, given: AlarmList) -> AlarmListAnswer:
    context.caller.check(Right.VIEW_ALARM, context.owner)
    wanted = AlarmFilter(owner=context.owner, status=given.status, label=given.label)
    page = await context.link.alarms.list_page(wanted, after=given.after, limit=given.limit)
    return AlarmListAnswer(alarms=[AlarmAnswer(**_facts(alarm)) for alarm in page.alarms], next=page.next)


async def cancel_alarm(context: ToolContext, given: AlarmCancel) -> AlarmAnswer:
    context.caller.check(Right.MANAGE_ALARM, context.owner)
    return AlarmAnswer(**_facts(await context.link.alarms.cancel(given.alarm, owner=context.owner)))


async def submit_job(context: ToolContext, given: JobSubmit) -> JobSubmitAnswer:
    new = NewJob(
        task=given.task,
        payload=_json("payload", given.payload),
        topic=given.topic,
        delay=_length(given.delay_seconds),
        run_at=given.run_at,
        priority=given.priority,
        max_attempts=given.max_attempts,
        unique_key=given.unique_key,
    )
    context.caller.check(Right.SUBMIT, new.routed_topic)
    [submitted] = await context.link.submit([new])
    return JobSubmitAnswer(id=str(submitted.id), is_new=submitted.created)


async def get_job(context: ToolContext, given: JobQuery) -> JobAnswer:
    context.caller.check(Right.FOLLOW)
    job = await context.link.get(_job_id(given.id))
    context.caller.check(Right.FOLLOW, job.topic)
    return _job_answer(job)


class Tool(NamedTuple):
    name: str
    description: str
    input_type: type[Struct]
    output_type: type[Struct]
    run: Callable[[ToolContext, Any], Awaitable[Struct]]
    is_reading: bool = False
    is_repeatable: bool = False  # a second call with the same arguments changes nothing
    is_destructive: bool = False


TOOLS = (
    Tool(
        "alarm_set",
        "Set an alarm that wakes you once (delay_seconds or fire_at) or repeatedly (cron_expr). It is stored in a "
        "database, and fires whether or not you are running. Returns the alarm with its id and next_fire_at.",
        AlarmSet,
        AlarmSetAnswer,
        set_alarm,
    ),
    Tool(
        "alarm_list",
        "List your alarms, newest first: active ones with their next_fire_at, and those that have fired, failed or "
        "been cancelled. Alarms of other owners are never shown.",
        AlarmList,
        AlarmListAnswer,
        list_alarms,
        is_reading=True,
    ),
    Tool(
        "alarm_cancel",
        "Cancel one of your alarms by its id or name, so that it never fires again. Cancelling it twice changes "
        "nothing.",
        AlarmCancel,
        AlarmAnswer,
        cancel_alarm,
        is_repeatable=True,
        is_destructive=True,
    ),
    Tool(
        "job_submit",
        "Submit a job: a worker runs the task, now or later, with retries. Returns the job's id at once, before the "
        "task has run.",
        JobSubmit,
        JobSubmitAnswer,
        submit_job,
    ),
    Tool(
        "job_status",
        "Get a job by its id: its status, attempt, progress, and once it is finished its result or last error.",
        JobQuery,
        JobAnswer,
        get_job,
        is_reading=True,
    ),
)


# --- reading and writing


def read_arguments(kind: type[Struct], given: dict[str, Any]) -> Any:  # noqa: ANN401
    """Read the arguments of a call, without empty texts and nulls: agents send these for arguments they do not use."""
    used = {name: value for name, value in given.items() if name == "payload" or value not in ("", None)}
    try:
        return msgspec.convert(used, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct, with the struct itself at the root, where clients expect an object."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: dict[str, Any] = components.pop(kind.__name__)
    root.pop("title", None)
    return root | ({"$defs": components} if components else {})


def _json(name: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"{name} must be JSON: {error}") from None


def _length(seconds: float | None) -> timedelta | None:
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput(f"delay_seconds must be a number of seconds, at most ten years, not {seconds:g}") from None


def _job_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(f"id must be the id that job_submit returned, not {text[:LONGEST_ID]!r}") from None


def _facts(alarm: Alarm) -> dict[str, Any]:
    same = ("status", "next_fire_at", "kind", "owner", "name", "label", "url", "failure_count", "last_error")
    return {name: getattr(alarm, name) for name in (*same, "last_fired_at", "created_at")} | {
        "id": str(alarm.id),
        "cron_expr": alarm.cron,
        "tz": alarm.tz,
        "payload": json.loads(alarm.payload),
        "is_paused": alarm.paused_at is not None,
    }


def _job_answer(job: Job) -> JobAnswer:
    same = ("status", "task", "topic", "attempt", "max_attempts", "submitted_at", "run_at", "finished_at", "last_error")
    return JobAnswer(
        id=str(job.id),
        is_finished=job.status in FINISHED,
        result=_read(job.result),
        progress=_read(job.progress),
        **{name: getattr(job, name) for name in same},
    )


def _read(text: str | None) -> object:
    return None if text is None else json.loads(text)
