"""Does a worker run what it is given, report what became of it, and live on whatever a handler does?"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest

from pulse import Context, Discard, Job, JobStatus, Pulse, Retry, RetryIn, Snooze
from pulse.engine.engine import Engine
from pulse.links.direct import DirectLink
from pulse.model.errors import InvalidOption, InvalidResult, JobCancelled, JobFailed, LeaseLost, ResultTimeout
from pulse.model.jobs import NewJob
from pulse.sdk.worker.heartbeats import LAG_LIMIT
from pulse.sdk.worker.run import EndReason, Run
from pulse.sdk.worker.worker import Worker
from pulse.settings import Settings
from tests.sdk.apps_here import closing, working
from tests.waiting import until

AT_ONCE = Retry(2, "fixed", 0)


@pytest.fixture
def app(settings: Settings) -> Pulse:
    return Pulse(settings=settings)


# --- running


async def test_an_async_task_runs_and_its_result_comes_back(app: Pulse) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with working(app):
        assert await (await add.aenqueue(1, 2)).aresult(10) == 3


async def test_a_result_that_does_not_fit_its_annotation_is_refused_by_name(app: Pulse) -> None:
    @app.task(name="shop.wrong")
    def wrong() -> int:
        return "x"  # type: ignore[return-value]

    async with working(app):
        handle = await wrong.aenqueue()
        with pytest.raises(InvalidResult, match=r"'shop.wrong'.*expected int, got str") as refused:
            await handle.aresult(10)
        with pytest.raises(InvalidResult, match=str(handle.id)):
            await asyncio.to_thread(handle.result, 10)
        assert (await handle.ajob()).status is JobStatus.COMPLETED
    assert str(handle.id) in str(refused.value)


async def test_a_result_that_json_has_no_number_for_makes_a_dead_letter(app: Pulse) -> None:
    @app.task(retry=AT_ONCE)
    def mean() -> float:
        return float("nan")

    async with working(app):
        with pytest.raises(JobFailed, match=r"the handler finished, but .* must be a finite number, not nan"):
            await (await mean.aenqueue()).aresult(10)


async def test_a_sync_task_runs_in_a_thread_of_its_own(app: Pulse) -> None:
    @app.task
    def where() -> str:
        return threading.current_thread().name

    async with working(app):
        assert (await (await where.aenqueue()).aresult(10)).startswith("pulse handler")


async def test_the_result_can_be_waited_for_from_sync_code(app: Pulse) -> None:
    @app.task
    async def nothing() -> None: ...

    def outside() -> tuple[None, JobStatus]:
        handle = nothing.enqueue()
        return handle.result(10), handle.status()

    async with working(app):
        assert await asyncio.to_thread(outside) == (None, JobStatus.COMPLETED)


async def test_a_context_knows_its_job(app: Pulse) -> None:
    @app.task(retry=Retry(5))
    async def tell(ctx: Context, n: int) -> tuple[str, str, str, int, int, bool]:
        return str(ctx.job_id), ctx.task, ctx.topic, ctx.attempt, ctx.max_attempts, ctx.last_attempt

    async with working(app):
        handle = await tell.using(topic=tell.topic).aenqueue(1)
        assert await handle.aresult(10) == (str(handle.id), tell.name, tell.topic, 1, 5, False)


async def test_slots_bound_what_runs_at_a_time(app: Pulse) -> None:
    running = most = 0

    @app.task
    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    handles = await app.aenqueue_many([count.call()] * 30)
    async with working(app, concurrency=4):
        for handle in handles:
            await handle.aresult(10)

    assert most == 4


async def test_a_worker_takes_only_the_topics_it_was_given(app: Pulse, settings: Settings) -> None:
    @app.task
    async def one() -> None: ...

    @app.task
    async def two() -> None: ...

    mine, others = await one.aenqueue(), await two.aenqueue()
    worker = Worker(app, topics=[one.topic], settings=settings)
    life = asyncio.create_task(worker.run())
    await mine.aresult(10)
    worker.stop()
    await life

    assert await others.astatus() is JobStatus.PENDING
    app.close()


def test_an_app_without_tasks_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no tasks"):
        Worker(Pulse())


async def test_a_renamed_task_still_runs_jobs_of_its_old_name(app: Pulse, engine: Engine) -> None:
    @app.task(name="new.name", aliases=["old.name"])
    async def renamed() -> str:
        return "ran"

    [old] = await engine.jobs.submit([NewJob(task="old.name")])
    async with working(app):
        assert await app.handle(old.id).aresult(10) == "ran"


async def test_a_job_of_an_unknown_task_waits_uncharged_and_says_so(app: Pulse, engine: Engine) -> None:
    @app.task(topic="shared")
    async def known() -> None: ...

    [strange] = await engine.jobs.submit([NewJob(task="next.release", topic="shared")])
    async with working(app):
        await until(lambda: _is(engine, strange.id, JobStatus.SCHEDULED))
    job = await engine.jobs.get(strange.id)

    assert job.attempt - job.refunded == 0
    assert job.last_error == "no worker here knows task 'next.release'; it waits for one that does"


# --- what handlers say


async def test_a_failure_is_retried_and_then_a_dead_letter(app: Pulse, engine: Engine) -> None:
    seen: list[tuple[int, bool]] = []

    @app.task(retry=AT_ONCE)
    async def fail(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.last_attempt))
        raise ValueError("nul: \x00, lone: \ud800")

    async with working(app):
        handle = await fail.aenqueue()
        with pytest.raises(JobFailed, match="ValueError: nul: \ufffd, lone: \ufffd"):
            await handle.aresult(10)

    first, second = await engine.jobs.attempts(handle.id)
    assert seen == [(1, False), (2, True)]
    assert (first.attempt, second.attempt) == (1, 2)
    assert 'raise ValueError("nul: ' in str(first.traceback)
    assert "pulse/sdk" not in str(first.traceback).partition("Traceback")[2].partition("test_worker")[0]


async def test_an_exception_that_is_not_to_be_retried_ends_it_at_once(app: Pulse) -> None:
    @app.task(retry=Retry(5, on=(OSError,)))
    def fail() -> None:
        raise KeyError("x")

    async with working(app):
        handle = await fail.aenqueue()
        with pytest.raises(JobFailed, match="KeyError: 'x'"):
            await handle.aresult(10)
        assert (await handle.ajob()).attempt == 1


async def test_a_snooze_is_not_charged(app: Pulse) -> None:
    tries = 0

    @app.task(retry=Retry(1))
    async def later(ctx: Context) -> int:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise Snooze(0) if tries < 3 else ctx.snooze("10ms")
        return ctx.attempt

    async with working(app):
        assert await (await later.aenqueue()).aresult(10) == 1


async def test_a_handler_says_when_it_wants_to_be_tried_again(app: Pulse) -> None:
    @app.task(retry=Retry(2, "fixed", "1h"))
    def again(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ctx.retry("20ms", "not there yet")
        return ctx.attempt

    async with working(app):
        handle = await again.aenqueue()
        assert await handle.aresult(10) == 2
        assert (await handle.ajob()).last_error == "RetryIn: not there yet"
    assert RetryIn("1m").delay == timedelta(minutes=1)


async def test_a_retry_or_snooze_needs_no_raise_in_front(app: Pulse) -> None:
    snoozes = count()

    @app.task(retry=Retry(2, "fixed", "1h"))
    def again(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.retry("20ms", "not there yet")
        return ctx.attempt

    @app.task(retry=Retry(1))
    async def later(ctx: Context) -> int:
        if next(snoozes) == 0:
            ctx.snooze("20ms")
        return ctx.attempt

    async with working(app):
        handles = await again.aenqueue(), await later.aenqueue()
        assert [await handle.aresult(10) for handle in handles] == [2, 1]
        assert (await handles[0].ajob()).last_error == "RetryIn: not there yet"


async def test_a_discarded_job_is_a_dead_letter_with_its_reason(app: Pulse) -> None:
    @app.task(retry=Retry(9))
    async def never() -> None:
        raise Discard("no such customer")

    async with working(app):
        with pytest.raises(JobFailed, match="no such customer"):
            await (await never.aenqueue()).aresult(10)


async def test_progress_is_seen_while_it_runs_and_kept_afterwards(app: Pulse) -> None:
    go_on = threading.Event()

    @app.task
    def climb(ctx: Context) -> None:
        ctx.progress({"done": 1, "of": 2})
        go_on.wait(10)
        ctx.progress("there")

    async with working(app):
        handle = await climb.aenqueue()
        await until(lambda: _says(handle, {"done": 1, "of": 2}))
        go_on.set()
        await handle.aresult(10)
        assert await handle.aprogress() == "there"


# --- what handlers do to their worker


def _recurse() -> None:
    _recurse()


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Leaving(Exception):
    """Asked for its words, it leaves."""

    def __init__(self, how: type[BaseException]) -> None:
        self.how = how

    def __str__(self) -> str:
        raise self.how

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise self.how


def _throw(error: BaseException) -> None:
    raise error


ROTTEN: dict[str, tuple[Any, str]] = {
    "leaves": (lambda: sys.exit(3), "SystemExit: 3"),
    "interrupts": (lambda: (_ for _ in ()).throw(KeyboardInterrupt()), "KeyboardInterrupt"),
    "stops": (lambda: next(iter(())), "StopIteration|coroutine raised StopIteration"),
    "recurses": (_recurse, "RecursionError"),
    "is awkward": (lambda: (_ for _ in ()).throw(Awkward()), "Awkward: .*could not be read"),
    "leaves when asked": (lambda: _throw(Leaving(SystemExit)), "Leaving: .*could not be read: SystemExit"),
    "interrupts when asked": (lambda: _throw(Leaving(KeyboardInterrupt)), "Leaving: .*could not be read: Keyboard"),
    "closes a generator": (lambda: _throw(GeneratorExit("closed")), "GeneratorExit: closed"),
    "returns a lock": (threading.Lock, "finished, but its result cannot be written as JSON"),
    "returns a surrogate": (lambda: "\ud800", "finished, but"),
    "returns too much": (lambda: "x" * (2 << 20), "larger than 1 MiB"),
    "retries in the past": (lambda: (_ for _ in ()).throw(RetryIn(-1)), "retry must be .*, not '-1s'"),
    "snoozes for ages": (lambda: (_ for _ in ()).throw(Snooze("4000d")), "snooze must be .*, not '4000d'"),
    "cancels itself": (lambda: (_ for _ in ()).throw(asyncio.CancelledError()), "CancelledError"),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("name", ROTTEN)
async def test_whatever_a_handler_does_its_worker_lives_on(app: Pulse, name: str, is_async: bool) -> None:
    do, error = ROTTEN[name]

    async def rotten_async() -> Any:
        return do()

    def rotten_sync() -> Any:
        return do()

    rotten = app.task(name="rotten", retry=Retry(1))(rotten_async if is_async else rotten_sync)

    @app.task
    async def fine() -> int:
        return 1

    @app.task
    def fine_in_a_thread() -> int:
        return 1

    async with working(app, concurrency=1, threads=1):  # so that a slot that is not given back is missed
        handle = await rotten.aenqueue()
        with pytest.raises(JobFailed, match=error):
            await handle.aresult(10)
        assert await (await fine.aenqueue()).aresult(10) == 1
        assert await (await fine_in_a_thread.aenqueue()).aresult(10) == 1


async def test_a_payload_that_does_not_fit_is_a_failure_with_a_name(app: Pulse, engine: Engine) -> None:
    @app.task(name="typed", retry=Retry(1))
    async def typed(n: int) -> None: ...

    [job] = await engine.jobs.submit([NewJob(task="typed", payload='{"n": "x"}', max_attempts=1)])
    async with working(app):
        with pytest.raises(JobFailed, match="argument 'n': expected int, got str"):
            await app.handle(job.id).aresult(10)


# --- ending runs from outside


async def test_a_timeout_ends_an_async_handler_and_is_charged(app: Pulse, engine: Engine) -> None:
    ended = asyncio.Event()

    @app.task(timeout="50ms", retry=Retry(1))
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working(app):
        handle = await hang.aenqueue()
        with pytest.raises(JobFailed, match=r"timed out after 0\.05 s"):
            await handle.aresult(10)
        assert ended.is_set()


async def test_a_timeout_tells_a_thread_and_takes_its_word_away(app: Pulse) -> None:
    saw: list[bool] = []
    may_end = threading.Event()

    @app.task(timeout="50ms", retry=Retry(1))
    def hang(ctx: Context) -> str:
        may_end.wait(10)
        saw.append(ctx.cancelled)
        return "too late"

    async with working(app):
        handle = await hang.aenqueue()
        with pytest.raises(JobFailed, match="timed out"):
            await handle.aresult(10)
        may_end.set()
        await until(lambda: _has(saw))
        assert saw == [True]
        assert await handle.astatus() is JobStatus.DEAD_LETTERED


async def test_a_cancelled_job_ends_its_handler(app: Pulse) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working(app):
        handle = await hang.aenqueue()
        await started.wait()
        await handle.acancel(reason="no longer wanted")
        await asyncio.wait_for(ended.wait(), 5)
        with pytest.raises(JobCancelled, match="no longer wanted"):
            await handle.aresult(10)


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(app: Pulse, caplog: pytest.LogCaptureFixture) -> None:
    """And its name is said, so that somebody mends it."""

    @app.task
    async def block() -> None:
        time.sleep(3)  # noqa: ASYNC251  that is the mistake

    with caplog.at_level(logging.WARNING, "pulse.worker"):
        async with working(app, lease=timedelta(seconds=2)):
            handle = await block.aenqueue()
            await handle.aresult(20)
            job = await handle.ajob()

    assert (job.attempt, job.status) == (1, JobStatus.COMPLETED)
    assert LAG_LIMIT < 3
    assert any(f"task {block.name} (job {handle.id})" in record.message for record in caplog.records)
    assert any("time.sleep(3)" in record.message for record in caplog.records)


async def test_a_lost_lease_ends_the_handler_and_its_result_is_not_taken(app: Pulse, engine: Engine) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @app.task
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with working(app) as worker:
        handle = await hang.aenqueue()
        await started.wait()
        [run] = worker.running
        taken = replace_lease(app.settings, handle.id)
        await taken
        await asyncio.wait_for(ended.wait(), 5)
        assert run.end_reason is not None
        job = await engine.jobs.get(handle.id)
        assert job.status is JobStatus.RUNNING
        await release_for_good(app.settings, handle.id)


async def replace_lease(settings: Settings, job_id: UUID) -> None:
    """As if the watchdog had taken it away and another worker had claimed it."""
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("update pulse.jobs set lease_id = lease_id + 2 where id = $1", job_id)
    await conn.close()


async def release_for_good(settings: Settings, job_id: UUID) -> None:
    conn = await asyncpg.connect(settings.database_url)
    await conn.execute("delete from pulse.jobs where id = $1", job_id)
    await conn.close()


# --- stopping


async def test_stopping_lets_what_runs_finish(app: Pulse) -> None:
    started = asyncio.Event()

    @app.task
    async def brief() -> str:
        started.set()
        await asyncio.sleep(0.2)
        return "done"

    handle = await brief.aenqueue()
    async with working(app):
        await started.wait()
    with closing(app):
        assert await handle.aresult(1) == "done"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_what_does_not_finish_in_time_is_given_back_uncharged(app: Pulse, engine: Engine, is_async: bool) -> None:
    started, may_end = threading.Event(), threading.Event()

    async def hang_async() -> None:
        started.set()
        await asyncio.Event().wait()

    def hang_sync() -> None:
        started.set()
        may_end.wait(20)

    hang = app.task(name="hang")(hang_async if is_async else hang_sync)
    handle = await hang.aenqueue()
    async with working(app, grace=timedelta(milliseconds=100)):
        await until(lambda: _is_set(started))
    may_end.set()

    job = await engine.jobs.get(handle.id)
    assert (job.status, job.attempt - job.refunded) == (JobStatus.PENDING, 0)


async def test_stopping_now_does_not_wait_for_the_grace(app: Pulse, engine: Engine) -> None:
    started = asyncio.Event()

    @app.task
    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await hang.aenqueue()
    async with asyncio.timeout(10), working(app, grace=timedelta(hours=1)) as worker:
        await started.wait()
        worker.stop_now()

    assert (await engine.jobs.get(handle.id)).status is JobStatus.PENDING


async def test_a_handler_that_will_not_be_cancelled_does_not_hold_the_worker(app: Pulse, engine: Engine) -> None:
    started, may_end = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        started.set()
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                continue

    handle = await stubborn.aenqueue()
    async with working(app, grace=timedelta(milliseconds=50)):
        await started.wait()

    job = await engine.jobs.get(handle.id)
    assert (job.status, job.attempt - job.refunded) == (JobStatus.PENDING, 0)
    may_end.set()
    await asyncio.sleep(0)


# --- around handlers


async def test_hooks_run_once_before_and_after(app: Pulse) -> None:
    events: list[str] = []

    @app.on_startup
    async def open_pool() -> None:
        events.append("up")

    @app.on_shutdown
    def close_pool() -> None:
        events.append("down")

    @app.task
    async def work() -> None:
        events.append("work")

    async with working(app):
        await (await work.aenqueue()).aresult(10)

    assert events == ["up", "work", "down"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_middleware_stands_around_every_handler(app: Pulse, is_async: bool) -> None:
    events: list[str] = []

    @app.middleware
    async def outer(ctx: Context, run: Any) -> Any:
        events.append(f"outer {ctx.attempt}")
        result = await run()
        events.append("outer ends")
        return result + 1

    @app.middleware
    async def inner(ctx: Context, run: Any) -> Any:
        events.append("inner")
        return await run()

    async def plus_async(n: int) -> int:
        return n

    def plus_sync(n: int) -> int:
        return n

    plus = app.task(name="plus")(plus_async if is_async else plus_sync)
    async with working(app):
        assert await (await plus.aenqueue(1)).aresult(10) == 2

    assert events == ["outer 1", "inner", "outer ends"]


async def test_dead_letters_are_told_of(app: Pulse) -> None:
    told: list[Job] = []

    @app.on_dead_letter
    async def on_dead_letter(job: Job) -> None:
        told.append(job)

    @app.task(retry=Retry(1))
    async def fail() -> None:
        raise ValueError("x")

    async with working(app):
        failed = await fail.aenqueue()
        await until(lambda: _count(told, 1))

    assert {job.id: str(job.last_error) for job in told} == {failed.id: "ValueError: x"}


async def test_dead_letters_that_the_watchdog_finds_are_told_of(app: Pulse, engine: Engine) -> None:
    """By the process that found it or, through a server, by a worker that takes such jobs."""
    told: list[Job] = []

    @app.on_dead_letter
    async def on_dead_letter(job: Job) -> None:
        told.append(job)

    @app.task(retry=Retry(1))
    async def vanish() -> None: ...

    lost = await vanish.aenqueue()
    await engine.claims.claim(vanish.topic, worker="one that died", slots=1)
    async with working(app, lease=timedelta(seconds=1)) as worker:
        await until(worker.can_get_jobs)
        conn = await asyncpg.connect(app.settings.database_url)
        await conn.execute("update pulse.jobs set lease_until = now() - interval '1 minute' where lease_until > now()")
        await conn.close()
        await until(lambda: _count(told, 1))

    assert {job.id: str(job.last_error) for job in told} == {lost.id: "worker lease expired"}


async def test_a_result_that_takes_too_long_is_said_to(app: Pulse) -> None:
    @app.task
    async def nobody_runs_it() -> None: ...

    with closing(app):
        handle = await nobody_runs_it.aenqueue()
        with pytest.raises(ResultTimeout, match=r"still PENDING after 0\.05 s"):
            await handle.aresult(0.05)
        with pytest.raises(TimeoutError):
            await asyncio.to_thread(handle.result, 0.01)


# --- the handler's own transaction


async def test_effect_and_completion_commit_together(app: Pulse, engine: Engine) -> None:
    @app.task
    async def charge(ctx: Context, n: int) -> dict[str, int]:
        conn = await asyncpg.connect(app.settings.database_url)
        try:
            async with conn.transaction():
                await ctx.fence(conn)
                await conn.execute("create table if not exists effects (n int)")
                await conn.execute("insert into effects values ($1)", n)
                await ctx.complete(conn, {"charged": n})
        finally:
            await conn.close()
        return {"this": 0}  # too late: the first word stands

    async with working(app):
        handle = await charge.aenqueue(7)
        assert await handle.aresult(10) == {"charged": 7}
        job = await engine.jobs.get(handle.id)

    assert (job.status, job.result) == (JobStatus.COMPLETED, '{"charged": 7}')


async def test_a_run_that_lost_its_lease_cannot_commit_its_effect(app: Pulse, engine: Engine) -> None:
    errors: list[BaseException] = []
    started, taken = asyncio.Event(), asyncio.Event()

    @app.task
    async def charge(ctx: Context) -> None:
        conn = await asyncpg.connect(app.settings.database_url)
        started.set()
        with suppress(asyncio.CancelledError):
            await asyncio.shield(taken.wait())
        try:
            async with conn.transaction():
                await ctx.fence(conn)
        except LeaseLost as error:
            errors.append(error)
        finally:
            conn.terminate()

    async with working(app, heartbeat=timedelta(seconds=1)):
        handle = await charge.aenqueue()
        await started.wait()
        await replace_lease(app.settings, handle.id)
        taken.set()
        await until(lambda: _has(errors))
        await release_for_good(app.settings, handle.id)

    assert str(handle.id) in str(errors[0])


# --- outages


async def test_a_worker_whose_connections_are_cut_goes_on(app: Pulse, engine: Engine) -> None:
    @app.task
    async def work(n: int) -> int:
        await asyncio.sleep(0.02)
        return n

    handles = await app.aenqueue_many(work.call(n) for n in range(200))
    async with working(app, concurrency=10) as worker:
        conn = await asyncpg.connect(app.settings.database_url)
        for target in (20, 60, 100):
            await until(lambda target=target: _reached(worker, target))  # type: ignore[misc]
            await conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and application_name = 'pulse' and pid <> pg_backend_pid()"
            )
        await conn.close()
        results = [await handle.aresult(20) for handle in handles]

    assert results == list(range(200))


async def _is(engine: Engine, job_id: UUID, status: JobStatus) -> bool:
    return (await engine.jobs.get(job_id)).status is status


async def _says(handle: Any, progress: Any) -> bool:
    return bool(await handle.aprogress() == progress)


async def _has(items: list[Any]) -> bool:
    return bool(items)


async def _count(items: list[Any], number: int) -> bool:
    return len(items) >= number


async def _is_set(event: threading.Event) -> bool:
    return event.is_set()


async def _reached(worker: Worker, number: int) -> bool:
    return worker.done >= number


async def test_without_notifications_work_is_found_by_polling(settings: Settings) -> None:
    app = Pulse(settings=replace(settings, notify=False))

    @app.task
    async def work(n: int) -> int:
        return n

    async with working(app):
        for number in range(5):
            assert await (await work.aenqueue(number)).aresult(20) == number


@pytest.mark.parametrize("settings", ["direct"], indirect=True)
async def test_what_was_claimed_too_long_ago_is_not_begun(app: Pulse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stood still while the answer was on its way: by now others may run these jobs."""
    began: list[int] = []

    @app.task
    async def work() -> None:
        began.append(1)

    handle = await work.aenqueue()
    worker = Worker(
        app, settings=replace(app.settings, lease=timedelta(seconds=1), heartbeat=timedelta(milliseconds=300))
    )
    claim = DirectLink.claim

    async def slowly(link: DirectLink, topic: str, *, worker: str, slots: int) -> Any:
        batch = await claim(link, topic, worker=worker, slots=slots)
        if batch.claims:
            monkeypatch.setattr(DirectLink, "claim", claim)
            await asyncio.sleep(1.1)
        return batch

    monkeypatch.setattr(DirectLink, "claim", slowly)
    life = asyncio.create_task(worker.run())
    await handle.aresult(10)
    job = await handle.ajob()
    worker.stop()
    await life
    app.close()

    assert began == [1]
    assert job.attempt == 2, "the first claim was given back, or taken away, before anything began"


