"""Which spans does a job have in a trace? Those of OpenTelemetry's conventions for messaging, if the process traces.

    enqueue <topic>    PRODUCER, in the program that enqueues; its context is stored in the row, in W3C's format
    dispatch <topic>   CLIENT, in a server: from the claim until the stream of a worker sends the message
    process <topic>    CONSUMER, in the worker: the handler runs inside it

The last two link to the first: a job may run days after it was enqueued, and several times. OpenTelemetry is not
imported unless the program has imported it: a program that has not cannot have set a provider.
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
MAX_LINKS = 128  # of one span: OpenTelemetry keeps no more either
OTHER = "_OTHER"  # the conventions' name for an error without one

T = TypeVar("T")
P = ParamSpec("P")

_latest: tuple[object, Tracer] | None = None


def find_tracer() -> Tracer | None:
    """Return the tracer, or None if this process does not trace."""
    if API not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):  # the program has set no provider
        return None
    global _latest  # to make a tracer takes longer than to make a span
    if _latest is None or _latest[0] is not provider:
        _latest = provider, provider.get_tracer("pulse", __version__)
    return _latest[1]


def _try(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Call `work`, and log its errors: a job must not fail because the program's span processor or sampler does."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.warning("a span could not be recorded; the job goes on without it", exc_info=True)
        return None


# --- the context of a span, as it is stored in a row


def carry() -> Carrier | None:
    """Return the context of the current span."""
    if API not in sys.modules:
        return None
    carrier: Carrier = {}
    _propagator().inject(carrier)
    return carrier or None


@contextmanager
def carried(carrier: Carrier | None) -> Iterator[None]:
    """Make the span of another process the current one within the block."""
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
    """Return the trace id of the current span, or an empty text."""
    if API not in sys.modules:
        return ""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def trace_id_of(stored: str | None) -> str:
    """Return the trace id in the context that a row has, or an empty text. Any program may have written the context."""
    parts = _read(stored).get("traceparent", "").split("-") if stored else []
    return parts[1] if len(parts) >= 4 and len(parts[1]) == 32 and parts[1].isalnum() and parts[1].isascii() else ""


def _propagator() -> Any:  # noqa: ANN401
    """Return the propagator of W3C, whose format the column has, whichever the program uses elsewhere."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _read(stored: str | None) -> Carrier:
    try:
        return msgspec.json.decode(stored or "{}", type=Carrier)
    except msgspec.DecodeError:
        return {}


def _creation_context(claim: Claim) -> Context:
    """Return the context that the job was enqueued in, or an empty one if the row has none that can be read."""
    context: Context = _propagator().extract(_read(claim.trace))
    return context


def _links(creations: Sequence[Context]) -> list[Link]:
    from opentelemetry import trace

    contexts = (trace.get_current_span(each).get_span_context() for each in creations)
    distinct = {(each.trace_id, each.span_id): each for each in contexts if each.is_valid}  # a batch may share one
    return [trace.Link(each) for each in distinct.values()]


