"""Which messages do a worker and a process of its pool exchange?

    worker -> process: Hello, then one Work after the other; the end of the stream asks it to end
    process -> worker: Ready or StartFailed, then for each Work any number of ProgressNotes and one Done

Each message is its length and then MessagePack. Nothing is pickled, so reading a message never runs code.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from pulse.model.jobs import Claim, Report  # noqa: TC001  msgspec reads annotations when a class is used
from pulse.sdk.logs import LogSettings  # noqa: TC001

PREFIX = 4  # bytes of length before each message
MESSAGE_LIMIT = 64 << 20  # bytes; results are far smaller, so a larger message was not sent by Pulse


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The app to load, and the environment to load it in."""

    app: str  # a path for `load_app`
    modules: list[str]  # the modules that declare its tasks and hooks, in the order in which they were imported
    sys_path: list[str]
    argv: list[str]
    logs: LogSettings | None = None  # the worker's, unless the application sets up logging itself
    redact: str = ""  # payload fields that errors must not quote; the worker's setting, which may differ from the app's


class Work(msgspec.Struct, frozen=True, tag=True):
    claim: Claim
    schema: str
    trace: dict[str, str] | None = None  # the worker's span, in which the handler runs


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class StartFailed(msgspec.Struct, frozen=True, tag=True):
    """The process cannot run jobs: its import of the app or a startup hook failed."""

    error: str


class ProgressNote(msgspec.Struct, frozen=True, tag=True):
    """Progress of a job. It names the job, because a thread that a handler left behind may still report progress
    while the next job runs."""

    job_id: UUID
    value: str


class Done(msgspec.Struct, frozen=True, tag=True):
    report: Report


FromWorker = Hello | Work
FromProcess = Ready | StartFailed | ProgressNote | Done

to_process: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
to_worker: msgspec.msgpack.Decoder[FromProcess] = msgspec.msgpack.Decoder(FromProcess)
_encoder = msgspec.msgpack.Encoder()


def frame(message: FromWorker | FromProcess) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(PREFIX, "big") + body
