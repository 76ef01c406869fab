"""Declarations that are right: hooks and middleware stay the functions they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, assert_type

from pulse import Context, Job, Pulse, Retry, Task

app = Pulse("postgresql://localhost/shop")


class Client:
    def close(self) -> None: ...


@app.on_startup
def connect() -> None: ...


@app.on_startup
async def warm_up() -> None: ...


@app.on_startup
def make_client() -> Client:
    """What a hook returns is nobody's business."""
    return Client()


@app.on_shutdown
async def close() -> None: ...


@app.middleware
async def timed(ctx: Context, run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()


@app.on_dead_letter
def page_someone(job: Job) -> None: ...


@app.on_dead_letter
async def file_a_ticket(job: Job) -> str:
    return job.task


async def they_stay_what_they_are() -> None:
    connect()
    await warm_up()
    assert_type(make_client(), Client)
    await close()


async def so_do_those_with_parameters(ctx: Context, job: Job, run: Callable[[], Awaitable[int]]) -> None:
    await timed(ctx, run)
    page_someone(job)
    assert_type(await file_a_ticket(job), str)


def tasks_made_in_functions(pulse: Pulse) -> Task[..., int, int]:
    def count(text: str) -> int:
        return len(text)

    assert_type(pulse.task(count).enqueue("x").result(), int)
    return pulse.task(name="count", retry=Retry(backoff="exponential", base="2s"))(count)
