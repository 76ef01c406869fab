"""What do a worker and a process of its pool say to each other?

    worker -> process: Hello, then one Work after the other; the end of the stream asks it to end
    process -> worker: Ready or Unfit, then for each Work any number of Notes and one Done

Each message is MessagePack behind its length. Nothing is pickled: what one side says, the other only reads.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from pulse.model.jobs import Claim, Report  # noqa: TC001  msgspec reads annotations when a class is used
from pulse.sdk.logs import Logs  # noqa: TC001

PREFIX = 4  # bytes of length before each message
LONGEST = 64 << 20  # bytes; results are far smaller, so more than this is not one of ours


class Hello(msgspec.Struct, frozen=True, tag=True):
    """What to load, and the surroundings to load it in."""

    app: str  # as `load_app` reads it
    modules: list[str]  # that declare its tasks and hooks, in the order in which they were imported
    sys_path: list[str]
    argv: list[str]
    logs: Logs | None = None  # as the worker writes them, if that was left to us
    redact: str = ""  # fields of payloads that errors must not quote: the worker's, which may not be the app's


class Work(msgspec.Struct, frozen=True, tag=True):
    claim: Claim
    schema: str
    trace: dict[str, str] | None = None  # the span it runs in, which is the worker's


class Ready(msgspec.Struct, frozen=True, tag=True):
    pass


class Unfit(msgspec.Struct, frozen=True, tag=True):
    """It cannot run anything: the app does not import there, or a startup hook failed."""

    error: str


class Note(msgspec.Struct, frozen=True, tag=True):
    """Progress. It names its job: a thread that a handler left behind may speak while the next one runs."""

    job_id: UUID
    value: str


class Done(msgspec.Struct, frozen=True, tag=True):
    report: Report


FromWorker = Hello | Work
FromProcess = Ready | Unfit | Note | Done

to_process: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)
to_worker: msgspec.msgpack.Decoder[FromProcess] = msgspec.msgpack.Decoder(FromProcess)
_encoder = msgspec.msgpack.Encoder()


def frame(message: FromWorker | FromProcess) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(PREFIX, "big") + body
