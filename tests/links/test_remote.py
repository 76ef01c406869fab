"""Does a client find a server that answers, show who it is, and raise what the engine would have raised?"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from grpc import StatusCode
from grpc.aio import AioRpcError, Metadata

from pulse import Context, Job, Pulse, Retry
from pulse.engine.engine import Engine
from pulse.links.opening import open_link
from pulse.links.remote.errors import KINDS, make_error, read_error
from pulse.links.remote.job_stream import JobStream
from pulse.model import errors
from pulse.model.errors import (
    BatchTooLarge,
    Forbidden,
    InvalidOption,
    InvalidPayload,
    JobNotFound,
    LimitExceeded,
    PulseError,
    ServerUnreachable,
    Unauthenticated,
)
from pulse.model.jobs import JobStatus, NewJob
from pulse.sdk.worker.worker import Worker
from pulse.server import open_server
from pulse.settings import Settings
from tests.factories import a_new_job, a_report
from tests.sdk.apps_here import working
from tests.served import Served
from tests.waiting import connected, until

UNKNOWN = UUID("01998e5c-7a40-7bd2-a3ea-0f2ce83f7000")


@pytest.fixture
def served(settings: Settings) -> Iterator[Served]:
    found = Served(settings)
    yield found
    found.stop()


@pytest.fixture
def through(served: Served) -> Settings:
    return served.start()


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_what_is_submitted_is_there(through: Settings, engine: Engine) -> None:
    jobs = [
        NewJob(
            task="mail",
            payload='{"to": "ada"}',
            priority=7,
            delay=timedelta(minutes=5),
            timeout=timedelta(seconds=1.5),
            tags=("a", "b"),
            unique_key="k",
            unique_window=timedelta(hours=1),
            trace={"traceparent": "x"},
        )
    ]
    async with open_link(through) as link:
        [first] = await link.submit(jobs)
        [second] = await link.submit(jobs)
        seen = await link.get(first.id)

    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert seen == await engine.jobs.get(first.id)
    assert (seen.status, seen.priority, seen.timeout) == (JobStatus.SCHEDULED, 7, timedelta(seconds=1.5))


async def test_what_the_server_cannot_read_is_an_error_and_the_rest_is_done(through: Settings, engine: Engine) -> None:
    """No item of this client's is such a one; and if one were, it would not be taken for lost."""
    await engine.jobs.submit([a_new_job() for _ in range(2)])
    claims = await engine.claims.claim("mail", worker="local/w1", slots=2)
    good, bad = [a_report(claim) for claim in claims]
    msgspec.structs.force_setattr(bad, "result", "{")

    async with open_link(through) as link:
        link._worker = "w1"
        with pytest.raises(InvalidPayload, match="result is not JSON"):
            await link.report([good, bad])

    found = [(await engine.jobs.get(claim.id)).status for claim in claims]
    assert found == [JobStatus.COMPLETED, JobStatus.RUNNING]


async def test_a_server_that_does_not_answer_is_passed_over(through: Settings) -> None:
    url = f"grpc://{nobody()},{str(through.server_url).replace('grpc://', '')}"
    for _ in range(4):  # whichever comes first
        async with open_link(replace(through, server_url=url)) as link:
            [job] = await link.submit([NewJob(task="mail")])
            assert (await link.get(job.id)).status is JobStatus.PENDING


async def test_it_goes_on_when_the_server_in_use_goes(served: Served, settings: Settings) -> None:
    async with open_link(served.start()) as link:
        for _ in range(3):
            [job] = await link.submit([NewJob(task="mail")])
            await asyncio.to_thread(served.restart)
            assert (await link.get(job.id)).id == job.id


async def test_where_nobody_answers_it_says_so_when_patience_has_run_out(settings: Settings) -> None:
    nowhere = replace(settings, server_url=f"grpc://{nobody()}", patience=timedelta(seconds=0.5))
    started = time.monotonic()

    with pytest.raises(ServerUnreachable, match=r"no answer from pulsed at 127\.0\.0\.1:\d+"):
        async with open_link(nowhere):
            pass

    assert time.monotonic() - started < 5


async def test_errors_are_those_of_the_engine(through: Settings) -> None:
    async with open_link(through) as link:
        with pytest.raises(JobNotFound, match="retention has removed it"):
            await link.get(UNKNOWN)
        with pytest.raises(InvalidOption, match="U\\+0000"):
            await link.cancel(UNKNOWN, reason="\x00")


