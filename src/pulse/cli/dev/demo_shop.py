"""What does an application look like? Like this small shop, which the demo runs.

Its handlers simulate work by sleeping a little, and fail on purpose: `fails` is the number of attempts that fail. The
rest is as in any application.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pulse.sdk.app import Pulse
from pulse.sdk.context import Context  # noqa: TC001  read when a task is declared
from pulse.sdk.options import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulse.sdk.task import Call, Task

app = Pulse()
soon = Retry(max_attempts=3, backoff="fixed", base="500ms")
retried: Counter[str] = Counter()  # jobs that needed a second attempt, per topic


class BadLuck(Exception):
    """The error that a handler of the shop raises on purpose."""


@app.task(name="send_receipt", topic="mail", retry=soon)
async def send_receipt(ctx: Context, order: int, fails: int = 0) -> str:
    await asyncio.sleep(0.010)
    check_luck(ctx, fails, "the mail server answered 451, try again later")
    return f"receipt of order {order} sent"


@app.task(name="capture_payment", topic="payments", retry=soon)
async def capture_payment(ctx: Context, order: int, fails: int = 0) -> dict[str, int]:
    await asyncio.sleep(0.015)
    check_luck(ctx, fails, "the payment provider timed out")
    return {"order": order, "attempt": ctx.attempt}


@app.task(name="make_thumbnail", topic="images", retry=soon)
def make_thumbnail(ctx: Context, image: int, fails: int = 0) -> str:
    """Make a thumbnail. It is not async and so runs in a thread, as handlers that call blocking libraries should."""
    time.sleep(0.008)
    check_luck(ctx, fails, "the image file is truncated")
    return f"thumbnails/{image}.webp"


@app.task(name="build_report", topic="reports", retry=soon)
def build_report(ctx: Context, month: int, fails: int = 0) -> int:
    time.sleep(0.008)
    check_luck(ctx, fails, "deadlock detected")
    return month


@app.middleware
async def count_retries(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401
    retried[ctx.topic] += ctx.attempt == 2
    return await run()


def check_luck(ctx: Context, fails: int, trouble: str) -> None:
    if ctx.attempt <= fails:
        raise BadLuck(trouble)


# The jobs

JOBS: dict[Task[[int, int], Any, Any], int] = {
    make_thumbnail: 1_200,
    send_receipt: 2_000,
    capture_payment: 800,
    build_report: 1_000,
}
ALWAYS = 1_000


def calls() -> Iterator[Call[Any]]:
    """Iterate over the calls: every 33rd fails once, one in 400 always; every 10th is urgent, every 20th delayed."""
    for task, count in JOBS.items():
        for number in range(count):
            fails = ALWAYS if number % 400 == 7 else int(number % 33 == 0)
            delay = f"{500 + number}ms" if number % 20 == 3 else None
            yield task.using(priority=10 if number % 10 == 0 else 0, delay=delay, tags=["demo"]).call(number, fails)
