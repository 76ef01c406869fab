"""A shop. Nothing in it knows about tests."""

from __future__ import annotations

import asyncio
import warnings
from dataclasses import dataclass
from uuid import UUID
from zoneinfo import ZoneInfo

from pulse import BlockingCallWarning, Context, Discard, Pulse, Retry

app = Pulse("postgresql://nobody@127.0.0.1:1/production")  # where nobody answers: tests must not go there
warehouse = Pulse()

heard: list[str] = []


@dataclass
class Address:
    street: str
    city: str


@app.on_startup
def connect() -> None:
    heard.append("connected")


@app.on_dead_letter
async def tell_someone(job: object) -> None:
    heard.append("dead letter")


@app.task
async def send_receipt(order_id: int, to: str = "nobody", *, copies: int = 1) -> str:
    return f"{copies} for order {order_id} to {to}"


@app.task(topic="post")
def ship(ctx: Context, /, order: UUID, address: Address, **notes: str) -> str:
    ctx.progress({"at": address.city})
    return f"{order} to {address.street}"


@app.task(retry=Retry(3, base="10s", backoff="fixed", jitter=0))
async def charge(ctx: Context, amount: float) -> int:
    if ctx.attempt < 3:
        raise ConnectionError(f"attempt {ctx.attempt}: the bank does not answer")
    return ctx.attempt


@app.task
async def refuse() -> None:
    raise Discard("no such order")


@app.task
async def wait_for_stock(ctx: Context) -> str:
    if ctx.lease.lease_id and not stock:
        raise ctx.snooze("1h")
    return "shipped"


stock: list[str] = []


@app.task
async def place_order(order_id: int) -> None:
    """Enqueues in both ways, and to a topic that no task has."""
    await asyncio.sleep(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BlockingCallWarning)  # a drain gets through it all the same
        send_receipt.enqueue(order_id)
    await send_receipt.using(topic="urgent").aenqueue(order_id, copies=2)


@app.task
async def count_down(number: int) -> None:
    if number:
        await asyncio.sleep(0.02)
        await count_down.aenqueue(number - 1)


@app.task
async def think_better_of_it(ctx: Context) -> None:
    await app.handle(ctx.job_id).acancel()
    await asyncio.sleep(60)


@app.task
def again() -> None:
    again.enqueue()


@app.task(executor="process")
def crunch(number: int) -> int:
    return number * number


@warehouse.task(topic="post")
def pick(item: str) -> str:
    return f"picked {item}"


@app.task(cron="0 9 * * *", tz="Europe/Berlin")
async def report(ctx: Context, city: str = "Springfield") -> str:
    at = ctx.scheduled_for
    return f"{city} at {at.astimezone(ZoneInfo('Europe/Berlin')):%H:%M}" if at else city


@app.task
async def slow() -> None:
    await asyncio.sleep(1.1)