@pytest.mark.parametrize("kind", list(KINDS.values()), ids=list(KINDS))
def test_every_error_can_come_back(kind: type[PulseError]) -> None:
    made = make_error(kind, "as the server said it")

    assert type(made) is kind
    assert str(made) == "as the server said it"


def test_every_code_means_one_error() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PulseError)]

    assert set(KINDS.values()) == set(kinds)


# --- who it is


@asynccontextmanager
async def token(engine: Engine, *scopes: str) -> AsyncIterator[str]:
    _, secret = await engine.tokens.create("shop", list(scopes))
    yield secret


async def test_it_shows_its_token(served: Served, engine: Engine) -> None:
    async with token(engine, "submit:mail") as secret:
        through = replace(served.start(), patience=timedelta(seconds=1))
        async with open_link(replace(through, token=secret)) as link:
            [job] = await link.submit([NewJob(task="mail")])
            with pytest.raises(Forbidden, match=r"lacks the scope submit:billing, .*; it has submit:mail"):
                await link.submit([NewJob(task="billing")])
        for wrong, said in [(None, "no token"), ("pulse_" + "x" * 43, "not known here")]:
            async with open_link(replace(through, token=wrong)) as link:
                with pytest.raises(Unauthenticated, match=said):
                    await link.get(job.id)

    assert [count.topic for count in await engine.jobs.counts()] == ["mail"]


async def test_a_token_names_its_workers(served: Served, engine: Engine) -> None:
    async with token(engine, "admin") as secret:
        app = Pulse(settings=replace(served.start(), token=secret))

        @app.task(name="mail")
        async def mail() -> None: ...

        async with working(app) as worker:
            handle = await mail.aenqueue()
            await handle.aresult(10)
            assert (await handle.ajob()).locked_by == f"shop/{worker.name}"


# --- a worker's troubles


async def test_one_that_calls_too_often_is_answered_a_little_later(settings: Settings, engine: Engine) -> None:
    async with token(engine, "admin") as secret:
        served = Served(replace(settings, calls_per_second=10), count=1)
        try:
            through = replace(served.start(), token=secret)
            async with open_link(through) as link:
                for _ in range(20):
                    await link.submit([NewJob(task="mail")])
        finally:
            served.stop()

    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 20}


async def test_results_go_to_where_the_stream_is(through: Settings) -> None:
    """Or the places that became free with them would be news to nobody for seconds."""
    app = Pulse(settings=through)

    @app.task
    async def quick() -> None: ...

    async with working(app, concurrency=2) as worker:
        await until(worker.can_get_jobs)
        link: Any = worker._link
        link._servers.give_up(link._servers.current)  # as after a call that timed out
        async with asyncio.timeout(5):
            for handle in await app.aenqueue_many([quick.call()] * 50):
                await handle.aresult(5)


async def test_what_was_on_its_way_when_its_stream_broke_is_given_back_by_one_that_stops(
    through: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Pulse(settings=through)

    @app.task
    async def never_begun() -> None: ...

    read = JobStream._read

    async def break_after_hello(stream: JobStream, call: Any) -> Any:
        if stream.is_open:
            await engine.jobs.submit([never_begun.call().job])
            await until(lambda: _is_running(engine, never_begun.topic))
            stream._servers.give_up(stream._servers.current)
            worker.stop()
            raise ServerUnreachable("broken")
        return await read(stream, call)

    monkeypatch.setattr(JobStream, "_read", break_after_hello)
    worker = Worker(app)
    await asyncio.wait_for(worker.run(), 20)
    app.close()

    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 1}
    [job] = (await engine.jobs.list_page()).jobs
    assert job.attempt - job.refunded == 0


async def _is_running(engine: Engine, topic: str) -> bool:
    return any(count.counts.get(JobStatus.RUNNING) for count in await engine.jobs.counts() if count.topic == topic)


# --- sizes

LARGE = "x" * 1_000_000


async def test_more_jobs_than_a_message_holds_are_refused_before_they_are_sent(served: Served, engine: Engine) -> None:
    """All of them or none: so they are not sent in parts. The server's limit counts, also where ours is higher."""
    through = served.start(message_limit=4 << 20)
    jobs = [NewJob(task="mail", payload=f'"{LARGE}"') for _ in range(5)]

    async with open_link(through) as link:
        with pytest.raises(BatchTooLarge, match=r"at most 4194304 bytes of jobs, not 50\d{5}:"):
            await link.submit(jobs)
        assert (await engine.jobs.list_page()).jobs == []
        assert len(await link.submit(jobs[:4])) == 4


