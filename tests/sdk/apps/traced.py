"""A task that tells, from a process of its own, which trace it runs in."""

from __future__ import annotations

from opentelemetry import trace

from pulse import Pulse

app = Pulse()


@app.task(executor="process")
def where() -> str:
    return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)


@app.task(executor="process", retry=1)
def fail() -> None:
    raise LookupError("not in this process")
