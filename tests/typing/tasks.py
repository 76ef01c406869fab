"""Tasks of every shape, for the other files of this folder to call rightly and wrongly."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from pulse import Context, Pulse, Retry

app = Pulse()


@dataclass
class Order:
    id: UUID
    total: float


# --- async, sync; with the context first and without


@app.task
async def double(number: int) -> int:
    return number * 2


@app.task
async def import_file(ctx: Context, path: str, rows: int) -> list[str]:
    ctx.progress({"done": 0, "of": rows})
    return [path]


@app.task
def shout(text: str) -> str:
    return text.upper()


@app.task
def resize(ctx: Context, image: UUID, width: int) -> tuple[int, int]:
    return width, ctx.attempt


# --- the same with parentheses, empty and not


@app.task()
async def bare(number: int) -> bool:
    return number > 0


@app.task(name="shop.send_receipt", topic="mail", retry=Retry(5, on=(OSError,)), timeout="30s", tags=["billing"])
async def send_receipt(order: Order, *, to: str) -> bool:
    return bool(to)


@app.task(name="shop.charge", aliases=["shop.bill"], retry=3, delay=timedelta(seconds=5), deadline=3600)
async def charge(ctx: Context, order: Order) -> float:
    return order.total * ctx.attempt


@app.task(executor="process", priority=-5, result_ttl=60.0)
def crunch(numbers: list[float]) -> float:
    return sum(numbers)


@app.task(topic="images")
def thumbnail(ctx: Context, image: UUID) -> None:
    ctx.progress(image.hex)


@app.task
def poll(ctx: Context, image: UUID) -> str:
    if image.int == 1:
        raise ctx.retry("1m", "not there yet")
    if image.int == 2:
        raise ctx.snooze(5)
    if image.int == 3:
        ctx.retry("1m")
    ctx.snooze("5m")  # which ends it: nothing has to be returned


# --- parameters of every kind


@app.task
async def tick() -> None: ...


@app.task
async def greet(name: str, greeting: str = "Hello", *, loud: bool = False) -> str:
    return f"{greeting}, {name}" + "!" * loud


@app.task
def add(*numbers: int, label: str) -> int:
    return sum(numbers)


@app.task
def tag(**labels: str) -> dict[str, str]:
    return labels


@app.task
def exact(number: int, /) -> int:
    return number


@app.task
def label(ctx: Context, /, image: UUID, **labels: str) -> int:
    """mypy wants the slash beside `**labels`: without it, `ctx` could be one of them."""
    return len(labels) * ctx.attempt


# --- a first parameter that takes anything does not ask for the context


@app.task
async def log_event(event: Any, level: int) -> int:
    return level


@app.task
def keep(value: object) -> str:
    return repr(value)


@app.task(topic="keys")
def index(key: Hashable) -> int:
    return hash(key)
