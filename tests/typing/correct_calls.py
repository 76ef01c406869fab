"""Calls that are right: no checker may object to any of them."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type
from uuid import uuid4

from pulse import Job, JobHandle, JobStatus, Retry
from pulse.sdk.task import Call
from tests.typing.tasks import (
    Order,
    add,
    app,
    bare,
    charge,
    crunch,
    double,
    exact,
    greet,
    import_file,
    index,
    keep,
    label,
    log_event,
    resize,
    send_receipt,
    shout,
    tag,
    thumbnail,
    tick,
)

order = Order(uuid4(), 9.5)


def enqueue_from_sync_code() -> None:
    assert_type(double.enqueue(2), JobHandle[int])
    assert_type(double.enqueue(number=2), JobHandle[int])
    assert_type(import_file.enqueue("a.csv", rows=3), JobHandle[list[str]])
    assert_type(shout.enqueue("hi"), JobHandle[str])
    assert_type(resize.enqueue(uuid4(), 80), JobHandle[tuple[int, int]])
    assert_type(bare.enqueue(1), JobHandle[bool])
    assert_type(send_receipt.enqueue(order, to="ada@example.com"), JobHandle[bool])
    assert_type(charge.enqueue(order), JobHandle[float])
    assert_type(crunch.enqueue([1.0, 2]), JobHandle[float])
    assert_type(thumbnail.enqueue(image=uuid4()), JobHandle[None])
    assert_type(tick.enqueue(), JobHandle[None])


def enqueue_parameters_of_every_kind() -> None:
    greet.enqueue("Ada")
    greet.enqueue("Ada", "Hi", loud=True)
    greet.enqueue(greeting="Hi", name="Ada")
    add.enqueue(label="none")
    add.enqueue(1, 2, 3, label="some")
    tag.enqueue()
    tag.enqueue(colour="red", size="xl")
    exact.enqueue(1)
    label.enqueue(uuid4(), colour="red")


def a_first_parameter_that_takes_anything_is_no_context() -> None:
    keep.enqueue(3)
    keep.enqueue(value="x")
    assert_type(keep.enqueue(3).result(), str)
    log_event.enqueue({"a": 1}, 2)
    log_event.enqueue(event=None, level=2)
    index.enqueue(key="k")
    assert_type(index.enqueue("k").result(), int)


async def enqueue_from_async_code() -> None:
    handle = await double.aenqueue(2)
    assert_type(handle, JobHandle[int])
    assert_type(await handle.aresult(), int)
    assert_type(await handle.aresult(timeout=5), int)
    assert_type(await (await import_file.aenqueue("a.csv", 3)).aresult(), list[str])
    assert_type(await (await shout.aenqueue("hi")).aresult(), str)
    assert_type(await (await thumbnail.aenqueue(uuid4())).ajob(), Job)
    assert_type(await handle.astatus(), JobStatus)
    await handle.acancel(reason="not needed")


def results() -> None:
    handle = resize.enqueue(uuid4(), 80)
    assert_type(handle.result(), tuple[int, int])
    assert_type(handle.result(1.5), tuple[int, int])
    assert_type(send_receipt.enqueue(order, to="x").result(timeout=1), bool)
    assert_type(handle.job(), Job)
    assert_type(handle.status(), JobStatus)
    handle.cancel()


async def call_directly() -> None:
    assert_type(shout("hi"), str)
    assert_type(resize(uuid4(), 80), tuple[int, int])
    await assert_type(double(2), Coroutine[Any, Any, int])
    assert_type(await double(2), int)
    assert_type(await import_file("a.csv", rows=1), list[str])
    assert_type(await charge(order), float)


def options_keep_the_types() -> None:
    soon = datetime.now(UTC) + timedelta(minutes=5)
    assert_type(double.using(delay="5m").enqueue(2), JobHandle[int])
    assert_type(double.using(delay=timedelta(minutes=5)).using(priority=3).enqueue(number=2), JobHandle[int])
    assert_type(import_file.using(run_at=soon, deadline=soon).enqueue("a", 1).result(), list[str])
    assert_type(send_receipt.using(unique_key="r:1", unique_window=60).enqueue(order, to="x"), JobHandle[bool])
    assert_type(shout.using(retry=Retry(2), timeout=1.5, tags=["a"], topic="loud").enqueue("x"), JobHandle[str])
    assert_type(shout.using(result_ttl="1d", deadline="1h")("x"), str)


async def options_keep_the_types_of_coroutines(connection: object) -> None:
    assert_type(await double.using(conn=connection).aenqueue(2), JobHandle[int])
    assert_type(await charge.using(delay=3)(order), float)


def many_at_once() -> None:
    assert_type(double.call(2), Call[int])
    assert_type(import_file.using(delay=5).call("a.csv", rows=1), Call[list[str]])
    handles = app.enqueue_many([double.call(1), shout.call("x"), tick.call()])
    assert_type(handles, list[JobHandle[Any]])
    app.enqueue_many(double.call(number) for number in range(3))


async def many_at_once_from_coroutines() -> None:
    await app.aenqueue_many([double.call(1)], conn=None)
    await app.handle("0190f0f0-0000-7000-8000-000000000000").aresult()
