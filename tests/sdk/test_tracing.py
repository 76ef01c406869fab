"""Does a trace tell of a job what happened, from its enqueue to its end, straight to Postgres and through servers?"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import SpanKind, StatusCode

from pulse import Context, Discard, JobStatus, Pulse, Retry, Snooze
from pulse.engine.engine import Engine
from pulse.model.jobs import NewJob
from pulse.settings import Settings
from pulse.telemetry.tracing import trace_id_of
from tests.sdk.apps import traced
from tests.sdk.apps_here import closing, working
from tests.tracing import Collector, collecting, linked, own, said
from tests.waiting import until

OF_A_JOB = {"messaging.system": "pulse", "messaging.destination.name": "mail", "pulse.task.name": "send"}
GIVEN = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}


@pytest.fixture
def spans() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def app(settings: Settings) -> Pulse:
    return Pulse(settings=settings)


async def until_so(is_so: Callable[[], bool]) -> None:
    async def ask() -> bool:
        return is_so()

    await until(ask)


def goes_through_servers(settings: Settings) -> bool:
    return settings.server_url is not None


async def test_a_job_is_one_story_from_its_enqueue_to_its_end(app: Pulse, spans: Collector) -> None:
    tracer = trace.get_tracer("shop")

    @app.task(name="send", topic="mail")
    async def send(ctx: Context, to: str) -> str:
        with tracer.start_as_current_span("smtp"):
            return to

    async with working(app) as worker:
        with tracer.start_as_current_span("checkout"):
            handle = await send.aenqueue("ada")
        await handle.aresult(10)
        await until_so(lambda: bool(spans.named("process mail")))
        worker_name = worker.name

    checkout, enqueue, process, smtp = (
        spans.one(name) for name in ("checkout", "enqueue mail", "process mail", "smtp")
    )
    of_it = OF_A_JOB | {"messaging.message.id": str(handle.id)}
    assert enqueue.kind is SpanKind.PRODUCER
    assert enqueue.parent is not None
    assert enqueue.parent.span_id == checkout.context.span_id
    assert said(enqueue) == of_it | {"messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
    assert process.kind is SpanKind.CONSUMER
    assert (process.parent, linked(process)) == (None, [own(enqueue)])
    assert process.context.trace_id != enqueue.context.trace_id
    assert said(process) == of_it | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": worker_name,
        "pulse.job.attempt": 1,
        "pulse.job.max_attempts": 3,
        "pulse.job.outcome": "complete",
    }
    assert process.status.status_code is StatusCode.UNSET
    assert smtp.parent is not None
    assert own(process) == (smtp.parent.trace_id, smtp.parent.span_id)
    if goes_through_servers(app.settings):
        dispatch = spans.one("dispatch mail")
        assert (dispatch.kind, dispatch.parent, linked(dispatch)) == (SpanKind.CLIENT, None, [own(enqueue)])
        assert said(dispatch) == of_it | {
            "messaging.operation.name": "dispatch",
            "messaging.operation.type": "receive",
            "messaging.client.id": f"local/{worker_name}",
        }
        assert enqueue.start_time is not None
        assert dispatch.start_time is not None
        assert dispatch.end_time is not None
        assert process.end_time is not None
        assert enqueue.start_time <= dispatch.start_time <= dispatch.end_time <= process.end_time
    else:
        assert not spans.named("dispatch mail")


async def test_a_retried_job_has_a_span_for_each_attempt_that_links_to_one_enqueue(
    app: Pulse, spans: Collector
) -> None:
    @app.task(name="send", topic="mail", retry=Retry(2, "fixed", 0))
    def send(ctx: Context) -> None:
        if not ctx.last_attempt:
            raise ValueError("no such address")

    async with working(app):
        await (await send.aenqueue()).aresult(10)
        await until_so(lambda: len(spans.named("process mail")) == 2)

    first, second = spans.named("process mail")
    enqueue = spans.one("enqueue mail")
    assert linked(first) == linked(second) == [own(enqueue)]
    assert [said(each)["pulse.job.attempt"] for each in (first, second)] == [1, 2]
    assert [said(each)["pulse.job.outcome"] for each in (first, second)] == ["fail", "complete"]
    assert (said(first)["error.type"], first.status.status_code) == ("ValueError", StatusCode.ERROR)
    assert first.status.description == "ValueError: no such address"
    [event] = first.events
    assert dict(event.attributes or {})["exception.message"] == "no such address"
    assert "error.type" not in said(second)


async def test_what_is_redacted_stands_in_no_span(app: Pulse, spans: Collector) -> None:
    @app.task(topic="mail", retry=1)
    async def pay(card: str) -> None:
        raise ValueError(f"declined: {card}")

    @app.task(topic="post", retry=1)
    def pay_in_thread(card: str) -> None:
        raise ValueError(f"declined: {card}")

    async with working(app, redact="card"):
        await app.aenqueue_many([pay.call("4111-1111"), pay_in_thread.call("4111-1111")])
        await until_so(lambda: bool(spans.named("process mail")) and bool(spans.named("process post")))

    for name in ("process mail", "process post"):
        assert spans.one(name).status.description.startswith("ValueError: declined: ")  # type: ignore[union-attr]
        assert "4111" not in spans.one(name).to_json()


async def test_a_verdict_is_told_as_what_it_is(app: Pulse, spans: Collector) -> None:
    @app.task(topic="mail")
    async def later() -> None:
        raise Snooze("1h")

    @app.task(topic="post")
    async def never() -> None:
        raise Discard("nobody wants it")

    async with working(app):
        await app.aenqueue_many([later.call(), never.call()])
        await until_so(lambda: bool(spans.named("process mail")) and bool(spans.named("process post")))

    snoozed, discarded = spans.one("process mail"), spans.one("process post")
    assert (said(snoozed)["pulse.job.outcome"], snoozed.status.status_code) == ("snooze", StatusCode.UNSET)
    assert said(discarded)["pulse.job.outcome"] == "discard"
    assert (said(discarded)["error.type"], discarded.status.description) == ("Discard", "nobody wants it")


async def test_a_run_that_is_ended_from_outside_says_why(app: Pulse, spans: Collector) -> None:
    @app.task(name="send", topic="mail", timeout=0.05, retry=1)
    async def send() -> None:
        await asyncio.sleep(60)

    async with working(app):
        await send.aenqueue()
        await until_so(lambda: bool(spans.named("process mail")))

    process = spans.one("process mail")
    assert (said(process)["error.type"], said(process)["pulse.job.outcome"]) == ("timeout", "timeout")
    assert process.status.description == "timed out"


async def test_handlers_in_threads_within_middlewares_are_inside_too(app: Pulse, spans: Collector) -> None:
    @app.middleware
    async def around(ctx: Context, run: Any) -> Any:
        return await run()

    @app.task(topic="mail")
    def where() -> str:
        return trace.format_trace_id(trace.get_current_span().get_span_context().trace_id)

    async with working(app):
        found = await (await where.aenqueue()).aresult(10)
        await until_so(lambda: bool(spans.named("process mail")))

    assert found == trace.format_trace_id(spans.one("process mail").context.trace_id)


async def test_handlers_in_processes_are_inside_a_span_of_their_worker(settings: Settings, spans: Collector) -> None:
    app = traced.app
    app.settings = settings
    async with working(app, processes=1):
        found = await (await traced.where.aenqueue()).aresult(20)
        await traced.fail.aenqueue()
        await until_so(lambda: bool(spans.named(f"process {traced.fail.topic}")))

    process, failed = spans.one(f"process {traced.where.topic}"), spans.one(f"process {traced.fail.topic}")
    assert found == trace.format_trace_id(process.context.trace_id)
    assert (said(failed)["error.type"], said(failed)["pulse.job.outcome"]) == ("LookupError", "fail")


@pytest.mark.parametrize("is_traced", [False, True])
async def test_a_job_that_a_handler_enqueues_knows_its_parent(app: Pulse, engine: Engine, is_traced: bool) -> None:
    @app.task(name="child")
    async def child() -> None: ...

    @app.task(name="parent")
    async def parent() -> str:
        return str((await child.aenqueue()).id)

    async with working(app):
        if is_traced:
            with collecting():
                made_by = await parent.aenqueue()
                made = await made_by.aresult(10)
        else:
            made_by = await parent.aenqueue()
            made = await made_by.aresult(10)

    kept = json.loads((await engine.jobs.get(UUID(made))).trace or "{}")
    assert kept["parent"] == str(made_by.id)
    assert ("traceparent" in kept) == is_traced
    assert '"parent"' not in ((await engine.jobs.get(made_by.id)).trace or "")


async def test_a_batch_is_one_span_that_all_of_it_links_to(app: Pulse, spans: Collector) -> None:
    @app.task(topic="mail")
    async def send(n: int) -> None: ...

    handles = await app.aenqueue_many(send.call(n) for n in range(5))
    async with working(app):
        for handle in handles:
            await handle.aresult(10)
        await until_so(lambda: len(spans.named("process mail")) == 5)

    enqueue = spans.one("enqueue mail")
    assert said(enqueue)["messaging.batch.message_count"] == 5
    assert "messaging.message.id" not in said(enqueue)
    assert all(linked(process) == [own(enqueue)] for process in spans.named("process mail"))
    if goes_through_servers(app.settings):
        dispatched = [said(span).get("messaging.batch.message_count", 1) for span in spans.named("dispatch mail")]
        assert sum(dispatched) == 5
        assert all(linked(span) == [own(enqueue)] for span in spans.named("dispatch mail"))


async def test_the_trace_of_a_caller_stands_and_may_be_gone_on_with(app: Pulse, spans: Collector) -> None:
    @app.task(name="send", topic="mail")
    async def send() -> None: ...

    async with working(app, trace_as_child=True):
        await app.asubmit([NewJob(task="send", topic="mail", trace=GIVEN)])
        await until_so(lambda: bool(spans.named("process mail")))

    process = spans.one("process mail")
    assert process.parent is not None
    assert process.parent.span_id == int("b7ad6b7169203331", 16)
    assert process.context.trace_id == int("0af7651916cd43dd8448eb211c80319c", 16)


@pytest.mark.parametrize("kept", [{"traceparent": "x"}, {"traceparent": "00-0-0-0"}, {"b": "c"}])
async def test_a_trace_that_cannot_be_read_hinders_nobody(app: Pulse, spans: Collector, kept: dict[str, str]) -> None:
    @app.task(name="send", topic="mail")
    async def send() -> None: ...

    async with working(app):
        await app.asubmit([NewJob(task="send", topic="mail", trace=kept)])
        await until_so(lambda: bool(spans.named("process mail")))

    assert linked(spans.one("process mail")) == []


async def test_an_enqueue_within_the_callers_transaction_keeps_its_context(
    app: Pulse, spans: Collector, engine: Engine
) -> None:
    @app.task(name="send", topic="mail")
    async def send() -> None: ...

    conn = await asyncpg.connect(app.settings.database_url)
    with closing(app):
        handle = await send.using(conn=conn).aenqueue()
    await conn.close()

    kept = json.loads((await engine.jobs.get(handle.id)).trace or "")
    enqueue = spans.one("enqueue mail")
    assert list(kept) == ["traceparent"]
    assert kept["traceparent"].startswith(f"00-{enqueue.context.trace_id:032x}-{enqueue.context.span_id:016x}-")
    assert said(enqueue)["messaging.message.id"] == str(handle.id)


async def test_an_enqueue_that_fails_says_so(app: Pulse, spans: Collector) -> None:
    @app.task(name="send", topic="mail")
    async def send() -> None: ...

    with pytest.raises(Exception, match="connection"):
        await send.using(conn=object()).aenqueue()

    enqueue = spans.one("enqueue mail")
    assert (said(enqueue)["error.type"], enqueue.status.status_code) == ("UnknownConnection", StatusCode.ERROR)


async def test_a_span_that_fails_hinders_no_job(app: Pulse, spans: Collector) -> None:
    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("broken when it starts")

    class BrokenLater(SpanProcessor):
        def on_end(self, span: Any) -> None:
            raise RuntimeError("broken when it ends")

    @app.task(name="send", topic="mail")
    async def send() -> str:
        return "sent"

    async with working(app):
        for broken in (BrokenLater(), Broken()):
            spans.provider.add_span_processor(broken)
            assert await (await send.aenqueue()).aresult(10) == "sent"


async def test_where_nobody_traces_nothing_is_kept(app: Pulse, engine: Engine) -> None:
    @app.task(name="send", topic="mail")
    async def send() -> None: ...

    async with working(app):
        handle = await send.aenqueue()
        await handle.aresult(10)

    job = await engine.jobs.get(handle.id)
    assert (job.status, job.trace) == (JobStatus.COMPLETED, None)


def test_a_program_that_does_not_trace_imports_nothing_of_it() -> None:
    modules = "import pulse, pulse.sdk.worker.worker, pulse.server, sys"
    check = f"{modules}; print([m for m in sys.modules if 'opentelemetry' in m])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60)

    assert found.stdout == "[]\n"


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        (json.dumps(GIVEN), "0af7651916cd43dd8448eb211c80319c"),
        (None, ""),
        ("[1]", ""),
        ('{"traceparent": "a-b-c-d"}', ""),
    ],
)
def test_a_row_tells_its_trace(kept: str | None, found: str) -> None:
    assert trace_id_of(kept) == found