def _attributes(operation: str, kind: str, topics: Sequence[str], tasks: Sequence[str], ids: Sequence[object]) -> Any:  # noqa: ANN401
    """Return the attributes of any of these spans; for a batch, those that all of its jobs share."""
    attributes: dict[str, Any] = {
        "messaging.system": "pulse",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if len(set(topics)) == 1:
        attributes["messaging.destination.name"] = topics[0]
    if len(set(tasks)) == 1:
        attributes["pulse.task.name"] = tasks[0]
    if len(tasks) > 1:
        attributes["messaging.batch.message_count"] = len(tasks)
    elif ids and ids[0] is not None:
        attributes["messaging.message.id"] = str(ids[0])
    return attributes


def _span_name(operation: str, topics: Sequence[str]) -> str:
    return f"{operation} {topics[0]}" if len(set(topics)) == 1 else operation


# --- enqueue


class Enqueueing:
    """A context manager around an enqueue. Within it, `jobs` are those given, with the context of its span."""

    __slots__ = ("_parent", "_span", "_use", "jobs")

    def __init__(self, jobs: list[NewJob], *, parent: UUID | None = None) -> None:
        self.jobs = jobs
        self._parent = parent  # the job whose handler enqueues these
        self._span: Span | None = None

    def __enter__(self) -> Enqueueing:
        tracer = find_tracer() if self.jobs else None
        if tracer is not None:
            _try(self._begin, tracer)
        origin = self._origin()
        if origin:
            self.jobs = [job if job.trace else msgspec.structs.replace(job, trace=origin) for job in self.jobs]
        return self

    def _origin(self) -> Carrier:
        """Return the context for these jobs: the span, and the job whose handler enqueues them."""
        carrier = _try(carry) if self._span is not None else None
        parent = {} if self._parent is None else {"parent": str(self._parent)}
        return (carrier or {}) | parent

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401
        if self._span is None:
            return
        if kind is not None:
            _set_failed(self._span, kind.__qualname__, "")  # without its message, which the caller gets
        _try(self._use.__exit__, kind, error, trace)

    def sent(self, ids: list[UUID]) -> list[UUID]:
        """Record the ids that the jobs were given."""
        if self._span is not None and len(ids) == 1:
            self._span.set_attribute("messaging.message.id", str(ids[0]))
        return ids

    def _begin(self, tracer: Tracer) -> None:
        from opentelemetry import trace

        topics = [job.routed_topic for job in self.jobs]
        attributes = _attributes(
            "enqueue", "send", topics, [job.task for job in self.jobs], [job.id for job in self.jobs]
        )
        span = tracer.start_span(_span_name("enqueue", topics), kind=trace.SpanKind.PRODUCER, attributes=attributes)
        self._use: AbstractContextManager[Span] = _use(span)
        self._span = self._use.__enter__()


# --- dispatch


def note_dispatch(claims: Sequence[Claim], *, worker: str, claimed_at: float, as_child: bool = False) -> None:
    """Record one span for jobs that a stream sends together; `claimed_at` is on the monotonic clock."""
    tracer = find_tracer()
    if tracer is not None and claims:
        _try(_note_dispatch, tracer, claims, worker, claimed_at, as_child)


def _note_dispatch(tracer: Tracer, claims: Sequence[Claim], worker: str, claimed_at: float, as_child: bool) -> None:  # noqa: FBT001
    from opentelemetry import trace
    from opentelemetry.context import Context

    topics = [claim.topic for claim in claims]
    attributes = _attributes(
        "dispatch", "receive", topics, [claim.task for claim in claims], [claim.id for claim in claims]
    )
    creations = [_creation_context(claim) for claim in claims[:MAX_LINKS]]
    waited = time.monotonic() - claimed_at
    tracer.start_span(
        _span_name("dispatch", topics),
        context=creations[0] if as_child and len(claims) == 1 else Context(),
        kind=trace.SpanKind.CLIENT,
        attributes=attributes | {"messaging.client.id": worker},
        links=_links(creations),
        start_time=time.time_ns() - int(waited * 1e9),
    ).end()


# --- process


class Processing:
    """A context manager around a handler that records nothing, for processes that do not trace."""

    def __enter__(self) -> Processing:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def ends(self, report: Report | None, error: BaseException | None = None) -> None:
        """Record the report of the handler, and its error if it was raised in this process."""


UNTRACED = Processing()


class TracedRun(Protocol):
    """The facts about a run that a span records, for example of a sdk.worker.run.Run."""

    @property
    def claim(self) -> Claim: ...
    @property
    def charged_attempt(self) -> int: ...
    @property
    def end_reason(self) -> Enum | None: ...


def processing(run: TracedRun, *, worker: str, redaction: Redaction, as_child: bool = False) -> Processing:
    tracer = find_tracer()
    if tracer is None:
        return UNTRACED
    return _try(_TracedProcessing, tracer, run, worker, redaction, as_child=as_child) or UNTRACED


class _TracedProcessing(Processing):
    def __init__(self, tracer: Tracer, run: TracedRun, worker: str, redaction: Redaction, *, as_child: bool) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        self._run = run
        self._redaction = redaction
        claim, creation = run.claim, _creation_context(run.claim)
        attributes = _attributes("process", "process", [claim.topic], [claim.task], [claim.id]) | {
            "messaging.client.id": worker,
            "pulse.job.attempt": run.charged_attempt,
            "pulse.job.max_attempts": claim.max_attempts,
        }
        if claim.scheduled_for is not None:
            attributes["pulse.schedule.scheduled_for"] = claim.scheduled_for.isoformat()
        self._span = tracer.start_span(
            _span_name("process", [claim.topic]),
            context=creation if as_child else Context(),  # not the context that the worker was started in
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=_links([creation]),
        )
        self._use = _use(self._span)

    def __enter__(self) -> Processing:
        self._use.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401
        _try(self._use.__exit__, *error)

    def ends(self, report: Report | None, error: BaseException | None = None) -> None:
        _try(self._ends, report, error)

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
        """Record the error of a report, from which redacted values are masked already."""
        name, message = type(error).__qualname__ if error else _error_name(report.error), report.clean_error or ""
        _set_failed(self._span, name, message.partition("\n")[0])
        event = {"exception.type": name, "exception.message": message.removeprefix(f"{name}: ")}
        self._span.add_event("exception", event | {"exception.stacktrace": report.clean_traceback or ""})


def _use(span: Span) -> AbstractContextManager[Span]:
    """Return a context manager that makes the span current. It records no errors, as this module does so itself."""
    from opentelemetry import trace

    return trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False)


def _set_failed(span: Span, name: str, message: str) -> None:
    from opentelemetry.trace import Status, StatusCode

    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, message))


def _error_name(error: str) -> str:
    """Return the type in an error that another process has described, such as `ValueError: no`."""
    name = error.partition(":")[0]
    return name if name.isidentifier() else OTHER
