"""Declarations that are right: hooks and middleware stay the functions they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, assert_type

from pulse import CatchUp, Context, Fire, Job, JobHandle, Overlap, Pulse, Retry, Schedule, ScheduleStatus, Task

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


@app.task(cron="0 9 * * 1-5", tz="Europe/Berlin", topic="reports")
async def weekdays(ctx: Context, copies: int = 1) -> int:
    return copies


@app.task(every=timedelta(minutes=5))
def poll() -> str:
    return ""


app.schedules.declare("london", weekdays.using(priority=3), payload={"copies": 2}, cron="@daily", aliases=["uk"])
app.schedules.declare("import", "crm.import", every="1h", catch_up="skip", overlap=Overlap.BUFFER_ONE, jitter=5)


def a_timed_task_keeps_its_types() -> None:
    assert_type(weekdays.enqueue(copies=2), JobHandle[int])
    assert_type(poll(), str)


def schedules(soon: datetime) -> None:
    made = app.schedules.create("a", poll, run_at=soon, catch_up=CatchUp.REPLAY, replay_limit=5, max_occurrences=2)
    assert_type(made, Schedule)
    assert_type(made.status, ScheduleStatus)
    app.schedules.create("b", "crm.import", payload={"a": [1]}, delay=60, tz="UTC", starts_at=soon, ends_at=None)
    app.schedules.edit(made.id, every="5m", ends_at=None, jitter=None, max_occurrences=None)
    app.schedules.edit("a", task=weekdays, payload={})
    assert_type(app.schedules.list(status="active", paused=False, limit=5).schedules, list[Schedule])
    assert_type(app.schedules.fires("a").fires, list[Fire])
    app.schedules.trigger("a").result(timeout=5)
    app.schedules.backfill("a", start=soon, end=soon, dry_run=True)
    assert_type(app.schedules.sync("shop", deploy=5).created, list[str])


async def schedules_from_coroutines() -> None:
    assert_type(await app.schedules.acreate("a", poll, cron="@daily"), Schedule)
    assert_type(await app.schedules.aedit("a", tz="Europe/Berlin"), Schedule)
    await app.schedules.async_()
