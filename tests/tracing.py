"""A collector of spans in this process's memory, for as long as a test wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Collector:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self._exporter.get_finished_spans())


@contextmanager
def collecting() -> Iterator[Collector]:
    """As after `set_tracer_provider`, which a process can call only once."""
    collector = Collector()
    before = trace._TRACER_PROVIDER
    trace._TRACER_PROVIDER = collector.provider
    try:
        yield collector
    finally:
        trace._TRACER_PROVIDER = before


def own(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})