async def test_progress_of_many_jobs_is_sent_in_messages_that_are_taken(served: Served) -> None:
    app = Pulse(settings=served.start(message_limit=4 << 20))
    go_on = asyncio.Event()

    @app.task
    async def work(ctx: Context) -> None:
        ctx.progress(LARGE)
        await go_on.wait()

    handles = await app.aenqueue_many(work.call() for _ in range(6))
    async with working(app):
        for handle in handles:
            await until(lambda handle=handle: _has_progress(handle))  # type: ignore[misc]
        go_on.set()
        for handle in handles:
            await handle.aresult(10)


async def _has_progress(handle: Any) -> bool:
    return bool(await handle.aprogress() == LARGE)


@pytest.mark.parametrize(
    ("status", "details", "code", "kind"),
    [
        (StatusCode.RESOURCE_EXHAUSTED, "SERVER: Received message larger than max (5 vs. 4)", None, BatchTooLarge),
        (StatusCode.RESOURCE_EXHAUSTED, "slow down", "limit_exceeded", LimitExceeded),
        (StatusCode.RESOURCE_EXHAUSTED, "a proxy's own limit", None, ServerUnreachable),
        (StatusCode.INTERNAL, "SubmitJobs failed; the server's log says why", "internal", PulseError),
        (StatusCode.INTERNAL, "Received RST_STREAM with error code 2", None, ServerUnreachable),
    ],
)
def test_what_grpc_itself_says_is_told_from_what_a_server_says(
    status: StatusCode, details: str, code: str | None, kind: type[PulseError]
) -> None:
    trailers = Metadata(*[("pulse-error", code)] if code else [])

    found = read_error(AioRpcError(status, Metadata(), trailers, details))

    assert type(found) is kind
    assert str(found).startswith(details)


# --- dead letters


@asynccontextmanager
async def stopping(served: Served) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await asyncio.to_thread(served.stop)


def an_app(settings: Settings, told: list[Job]) -> Pulse:
    app = Pulse(settings=settings)

    @app.task(name="fail", topic="mail", retry=Retry(1))
    async def fail() -> None:
        raise ValueError("x")

    @app.on_dead_letter
    async def tell(job: Job) -> None:
        told.append(job)

    return app


QUICK: dict[str, Any] = {
    "lease": timedelta(milliseconds=600),
    "heartbeat": timedelta(milliseconds=200),
    "watchdog": timedelta(milliseconds=100),
    "tick": timedelta(milliseconds=50),
}


async def test_a_token_that_may_only_work_is_enough_to_tell_of_dead_letters(served: Served, engine: Engine) -> None:
    _, secret = await engine.tokens.create("mailer", ["work:mail"])
    told: list[Job] = []
    app = an_app(replace(served.start(), token=secret), told)
    [job] = await engine.jobs.submit([NewJob(task="fail", topic="mail", max_attempts=1)])

    async with working(app):
        await until(lambda: _is(told))

    assert [(each.id, each.status, each.last_error) for each in told] == [
        (job.id, JobStatus.DEAD_LETTERED, "ValueError: x")
    ]


async def test_of_several_workers_one_is_told_what_a_server_finds(settings: Settings, engine: Engine) -> None:
    """By a server that has none of them, too: it asks the others. Here one whose lease and one whose deadline ended."""
    _, secret = await engine.tokens.create("mailer", ["work:mail"])
    told: list[Job] = []
    served = Served(settings, count=1)
    through = replace(served.start(), token=secret)
    [lost] = await engine.jobs.submit([NewJob(task="fail", topic="mail", max_attempts=1)])
    await engine.claims.claim("mail", worker="one that died", slots=1)

    async with stopping(served), working(an_app(through, told)) as one, working(an_app(through, told)) as two:
        await until(one.can_get_jobs)
        await until(two.can_get_jobs)
        await until(lambda: _is(all(server._engine.notifications.is_listening for server in served.servers)))
        soon = await engine.read_clock() + timedelta(milliseconds=200)
        late = NewJob(task="fail", topic="mail", delay=timedelta(hours=1), deadline=soon)
        [expired] = await engine.jobs.submit([late])
        async with (
            connected(settings.database_url) as conn,
            open_server(replace(settings, listen="127.0.0.1:0", **QUICK)),
        ):
            await conn.execute("update pulse.jobs set lease_until = now() - interval '1 minute' where id = $1", lost.id)
            await until(lambda: _is(len(told) >= 2))

    assert {each.id: each.last_error for each in told} == {
        lost.id: "worker lease expired",
        expired.id: "deadline passed before it could run",
    }
    assert len(told) == 2


async def _is(what: object) -> bool:
    return bool(what)
