"""Which jobs match a call of a task, and how is a job shown in a failed assertion?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from pulse.model.errors import InvalidArguments
from pulse.model.jobs import Job, JobStatus
from pulse.sdk.arguments import write_json
from pulse.timing.duration import format_duration

if TYPE_CHECKING:
    from pulse.sdk.task import Task

MAX_SHOWN = 20
SHOWN_LENGTH = 200  # characters of one call
SECOND = timedelta(seconds=1)
_NOT_JSON = object()  # not equal to any JSON value


class Call:
    """A task, and all or some of its arguments by name."""

    def __init__(self, task: Task[..., Any, Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        self._parameters = UnknownParameters(task) if isinstance(task, str) else Parameters(task)
        self._names = (task,) if isinstance(task, str) else (task.name, *task.aliases)
        self._wanted = self._parameters.name(args, kwargs)

    def __str__(self) -> str:
        return _show(self._names[0], self._wanted)

    def is_of(self, job: Job) -> bool:
        return job.task in self._names

    def matches(self, job: Job) -> bool:
        if not self.is_of(job):
            return False
        if not self._wanted:
            return True
        as_read, as_written = self._parameters.read(job), self._parameters.flatten(written(job.payload))
        return all(
            _has(as_read, name, value) or _has(as_written, name, _as_json(value))
            for name, value in self._wanted.items()
        )


class UnknownParameters:
    """The parameters of a task of which only the name is known."""

    def __init__(self, task: str) -> None:
        self._task = task

    def name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        __tracebackhide__ = True
        if args:
            raise TypeError(
                f"give the arguments of {self._task!r} by name: without its function, their order is not known"
            )
        return dict(kwargs)

    def read(self, _: Job) -> dict[str, Any]:
        return {}

    def flatten(self, values: dict[str, Any]) -> dict[str, Any]:
        return values


class Parameters(UnknownParameters):
    """The parameters of a task, without the leading context."""

    def __init__(self, task: Task[..., Any, Any]) -> None:
        super().__init__(task.name)
        self._arguments = task.arguments
        parameters = list(_signature(task.function).parameters.values())
        self._signature = inspect.Signature(parameters[1 if task.takes_context else 0 :])
        kinds = {parameter.kind: parameter.name for parameter in parameters}
        self._extra = kinds.get(inspect.Parameter.VAR_KEYWORD)

    def name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        __tracebackhide__ = True
        try:
            return self.flatten(self._signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError(f"{self._task}: {error}; it takes {self._signature}") from None

    def read(self, job: Job) -> dict[str, Any]:
        """Return the arguments as the handler will get them, defaults included."""
        try:
            args, kwargs = self._arguments.unpack(job.payload)
            bound = self._signature.bind(*args, **kwargs)
        except (InvalidArguments, TypeError):  # wrong arguments, perhaps of a job enqueued from SQL
            return {}
        bound.apply_defaults()
        return self.flatten(bound.arguments)

    def flatten(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments with those of `**extra` beside the others."""
        extra = values.get(self._extra) if self._extra else None
        if not isinstance(extra, dict):
            return values
        return {name: value for name, value in values.items() if name != self._extra} | extra


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, with its annotations evaluated if the names in them are defined."""
    try:
        return inspect.signature(function, eval_str=True)
    except NameError:
        return inspect.signature(function)


def _has(values: Mapping[str, Any], name: str, wanted: object) -> bool:
    """Compare by the `__eq__` of the wanted value, so that mock.ANY and similar values work."""
    return name in values and bool(wanted == values[name])


def _as_json(value: object) -> object:
    try:
        return msgspec.json.decode(write_json(value, TypeError))
    except TypeError:
        return _NOT_JSON


def written(payload: str) -> dict[str, Any]:
    """Return the arguments as they are stored. A payload from SQL may be any JSON value."""
    values = msgspec.json.decode(payload)
    return values if isinstance(values, dict) else {"payload": values}


def show_call(task: str, payload: str) -> str:
    """Show a job as a call of its task."""
    return _show(task, written(payload))


def show_jobs(jobs: Sequence[Job], now: datetime) -> str:
    """Show jobs, one per line."""
    lines = [f"  {show_call(job.task, job.payload)}  {_state(job, now)}" for job in jobs[:MAX_SHOWN]]
    if len(jobs) > MAX_SHOWN:
        lines.append(f"  … and {len(jobs) - MAX_SHOWN} more")
    return "\n".join(lines)


def _show(name: str, values: Mapping[str, object]) -> str:
    text = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"{name}({text if len(text) <= SHOWN_LENGTH else text[:SHOWN_LENGTH] + '…'})"


def _state(job: Job, now: datetime) -> str:
    state = job.status.value
    if job.status in (JobStatus.SCHEDULED, JobStatus.RETRYING) and job.run_at > now:
        state += f" in {format_duration(max(SECOND, (job.run_at - now + SECOND / 2) // SECOND * SECOND))}"
    if job.topic != job.task:
        state += f", topic {job.topic}"
    return f"{state}, {job.last_error}" if job.last_error else state
