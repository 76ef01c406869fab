"""Calls that are wrong: every marked line, and no other, must be refused by each checker."""

from __future__ import annotations

from typing import assert_type
from uuid import uuid4

from pulse import Context
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
    label,
    resize,
    send_receipt,
    shout,
    tag,
    thumbnail,
    tick,
)

order = Order(uuid4(), 9.5)


def enqueue_an_async_task() -> None:
    double.enqueue("2")  # error
    double.enqueue()  # error
    double.enqueue(1, 2)  # error
    double.enqueue(num=1)  # error
    double.enqueue(1, number=2)  # error
    bare.enqueue("1")  # error
    tick.enqueue(1)  # error


def enqueue_an_async_task_with_context(ctx: Context) -> None:
    import_file.enqueue("a.csv", "3")  # error
    import_file.enqueue("a.csv")  # error
    import_file.enqueue("a.csv", 3, 4)  # error
    import_file.enqueue(ctx, "a.csv", 3)  # error
    import_file.enqueue(path="a.csv", row=3)  # error
    charge.enqueue(order.id)  # error
    charge.enqueue()  # error


def enqueue_a_sync_task() -> None:
    shout.enqueue(1)  # error
    shout.enqueue()  # error
    shout.enqueue("a", "b")  # error
    shout.enqueue(txt="a")  # error
    crunch.enqueue(["1"])  # error
    crunch.enqueue(1.0)  # error


def enqueue_a_sync_task_with_context(ctx: Context) -> None:
    resize.enqueue("not a uuid", 80)  # error
    resize.enqueue(uuid4())  # error
    resize.enqueue(uuid4(), 80, 90)  # error
    resize.enqueue(ctx, uuid4(), 80)  # error
    resize.enqueue(uuid4(), height=80)  # error
    thumbnail.enqueue()  # error


def enqueue_parameters_of_every_kind() -> None:
    send_receipt.enqueue(order, "ada@example.com")  # error
    send_receipt.enqueue(order)  # error
    send_receipt.enqueue(order, to=None)  # error
    greet.enqueue("Ada", 1)  # error
    greet.enqueue("Ada", "Hi", True)  # error
    greet.enqueue(greeting="Hi")  # error
    add.enqueue(1, 2)  # error
    add.enqueue(1, "2", label="x")  # error
    tag.enqueue(size=3)  # error
    tag.enqueue("xl")  # error
    exact.enqueue(number=1)  # error
    label.enqueue(uuid4(), size=3)  # error
    label.enqueue(colour="red")  # error


async def aenqueue() -> None:
    await double.aenqueue("2")  # error
    await double.aenqueue()  # error
    await double.aenqueue(1, 2)  # error
    await double.aenqueue(num=1)  # error
    await import_file.aenqueue("a.csv")  # error
    await import_file.aenqueue(3, "a.csv")  # error
    await shout.aenqueue(1)  # error
    await resize.aenqueue(uuid4(), width="80")  # error
    await send_receipt.aenqueue(order, to=1)  # error
    double.aenqueue(2)  # error


def write_down_a_call() -> None:
    double.call("2")  # error
    import_file.call("a.csv")  # error
    shout.call("a", "b")  # error
    resize.call(image=uuid4(), wide=1)  # error
    app.enqueue_many([double])  # error
    app.enqueue_many([double.enqueue(1)])  # error


def using_keeps_the_arguments() -> None:
    double.using(delay="5m").enqueue("2")  # error
    double.using(delay="5m").enqueue()  # error
    import_file.using(priority=1).enqueue("a.csv", "3")  # error
    import_file.using(priority=1).using(delay=3).enqueue("a.csv")  # error
    shout.using(delay=3).enqueue("a", "b")  # error
    resize.using(topic="t").enqueue(uuid4(), wide=1)  # error
    send_receipt.using(unique_key="k").enqueue(order)  # error
    shout.using(delay=3).call(1)  # error
    shout.using(delay=3)(1)  # error


async def using_keeps_the_arguments_of_coroutines() -> None:
    await double.using(delay="5m").aenqueue("2")  # error
    await resize.using(delay="5m").aenqueue(uuid4())  # error


async def results_are_not_something_else() -> None:
    handle = double.enqueue(2)
    text: str = handle.result()  # error
    number: str = await handle.aresult()  # error
    assert_type(handle.result(), bool)  # error
    assert_type(import_file.enqueue("a", 1).result(), str)  # error
    assert_type(resize.using(delay=1).enqueue(uuid4(), 1).result(), int)  # error
    handle.result(b"10s")  # error
    handle.results()  # error
    _ = (
        text,
        number,
    )


async def call_directly(ctx: Context) -> None:
    shout(1)  # error
    shout()  # error
    resize(ctx, uuid4(), 80)  # error
    await double("2")  # error
    double(2)  # error
    await shout("hi")  # error
    wrong: int = shout("hi")  # error
    awaited: str = await double(2)  # error
    _ = (
        wrong,
        awaited,
    )
