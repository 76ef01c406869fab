"""Which tools does an agent get, what does each take, and what does it answer?

Each tool is a type for what it takes, whose fields are its input schema, and a function over a link. It knows nothing
of the protocol: doors/mcp/door.py speaks that.
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
    from pulse.links.link import Producing
    from pulse.model.alarms import Alarm
    from pulse.model.jobs import Job

LONGEST_ID = 36

INSTRUCTIONS = """\
Pulse keeps alarms and jobs in a database, so they outlast you, this conversation and every process.

To sleep: do not wait or poll. Call alarm_set with when to be woken (delay_seconds, fire_at or cron_expr) and a
payload that holds all you will need to go on: you may remember nothing else. Then end your turn.

To be woken: at that time Pulse sends an HTTP POST to the alarm's url, or to the default target if it has none,
with the payload, the label and a signature. Whoever receives it starts you again with it. A delivery that is not
answered with 2xx is repeated, so the same wake may arrive twice: its webhook-id header is the same then.

Give an alarm a name if there should be only one of it: setting it again replaces the one before. Give a call an
idempotency_key if you may have to repeat the call itself. Cancel what you no longer need. You see only your own
alarms.

To have work done by a worker instead, call job_submit and look at it with job_status.
"""


def described(text: str) -> Meta:
    return Meta(description=text)


# --- alarms

Seconds = Annotated[
    float | None, described("Fire once, so many seconds from now. Give exactly one of this, fire_at and cron_expr.")
]
Instant = Annotated[
    Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None,  # read by us, for the words all doors have
    described("Fire once, at this time: RFC 3339 with an offset, such as 2026-07-31T09:00:00+02:00. In the future."),
]
Expression = Annotated[
    str | None,
    described("Fire again and again: five fields as in `0 9 * * mon-fri`, or `@daily`, or `@every 30m`."),
]


class AlarmSet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    delay_seconds: Seconds = None
    fire_at: Instant = None
    cron_expr: Expression = None
    tz: Annotated[str, described("For cron_expr: an IANA name, such as Europe/Berlin.")] = "UTC"
    payload: Annotated[
        Any,
        described(
            f"Any JSON, at most {PAYLOAD_LIMIT >> 10} KiB, handed back to you when you are woken: "
            "what you were doing, and what to do next."
        ),
    ] = None
    label: Annotated[str, described("A few words for people: why this alarm is there.")] = ""
    name: Annotated[
        str | None, described("A name of your own. Set again under the same name, it replaces the one before.")
    ] = None
    url: Annotated[str | None, described("Where to send the wake, https://… Leave it out for the default target.")] = (
        None
    )
    max_failures: Annotated[
        int | None, described("How often a failed delivery is tried again. Leave it out for the usual.")
    ] = None
    idempotency_key: Annotated[
        str | None, described("Repeating a call with the same key sets no second alarm, but answers with the first.")
    ] = None


class AlarmList(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    status: Annotated[
        AlarmStatus | None, described("Only those: active ones are still to come. Leave it out for all.")
    ] = None
    label: Annotated[str | None, described("Only those with exactly this label.")] = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_LIMIT, description="How many at most, newest first.")] = 50
    after: Annotated[str | None, described("The `next` of the page before, for the following page.")] = None


class AlarmCancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alarm: Annotated[str, described("The alarm's id, or the name it was set under.")]


class AlarmAnswer(Struct, frozen=True, kw_only=True):
    id: str
    status: AlarmStatus
    next_fire_at: datetime | None  # none: it fires no more
    kind: str
    owner: str
    name: str | None
    label: str
    cron_expr: str | None
    tz: str
    url: str | None  # none: the default target
    payload: Any
    is_paused: bool
    failure_count: int
    last_error: str | None
    last_fired_at: datetime | None
    created_at: datetime


class AlarmSetAnswer(AlarmAnswer, frozen=True, kw_only=True):
    is_new: bool  # false: the same call was made before, and this is the alarm it set


class AlarmListAnswer(Struct, frozen=True, kw_only=True):
    alarms: list[AlarmAnswer]
    next: str | None


# --- jobs


class JobSubmit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    task: Annotated[str, described("The name of the task, as the workers know it.")]
    payload: Annotated[dict[str, Any], described("Its arguments by name.")] = {}
    topic: Annotated[str, described("The topic it waits in. Leave it out for the task's own.")] = ""
    delay_seconds: Annotated[float | None, described("Run it no earlier than so many seconds from now.")] = None
    run_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        described("Run it no earlier than this time, RFC 3339 with an offset."),
    ] = None
    priority: Annotated[int, described("Higher runs first.")] = 0
    max_attempts: Annotated[int, described("How often it may be tried.")] = 3
    unique_key: Annotated[
        str | None, described("While a job with this key is unfinished, no second is made: the first is the answer.")
    ] = None


class JobLook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, described("The id that job_submit answered with.")]


class JobSubmitAnswer(Struct, frozen=True, kw_only=True):
    id: str
    is_new: bool  # false: a job with this key was there already


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


# --- what they do


class ToolContext(NamedTuple):
    """Who asks, and by which way it is done."""

    link: Producing
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


async def look_at_job(context: ToolContext, given: JobLook) -> JobAnswer:
    context.caller.check(Right.FOLLOW)
    job = await context.link.get(_job_id(given.id))
    context.caller.check(Right.FOLLOW, job.topic)
    return _job_answer(job)


class Tool(NamedTuple):
    name: str
    description: str
    takes: type[Struct]
    answers: type[Struct]
    do: Callable[[ToolContext, Any], Awaitable[Struct]]
    is_reading: bool = False
    is_repeatable: bool = False  # a second call changes nothing more
    is_destructive: bool = False


TOOLS = (
    Tool(
        "alarm_set",
        "Set an alarm that wakes you: once (delay_seconds or fire_at), or again and again (cron_expr). It is kept in a "
        "database and fires whether or not you are running. Answers with its id and next_fire_at.",
        AlarmSet,
        AlarmSetAnswer,
        set_alarm,
    ),
    Tool(
        "alarm_list",
        "List your alarms, newest first, with what is to come and what became of those before. Other owners' are never "
        "shown.",
        AlarmList,
        AlarmListAnswer,
        list_alarms,
        is_reading=True,
    ),
    Tool(
        "alarm_cancel",
        "Cancel one of your alarms by its id or name, so that it never fires again. Twice changes nothing.",
        AlarmCancel,
        AlarmAnswer,
        cancel_alarm,
        is_repeatable=True,
        is_destructive=True,
    ),
    Tool(
        "job_submit",
        "Have a worker run a task, now or later, with retries. Answers with the job's id at once; the work is done by "
        "whoever runs `pulse worker`.",
        JobSubmit,
        JobSubmitAnswer,
        submit_job,
    ),
    Tool(
        "job_status",
        "Look at a job by its id: its status, attempt, progress, and once it is finished its result or last error.",
        JobLook,
        JobAnswer,
        look_at_job,
        is_reading=True,
    ),
)


# --- reading and writing


def read_arguments(kind: type[Struct], given: dict[str, Any]) -> Any:  # noqa: ANN401
    """Empty texts and nulls are what agents write where they have nothing to say."""
    said = {name: value for name, value in given.items() if name == "payload" or value not in ("", None)}
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None


def schema_of(kind: type[Struct]) -> dict[str, Any]:
    """With the struct itself at the root, where clients expect an object."""
    _, components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root: dict[str, Any] = components.pop(kind.__name__)
    root.pop("title", None)
    return root | ({"$defs": components} if components else {})


def _json(what: str, value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"{what} is not JSON: {error}") from None


def _length(seconds: float | None) -> timedelta | None:
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidInput(f"delay_seconds {seconds:g} is longer than there is time") from None


def _job_id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput(
            f"{text[:LONGEST_ID]!r} is not the id of a job: give the one job_submit answered with"
        ) from None


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