@pytest.mark.parametrize(
    ("cut", "seconds", "may_begin"), [(None, 60, True), (None, -1, False), (EndReason.STOPPING, 60, False)]
)
def test_a_run_may_begin_while_it_is_held_and_nobody_has_ended_it(
    cut: EndReason | None, seconds: float, may_begin: bool
) -> None:
    run = Run(cast("Any", None), cast("Any", None), cast("Any", None), time.monotonic() + seconds)
    run.end_reason = cut

    assert run.may_begin is may_begin


def too_late_at_look(number: int) -> property:
    """In the place of `Run.may_begin`: the lease of a first claim has ended by that look. The clock is left alone: the
    heartbeats look at it, too, and would end the run for their part."""
    looks = count(1)
    return property(lambda run: run.claim.attempt > 1 or next(looks) < number)


@pytest.mark.parametrize("kind", ["async", "sync", "sync inside a middleware"])
async def test_what_stood_in_line_until_its_lease_had_ended_is_not_begun(
    app: Pulse, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The process was stopped between taking a job and beginning it: by now others may run it."""
    began: list[int] = []

    async def work_async(ctx: Context) -> None:
        began.append(ctx.attempt)

    def work_sync(ctx: Context) -> None:
        began.append(ctx.attempt)

    work = app.task(name="work", retry=AT_ONCE)(work_async if kind == "async" else work_sync)
    if kind == "sync inside a middleware":
        app.middleware(_pass_on)
    monkeypatch.setattr(Run, "may_begin", too_late_at_look(1))
    async with working(app):
        handle = await work.aenqueue()
        await handle.aresult(30)
        job = await handle.ajob()

    assert began == [1]
    assert (job.attempt, job.refunded) == (2, 1)


@pytest.mark.parametrize("settings", ["direct"], indirect=True)
async def test_a_handler_that_waited_for_a_thread_until_its_lease_had_ended_is_not_begun(
    app: Pulse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, in the line for a thread that a middleware has brought it to."""
    began: list[int] = []
    app.middleware(_pass_on)

    @app.task(retry=AT_ONCE)
    def work(ctx: Context) -> None:
        began.append(ctx.attempt)

    monkeypatch.setattr(Run, "may_begin", too_late_at_look(2))
    async with working(app):
        handle = await work.aenqueue()
        await handle.aresult(10)

    assert began == [1]
    assert (await handle.ajob()).refunded == 1


async def _pass_on(_: Context, run: Any) -> Any:
    return await run()
