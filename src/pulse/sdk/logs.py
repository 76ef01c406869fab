"""How does a log line say which job it belongs to?

Importing this changes nothing: `pulse worker` sets logging up for the programs it runs, and a library leaves it alone.
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

# The control characters that a terminal may act on, except line feeds and tabs.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LogSettings(NamedTuple):
    """The settings with which a process writes its logs."""

    format: str  # "json" or "text"
    level: int
    has_colour: bool = False


def configure_logging(settings: LogSettings) -> None:
    """Write the logs of this process to stderr, instead of any handlers that were set up before."""
    install_job_fields()
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonFormatter() if settings.format == "json" else TextFormatter(has_colour=settings.has_colour)
    )
    logging.basicConfig(level=settings.level, handlers=[handler], force=True)
    logging.getLogger("grpc").setLevel(max(settings.level, logging.INFO))  # its debug lines would bury all others


def current_log_settings() -> LogSettings | None:
    """Return the settings for child processes to use, or None if the application has set up logging itself.

    An application that sets up logging when it is imported does so in a child process as well.
    """
    root = logging.getLogger()
    for handler in root.handlers:
        match handler.formatter:
            case JsonFormatter():
                return LogSettings("json", root.level)
            case TextFormatter(has_colour=has_colour):
                return LogSettings("text", root.level, has_colour)
    return None


def stderr_has_colour() -> bool:
    """Tell whether stderr is a terminal whose user has not turned colours off (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and sys.stderr.isatty()


def install_job_fields() -> None:
    """Give every log record `job_id`, `task`, `topic`, `attempt` and `trace_id`, those of the job it was logged in.

    The trace is the one that the job runs in, or else the one it was enqueued in. Outside a job the fields are empty.
    This works for every logger and thread of the process, and for formats such as `%(job_id)s`. Calling it twice
    changes nothing.
    """
    make = logging.getLogRecordFactory()
    if make is logging.LogRecord:
        logging.setLogRecordFactory(JobRecord)
    elif make is not JobRecord and not hasattr(make, "adds_job_fields"):
        logging.setLogRecordFactory(_AddedFields(make))


class JobRecord(logging.LogRecord):
    """A log record that knows its job.

    logging refuses an `extra` with the name of a field that the record has, and a handler may well log a `task`. So
    the fields are added when the record is formatted, after any extra, which then wins.
    """

    __slots__ = ("_job",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **kwargs)
        self._job = _current_fields()  # read now: the record may be formatted later and on another thread

    def __getattr__(self, name: str) -> object:
        if name in FIELDS:
            return self._job[FIELDS.index(name)]
        raise AttributeError(name)

    def getMessage(self) -> str:  # noqa: N802  every formatter calls this first
        for name, value in zip(FIELDS, self._job, strict=True):
            self.__dict__.setdefault(name, value)
        return super().getMessage()


class _AddedFields:
    """A record factory that adds the fields to the records of another factory."""

    adds_job_fields = True

    def __init__(self, make: Any) -> None:  # noqa: ANN401
        self._make = make

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:  # noqa: ANN401
        record: logging.LogRecord = self._make(*args, **kwargs)
        record.__dict__.update(zip(FIELDS, _current_fields(), strict=True))
        return record


def _current_fields() -> tuple[str, str, str, int | str, str]:
    context = current.get()
    if context is None:
        return *NO_JOB, current_trace_id()
    trace_id = current_trace_id() or trace_id_of(context._claim.trace)
    return str(context.job_id), context.task, context.topic, context.attempt, trace_id


class TextFormatter(logging.Formatter):
    """Lines for people: `2026-11-18T12:00:01+01:00 INFO  shop.tasks  charged card  job=… task=… attempt=1`.

    The time is local, with its offset from UTC. A job or task that the message names is not repeated at its end.
    """

    def __init__(self, *, has_colour: bool = False) -> None:
        super().__init__()
        self.has_colour = has_colour

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="seconds")
        message = record.getMessage()
        parts = [
            self._colour(time, DIM),
            self._colour(f"{record.levelname:<5}", COLOURS.get(record.levelno)),
            self._colour(f"{record.name} ", DIM),
            _escape_control(message),
        ]
        if suffix := _format_job(record, message):
            parts.append(self._colour(f" {suffix}", DIM))
        line = " ".join(parts)
        traceback = _format_traceback(self, record)
        return f"{line}\n{_escape_control(traceback)}" if traceback else line

    def _colour(self, text: str, colour: str | None) -> str:
        """Colour a text. Its own control characters are escaped first: a terminal must act on ours alone."""
        escaped = _escape_control(text)
        return f"\x1b[{colour}m{escaped}\x1b[0m" if self.has_colour and colour else escaped


def _format_job(record: logging.LogRecord, message: str) -> str:
    """Return the job of the record as text, without what its message says already."""
    job_id, task = getattr(record, "job_id", ""), getattr(record, "task", "")
    if not job_id:
        return ""
    if job_id in message:
        return f"task={task}" if task not in message else ""
    return f"job={job_id} task={task} attempt={getattr(record, 'attempt', '')}"


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for programs. Empty fields are left out."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "ts": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {name: getattr(record, name, "") for name in FIELDS} | {"exc": _format_traceback(self, record)}
        return json.dumps(line | {name: value for name, value in more.items() if value != ""}, default=str)


def _format_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback or the stack that came with the record."""
    parts = [
        getattr(record, "job_traceback", ""),
        record.exc_text or (formatter.formatException(record.exc_info) if record.exc_info else ""),
        formatter.formatStack(record.stack_info) if record.stack_info else "",
    ]
    return "\n".join(part for part in parts if part)


def _escape_control(text: str) -> str:
    return _CONTROL.sub(_as_hex, text)


def _as_hex(found: re.Match[str]) -> str:
    return f"\\x{ord(found.group()):02x}"
