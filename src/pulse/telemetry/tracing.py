"""How does a job show in a trace? By OpenTelemetry's conventions for messaging, where the process has set that up.

    enqueue <topic>    PRODUCER, in the program that enqueues; its context is kept on the row, as W3C writes it
    dispatch <topic>   CLIENT, in a server: from the claim until a worker's stream takes the message
    process <topic>    CONSUMER, in the worker: the handler runs inside it

The last two link to the first: a job may run days after it was enqueued, and several times. Nothing is imported before
the program has: who has not imported OpenTelemetry has given it no provider, and there would be nobody to tell.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

import msgspec

from pulse.engine.masks import mask_report
from pulse.model.jobs import Outcome
from pulse.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from enum import Enum
    from uuid import UUID

    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

    from pulse.model.jobs import Claim, NewJob, Report
    from pulse.model.redaction import Redaction

log = logging.getLogger("pulse.trace")

Carrier = dict[str, str]

API = "opentelemetry.trace"
MAX_LINKS = 128  # of one span, which is where OpenTelemetry stops too
OTHER = "_OTHER"  # what the conventions call an error without a name

T = TypeVar("T")
P = ParamSpec("P")

_latest: tuple[object, Tracer] | None = None


def find_tracer() -> Tracer | None:
    """None: nobody traces in this process."""
    if API not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # which stands for one that was not given
        return None
    global _latest  # making a tracer costs more than a span
    if _latest is None or _latest[0] is not provider:
        _latest = provider, provider.get_tracer("pulse", __version__)
    return _latest[1]


def _unhindered(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """A processor or a sampler of the program's own may fail, and no job may for that."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.warning("a span failed; the job goes on without", exc_info=True)
        return None


# --- the context of a span, as the row keeps it


def carry() -> Carrier | None:
    """The context of the span we are in."""
    if API not in sys.modules:
        return None
    carrier: Carrier = {}
    _propagator().inject(carrier)
    return carrier or None


