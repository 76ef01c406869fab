"""Can a task be declared, called, and enqueued from anywhere?"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from pulse import Context, JobHandle, JobStatus, Pulse, Retry, Snooze
from pulse.engine.engine import Engine
from pulse.model.errors import (
    BatchTooLarge,
    InvalidArguments,
    InvalidName,
    InvalidOption,
    InvalidPayload,
    InvalidSettings,
    InvalidTask,
    JobNotFound,
    ServerUnreachable,
)
from pulse.settings import Settings
from tests.sdk.apps_here import closing


def declare(app: Pulse) -> Any:
    @app.task(topic="mail", priority=5, retry=Retry(7, on=(OSError,)), timeout="30s", tags=["a"])
    async def send(order_id: int, *, to: str = "nobody") -> bool:
        return True

    return send


# --- declaring


def test_calling_a_task_calls_the_function() -> None:
    app = Pulse()

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    def numbered(ctx: Context, a: int) -> tuple[int, int]:
        return ctx.attempt, a

    assert add(1, 2) == 3
    assert numbered(5) == (1, 5)


async def test_calling_an_async_task_gives_its_coroutine() -> None:
    app = Pulse()

    @app.task()
    async def add(a: int, b: int) -> int:
        return a + b

    assert await add(1, 2) == 3


def test_a_name_is_the_modules_and_the_functions() -> None:
    app = Pulse()

    @app.task
    def one() -> None: ...

    @app.task(name="orders.two", aliases=["orders.zwei"])
    def two() -> None: ...

    assert one.name == f"{__name__}.test_a_name_is_the_modules_and_the_functions.one"
    assert app.find_task("orders.zwei") is two
    assert app.topics == [one.name, "orders.two", "orders.zwei"]


@pytest.mark.parametrize("taken", ["x", "old"])
def test_a_name_can_be_taken_only_once(taken: str) -> None:
    app = Pulse()

    @app.task(name="x", aliases=["old"])
    def first() -> None: ...

    with pytest.raises(InvalidTask, match=f"'{taken}' is taken by .*first.*test_tasks.py"):

        @app.task(name=taken)
        def second() -> None: ...


def test_what_cannot_be_a_task_is_refused() -> None:
    app = Pulse()

    with pytest.raises(InvalidTask, match="generator"):

        @app.task
        def numbers() -> Any:
            yield 1

    with pytest.raises(InvalidTask, match=r"executor of task .* must be auto or process, not 'gpu'"):
        app.task(name="sum", executor="gpu")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(InvalidOption, match=r"option of a task must be one of aliases, .*priority"):
        app.task(name="sum", dealy="5m")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(InvalidName):
        app.task(name="sum")(lambda: None).using(topic="a\x00b").enqueue()
    assert not [name for name in app.tasks if "numbers" in name]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("priority", 101),
        ("priority", "high"),
        ("delay", "soon"),
        ("delay", -5),
        ("delay", "11000d"),
        ("run_at", datetime(2030, 1, 1)),  # noqa: DTZ001  that is the mistake
        ("timeout", 0),
        ("timeout", object()),
        ("deadline", "11000d"),
        ("unique_key", "x" * 501),
        ("unique_window", "5m"),
        ("tags", "billing"),
        ("tags", ["\x00"]),
        ("topic", ""),
        ("topic", "*"),
        ("topic", "x" * 201),
        ("retry", "often"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_given(option: str, value: Any) -> None:
    task = declare(Pulse())

    with pytest.raises((InvalidOption, InvalidName, InvalidPayload)):
        task.using(**{option: value}).call(1)


@pytest.mark.parametrize("refuse", [lambda: declare(Pulse()).using(delay=-5).call(1), lambda: Snooze(-5)])
def test_a_length_that_is_refused_is_quoted_as_it_was_given(refuse: Callable[[], object]) -> None:
    with pytest.raises(InvalidOption, match="must be a length of time from 0s to ten years, not '-5s'"):
        refuse()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"max_attempts": 1.5},
        {"on": OSError},
        {"on": ("OSError",)},
        {"base": "x"},
        {"jitter": 2},
        {"backoff": "x"},
    ],
)
def test_a_wrong_retry_is_refused_when_it_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        Retry(**wrong)


# --- enqueueing


async def test_enqueue_writes_down_everything(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)
        at = datetime(2030, 1, 31, tzinfo=UTC)

        handle = await send.using(run_at=at, unique_key="k", unique_window="1h", result_ttl="1d").aenqueue(
            7, to="a@b.c"
        )

    job = await engine.jobs.get(handle.id)
    assert (job.task, job.topic, job.priority, job.max_attempts) == (send.name, "mail", 5, 7)
    assert job.payload == '{"to": "a@b.c", "order_id": 7}'
    assert (job.run_at, job.timeout, job.unique_key) == (at, timedelta(seconds=30), "k")
    assert (job.result_ttl, job.tags) == (timedelta(days=1), '["a"]')


async def test_options_on_a_copy_leave_the_task_as_it_is(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)
        send.using(topic="other", priority=1)

        job = await (await send.aenqueue(1)).ajob()

    assert (job.topic, job.priority) == ("mail", 5)


async def test_sync_code_enqueues_without_an_event_loop(settings: Settings) -> None:
    def in_a_thread() -> JobStatus:
        with closing(Pulse(settings=settings)) as app:
            handle: JobHandle[bool] = declare(app).enqueue(1)
            return handle.status()

    assert await asyncio.to_thread(in_a_thread) is JobStatus.PENDING


async def test_threads_share_one_way_to_the_database(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)

        await asyncio.gather(*[asyncio.to_thread(lambda n: send.enqueue(n), n) for n in range(20)])

        assert sum(thread.name == "pulse link" for thread in threading.enumerate()) == 1
    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 20}


def test_several_event_loops_one_after_the_other_are_fine(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)

        handles = [asyncio.run(send.aenqueue(n)) for n in range(2)]

        assert {asyncio.run(handle.astatus()) for handle in handles} == {JobStatus.PENDING}


async def test_ten_thousand_at_once(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)

        handles = await app.aenqueue_many(send.call(n) for n in range(10_000))
        with pytest.raises(BatchTooLarge):
            await app.aenqueue_many([send.call(1)] * 10_001)

    assert len({handle.id for handle in handles}) == 10_000
    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 10_000}
    first = await engine.jobs.get(handles[0].id)
    assert first.payload == '{"order_id": 0}'


async def test_many_at_once_may_differ_in_everything(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)
        calls = [
            send.call(1),
            send.using(topic="other", priority=-3, unique_key="u", tags=["x", "y"]).call(2),
            send.using(delay="1h", timeout="1s", retry=Retry(2, "fixed", 9)).call(3),
            send.using(deadline=datetime(2031, 1, 1, tzinfo=UTC)).call(4),
        ]

        plain, other, later, bounded = [await handle.ajob() for handle in await app.aenqueue_many(calls)]

    assert (plain.topic, plain.priority, plain.max_attempts, plain.unique_key) == ("mail", 5, 7, None)
    assert (other.topic, other.priority, other.unique_key, other.tags) == ("other", -3, "u", '["x", "y"]')
    assert (later.status, later.timeout, later.max_attempts) == (JobStatus.SCHEDULED, timedelta(seconds=1), 2)
    assert '"fixed"' in str(later.retry)
    assert bounded.deadline == datetime(2031, 1, 1, tzinfo=UTC)
    assert plain.retry is None
    assert plain.deadline is None


async def test_a_wrong_call_among_many_enqueues_none(engine: Engine, settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)

        with pytest.raises(InvalidArguments):
            await app.aenqueue_many(send.call(n) for n in (1, "two"))

    assert await engine.jobs.counts() == []


def test_a_call_written_down_has_no_transaction_of_its_own(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app).using(conn=object())

        with pytest.raises(
            InvalidOption,
            match=r"conn must be unset for call\(\) \(give it to app\.enqueue_many\(calls, conn=…\)\), not 'object'",
        ):
            send.call(1)


def test_settings_are_given_as_a_whole_or_one_by_one(settings: Settings) -> None:
    with pytest.raises(InvalidSettings, match="not both"):
        Pulse("postgresql://elsewhere/shop", settings=settings)
    with pytest.raises(InvalidSettings, match="not both"):
        Pulse(settings=settings, pool_size=3)


async def test_a_unique_key_answers_with_the_first_job(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app:
        send = declare(app).using(unique_key="receipt:7")

        assert await send.aenqueue(1) == await send.aenqueue(2)


async def test_an_unknown_id_is_said_to_be_unknown(settings: Settings) -> None:
    with closing(Pulse(settings=settings)) as app, pytest.raises(JobNotFound):
        await app.handle(str(uuid4())).astatus()


def _fail_in_child(send: Any, said: Any) -> None:
    try:
        send.enqueue(2)
    except ServerUnreachable as error:
        said.put(str(error))


@pytest.mark.parametrize("settings", ["server"], indirect=True)
async def test_a_process_forked_after_grpc_was_used_says_so(engine: Engine, settings: Settings) -> None:
    """gRPC would crash it. The parent goes on."""
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)
        await send.aenqueue(1)
        fork = multiprocessing.get_context("fork")
        said = fork.Queue()

        child = fork.Process(target=_fail_in_child, args=(send, said))
        child.start()
        assert "fork before the first enqueue" in await asyncio.to_thread(said.get, timeout=20)
        await asyncio.to_thread(child.join, 20)
        await send.aenqueue(3)

    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 2}


def _enqueue_in_child(send: Any, ids: Any) -> None:
    ids.put(str(send.enqueue(2).id))
    send.app.close()


@pytest.mark.parametrize("settings", ["direct"], indirect=True)
async def test_a_forked_process_enqueues_by_a_way_of_its_own(engine: Engine, settings: Settings) -> None:
    """The child has the parent's memory and not its threads; both go on."""
    with closing(Pulse(settings=settings)) as app:
        send = declare(app)
        await send.aenqueue(1)
        fork = multiprocessing.get_context("fork")
        ids = fork.Queue()

        child = fork.Process(target=_enqueue_in_child, args=(send, ids))
        child.start()
        await asyncio.to_thread(child.join, 20)
        assert child.exitcode == 0
        await send.aenqueue(3)

    [counts] = await engine.jobs.counts()
    assert counts.counts == {JobStatus.PENDING: 3}
