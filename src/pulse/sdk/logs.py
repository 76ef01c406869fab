"""How does a log line say which job it belongs to?

Nothing here is done unasked: `pulse worker` sets this up for the programs it runs, and a library leaves logging alone.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pulse.sdk.context import current
from pulse.telemetry.tracing import current_trace_id, trace_id_of

FIELDS = ("job_id", "task", "topic", "attempt", "trace_id")
NO_JOB = ("", "", "", "")

DIM = "2"
COLOURS = {logging.DEBUG: DIM, logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}

# What a terminal would obey, but for the ends of lines and tabs.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Logs(NamedTuple):
    """How a process writes what it logs."""

    format: str  # "json" or "text"
    level: int
    has_colour: bool = False


def write_logs(logs: Logs) -> None:
    """From now on, on stderr. Of whatever was set up before, nothing stays."""
    install_job_fields()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if logs.format == "json" else TextFormatter(has_colour=logs.has_colour))
    logging.basicConfig(level=logs.level, handlers=[handler], force=True)
    logging.getLogger("grpc").setLevel(max(logs.level, logging.INFO))  # at debug it drowns all others


def how_logs_are_written() -> Logs | None:
    """For processes that are to do likewise; none if the application has seen to it, which it will there as well."""
    root = logging.getLogger()
    for handler in root.handlers:
        match handler.formatter:
            case JsonFormatter():
                return Logs("json", root.level)
            case TextFormatter(has_colour=has_colour):
                return Logs("text", root.level, has_colour)
    return None


def stderr_has_colour() -> bool:
    """Whether it is a terminal, and its user has not asked for none (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stderr.isatty()


def install_job_fields() -> None:
    """From now on every record has `job_id`, `task`, `topic`, `attempt` and `trace_id`: those of the job it was logged
    in. The trace is the one it runs in, or else the one it was enqueued in.

    Outside a job they are empty. It holds for every logger and thread of the process, and for formats such as
    `%(job_id)s`. Doing it twice changes nothing.
    """
    make = logging.getLogRecordFactory()
    if make is logging.LogRecord:
        logging.setLogRecordFactory(JobRecord)
    elif make is not JobRecord and not hasattr(make, "adds_job_fields"):
        logging.setLogRecordFactory(_AddedFields(make))


class JobRecord(logging.LogRecord):
    """A record that knows its job.

    logging refuses an `extra` named like something the record has, and a handler's author may well log a `task`. So
    the fields come into its `__dict__` when it is formatted, after any extra, which then wins.
    """

    __slots__ = ("_job",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._job = _fields_now()  # now, because it may be formatted elsewhere and later

    def __getattr__(self, name: str) -> object:
        if name in FIELDS:
            return self._job[FIELDS.index(name)]
        raise AttributeError(name)

    def getMessage(self) -> str:  # noqa: N802  what every formatter asks for first
        for name, value in zip(FIELDS, self._job, strict=True):
            self.__dict__.setdefault(name, value)
        return super().getMessage()


class _AddedFields:
    """The fields on the records that somebody else's factory makes."""

    adds_job_fields = True

    def __init__(self, make: Any) -> None:  # noqa: ANN401
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:  # noqa: ANN401
        record: logging.LogRecord = self._make(*args, **kwargs)
        record.__dict__.update(zip(FIELDS, _fields_now(), strict=True))
        return record


def _fields_now() -> tuple[str, str, str, int | str, str]:
    context = current.get()
    if context is None:
        return *NO_JOB, current_trace_id()
    trace_id = current_trace_id() or trace_id_of(context._claim.trace)
    return str(context.job_id), context.task, context.topic, context.attempt, trace_id


class TextFormatter(logging.Formatter):
    """`2026-11-18T12:00:01+01:00 INFO  shop.tasks  charged card  job=… task=… attempt=1`, for people.

    The time is local, with its distance from UTC. What the message says of its job itself is not said again.
    """

    def __init__(self, *, has_colour: bool = False) -> None:
        super().__init__()
        self.has_colour = has_colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="seconds")
        message = record.getMessage()
        parts = [
            self._painted(time, DIM),
            self._painted(f"{record.levelname:<5}", COLOURS.get(record.levelno)),
            self._painted(f"{record.name} ", DIM),
            _safe(message),
        ]
        if suffix := _job_of(record, message):
            parts.append(self._painted(f" {suffix}", DIM))
        line = " ".join(parts)
        trouble = _trouble(self, record)
        return f"{line}\n{_safe(trouble)}" if trouble else line

    def _painted(self, text: str, colour: str | None) -> str:
        """Spelled out first: only what is ours may be obeyed by a terminal."""
        return f"\x1b[{colour}m{_safe(text)}\x1b[0m" if self.has_colour and colour else _safe(text)


def _job_of(record: logging.LogRecord, message: str) -> str:
    """Which job the record is of, as far as its message does not say so."""
    job_id, task = getattr(record, "job_id", ""), getattr(record, "task", "")
    if not job_id:
        return ""
    if job_id in message:
        return f"task={task}" if task not in message else ""
    return f"job={job_id} task={task} attempt={getattr(record, 'attempt', '')}"


class JsonFormatter(logging.Formatter):
    """One object per line, for programs. What is empty is left out."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "ts": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {name: getattr(record, name, "") for name in FIELDS} | {"exc": _trouble(self, record)}
        return json.dumps(line | {name: value for name, value in more.items() if value != ""}, default=str)


def _trouble(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback or the stack that came with the record."""
    parts = [
        getattr(record, "job_traceback", ""),
        record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else ""),
        formatter.formatStack(record.stack_info) if record.stack_info else "",
    ]
    return "\n".join(part for part in parts if part)


def _safe(text: str) -> str:
    return _CONTROL.sub(_spell, text)


def _spell(found: re.Match[str]) -> str:
    return f"\\x{ord(found.group()):02x}"