@contextmanager
def carried(carrier: Carrier | None) -> Iterator[None]:
    """Be within a span of another process."""
    if carrier is None or API not in sys.modules:
        yield
        return
    from opentelemetry import context

    token = context.attach(_propagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def current_trace_id() -> str:
    """Of the span we are in, or empty."""
    if API not in sys.modules:
        return ""
    from opentelemetry import trace

    found = trace.get_current_span().get_span_context()
    return trace.format_trace_id(found.trace_id) if found.is_valid else ""


def trace_id_of(kept: str | None) -> str:
    """Of the context a row keeps, or empty. Whoever enqueues can write what they like there."""
    parts = _read(kept).get("traceparent", "").split("-") if kept else []
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 and parts[1].isalnum() and parts[1].isascii() else ""


def _propagator() -> Any:  # noqa: ANN401
    """W3C's, whatever the program uses elsewhere: the column says so."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _read(kept: str | None) -> Carrier:
    try:
        return msgspec.json.decode(kept or "{}", type=Carrier)
    except msgspec.DecodeError:
        return {}


def _creation(claim: Claim) -> Context:
    """The context that the job was enqueued in; an empty one if it has none we understand."""
    found: Context = _propagator().extract(_read(claim.trace))
    return found


def _links(creations: Sequence[Context]) -> list[Link]:
    from opentelemetry import trace

    contexts = (trace.get_current_span(each).get_span_context() for each in creations)
    apart = {(each.trace_id, each.span_id): each for each in contexts if each.is_valid}  # a batch may share one
    return [trace.Link(each) for each in apart.values()]


def _about(operation: str, kind: str, topics: Sequence[str], tasks: Sequence[str], ids: Sequence[object]) -> Any:  # noqa: ANN401
    """What all our spans say; of a batch, what all of it has in common."""
    found: dict[str, Any] = {
        "messaging.system": "pulse",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if len(set(topics)) == 1:
        found["messaging.destination.name"] = topics[0]
    if len(set(tasks)) == 1:
        found["pulse.task.name"] = tasks[0]
    if len(tasks) > 1:
        found["messaging.batch.message_count"] = len(tasks)
    elif ids and ids[0] is not None:
        found["messaging.message.id"] = str(ids[0])
    return found


def _name(operation: str, topics: Sequence[str]) -> str:
    return f"{operation} {topics[0]}" if len(set(topics)) == 1 else operation


# --- enqueue


class Enqueueing:
    """Around an enqueue: `jobs` are those given, which now know where they come from."""

    __slots__ = ("_parent", "_span", "_use", "jobs")

    def __init__(self, jobs: list[NewJob], *, parent: UUID | None = None) -> None:
        self.jobs = jobs
        self._parent = parent  # the job whose handler enqueues these
        self._span: Span | None = None

    def __enter__(self) -> Enqueueing:
        tracer = find_tracer() if self.jobs else None
        if tracer is not None:
            _unhindered(self._begin, tracer)
        origin = self._origin()
        if origin:
            self.jobs = [job if job.trace else msgspec.structs.replace(job, trace=origin) for job in self.jobs]
        return self

    def _origin(self) -> Carrier:
        """Where they come from: the span, and the job whose handler makes them."""
        carrier = _unhindered(carry) if self._span is not None else None
        parent = {} if self._parent is None else {"parent": str(self._parent)}
        return (carrier or {}) | parent

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401
        if self._span is None:
            return
        if kind is not None:
            _set_failed(self._span, kind.__qualname__, "")  # its words are the caller's, who gets it raised
        _unhindered(self._use.__exit__, kind, error, trace)

    def sent(self, ids: list[UUID]) -> list[UUID]:
        """These they were given."""
        if self._span is not None and len(ids) == 1:
            self._span.set_attribute("messaging.message.id", str(ids[0]))
        return ids

    def _begin(self, tracer: Tracer) -> None:
        from opentelemetry import trace

        topics = [job.routed_topic for job in self.jobs]
        about = _about("enqueue", "send", topics, [job.task for job in self.jobs], [job.id for job in self.jobs])
        span = tracer.start_span(_name("enqueue", topics), kind=trace.SpanKind.PRODUCER, attributes=about)
        self._use: AbstractContextManager[Span] = _use(span)
        self._span = self._use.__enter__()


# --- dispatch


def note_dispatch(claims: Sequence[Claim], *, worker: str, claimed_at: float, as_child: bool = False) -> None:
    """One span for jobs that a stream takes together, from just before they were claimed (on the monotonic clock)."""
    tracer = find_tracer()
    if tracer is not None and claims:
        _unhindered(_note_dispatch, tracer, claims, worker, claimed_at, as_child)


def _note_dispatch(tracer: Tracer, claims: Sequence[Claim], worker: str, claimed_at: float, as_child: bool) -> None:  # noqa: FBT001
    from opentelemetry import trace
    from opentelemetry.context import Context

    topics = [claim.topic for claim in claims]
    about = _about("dispatch", "receive", topics, [claim.task for claim in claims], [claim.id for claim in claims])
    creations = [_creation(claim) for claim in claims[:MAX_LINKS]]
    waited = time.monotonic() - claimed_at
    tracer.start_span(
        _name("dispatch", topics),
        context=creations[0] if as_child and len(claims) == 1 else Context(),
        kind=trace.SpanKind.CLIENT,
        attributes=about | {"messaging.client.id": worker},
        links=_links(creations),
        start_time=time.time_ns() - int(waited * 1e9),
    ).end()


# --- process


class Processing:
    """Around a handler, where nobody traces: nothing."""

    def __enter__(self) -> Processing:
        return self

    def __exit__(self, *_: object) -> None:
        """It has ended."""

    def ends(self, report: Report | None, error: BaseException | None = None) -> None:
        """With this report, and this error if we have seen it ourselves."""


UNSEEN = Processing()


class TracedRun(Protocol):
    """What a span says of a run: sdk.worker.run.Run is one."""

    @property
    def claim(self) -> Claim: ...
    @property
    def charged_attempt(self) -> int: ...
    @property
    def end_reason(self) -> Enum | None: ...


def processing(run: TracedRun, *, worker: str, redaction: Redaction, as_child: bool = False) -> Processing:
    tracer = find_tracer()
    if tracer is None:
        return UNSEEN
    return _unhindered(_Seen, tracer, run, worker, redaction, as_child=as_child) or UNSEEN


class _Seen(Processing):
    def __init__(self, tracer: Tracer, run: TracedRun, worker: str, redaction: Redaction, *, as_child: bool) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        self._run = run
        self._redaction = redaction
        claim, creation = run.claim, _creation(run.claim)
        about = _about("process", "process", [claim.topic], [claim.task], [claim.id]) | {
            "messaging.client.id": worker,
            "pulse.job.attempt": run.charged_attempt,
            "pulse.job.max_attempts": claim.max_attempts,
        }
        if claim.scheduled_for is not None:
            about["pulse.schedule.scheduled_for"] = claim.scheduled_for.isoformat()
        self._span = tracer.start_span(
            _name("process", [claim.topic]),
            context=creation if as_child else Context(),  # not what the worker itself was started in
            kind=trace.SpanKind.CONSUMER,
            attributes=about,
            links=_links([creation]),
        )
        self._use = _use(self._span)

    def __enter__(self) -> Processing:
        self._use.__enter__()
        return self

    def __exit__(self, *how: Any) -> None:  # noqa: ANN401
        _unhindered(self._use.__exit__, *how)

    def ends(self, report: Report | None, error: BaseException | None = None) -> None:
        _unhindered(self._ends, report, error)

    def _ends(self, report: Report | None, error: BaseException | None) -> None:
        reason = self._run.end_reason
        if reason is not None:
            self._span.set_attribute("pulse.job.outcome", reason.name.lower())
            _set_failed(self._span, reason.name.lower(), reason.value)
        elif report is not None:
            self._span.set_attribute("pulse.job.outcome", report.outcome.value.lower())
            if report.outcome in (Outcome.FAIL, Outcome.DISCARD):
                self._log_failure(mask_report(self._redaction, report, self._run.claim.payload), error)

    def _log_failure(self, report: Report, error: BaseException | None) -> None:
        """In the words of the report, in which nothing stands that is not to be shown."""
        name, words = type(error).__qualname__ if error else _named_in(report.error), report.clean_error or ""
        _set_failed(self._span, name, words.partition("\n")[0])
        event = {"exception.type": name, "exception.message": words.removeprefix(f"{name}: ")}
        self._span.add_event("exception", event | {"exception.stacktrace": report.clean_traceback or ""})


def _use(span: Span) -> AbstractContextManager[Span]:
    """Be in it. What it says of errors we say ourselves."""
    from opentelemetry import trace

    return trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False)


def _set_failed(span: Span, name: str, words: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, words))


def _named_in(error: str) -> str:
    """Of an error that another process describes: `ValueError: no`."""
    name = error.partition(":")[0]
    return name if name.isidentifier() else OTHER
