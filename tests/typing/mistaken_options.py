"""Options and declarations that are wrong: every marked line, and no other, must be refused by each checker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pulse import Context, Job, Pulse, Retry
from tests.typing.tasks import double

soon = datetime.now(UTC)


async def work(number: int) -> int:
    return number


def using() -> None:
    double.using(dely="5m")  # error
    double.using(queue="mail")  # error
    double.using("mail")  # error
    double.using(topic=1)  # error
    double.using(priority="high")  # error
    double.using(delay=soon)  # error
    double.using(run_at="5m")  # error
    double.using(retry="5")  # error
    double.using(timeout=soon)  # error
    double.using(deadline=[soon])  # error
    double.using(unique_key=42)  # error
    double.using(unique_window=soon)  # error
    double.using(result_ttl=soon)  # error
    double.using(tags=[1])  # error
    double.using(name="other")  # error
    double.using(executor="process")  # error


def declaring(app: Pulse) -> None:
    app.task(tpoic="mail")(work)  # error
    app.task(topic=1)(work)  # error
    app.task(name=1)(work)  # error
    app.task(aliases=[1])(work)  # error
    app.task(executor="thread")(work)  # error
    app.task(priority="high")(work)  # error
    app.task(delay=soon)(work)  # error
    app.task(retry="5")(work)  # error
    app.task(timeout=soon)(work)  # error
    app.task(deadline=soon)(work)  # error
    app.task(unique_window=[1])(work)  # error
    app.task(result_ttl=soon)(work)  # error
    app.task(tags=[1])(work)  # error
    app.task(unique_key="k")(work)  # error
    app.task(run_at=soon)(work)  # error
    app.task(conn=object())(work)  # error
    app.task(cron=5)(work)  # error
    app.task(every=soon)(work)  # error
    app.task(cron="@daily", tz=1)(work)  # error
    app.task(crom="@daily")(work)  # error
    app.task(every="5m", catch_up="skip")(work)  # error
    app.task("mail")  # error
    app.task(topic="mail")("work")  # error


def scheduling(app: Pulse) -> None:
    app.schedules.create("x")  # error
    app.schedules.create("x", double, cron=5)  # error
    app.schedules.create("x", double, crom="@daily")  # error
    app.schedules.create("x", double, every=soon)  # error
    app.schedules.create("x", double, at="tomorrow")  # error
    app.schedules.create("x", double, args=[1], every=5)  # error
    app.schedules.create("x", work, every=5)  # error
    app.schedules.create("x", double, every=5, catch_up="all")  # error
    app.schedules.create("x", double, every=5, overlap="never")  # error
    app.schedules.create("x", double, every=5, tz=None)  # error
    app.schedules.declare("x", double, every=5, aliases=[1])  # error
    app.schedules.edit("x", replay_limit=None)  # error
    app.schedules.edit("x", name="y")  # error
    app.schedules.list(tags="x")  # error
    app.schedules.backfill("x")  # error
    app.schedules.sync("shop", deploy="5")  # error


def retrying() -> None:
    Retry("5")  # error
    Retry(attempts=5, backoff="linear")  # error
    Retry(on=OSError)  # error
    Retry(on=(1,))  # error
    Retry(base=soon)  # error
    Retry(atempts=5)  # error


async def declared_here(app: Pulse) -> None:
    @app.task
    def plain(number: int) -> str:
        return str(number)

    @app.task()
    async def empty(ctx: Context, number: int) -> str:
        return str(number * ctx.attempt)

    @app.task(topic="t", retry=2)
    async def full(number: int) -> UUID:
        return UUID(int=number)

    plain.enqueue("1")  # error
    empty.enqueue("1")  # error
    full.enqueue("1")  # error
    wrong: int = plain.enqueue(1).result()  # error
    other: int = await empty(1)  # error
    third: str = await (await full.aenqueue(1)).aresult()  # error
    _ = (
        wrong,
        other,
        third,
    )


def hooks(app: Pulse) -> None:
    def needs_something(name: str) -> None: ...

    async def takes_too_little(ctx: Context) -> Any: ...

    def is_sync(ctx: Context, run: Callable[[], Awaitable[Any]]) -> str:
        return ""

    async def takes_a_name(name: str) -> None: ...

    app.on_startup(needs_something)  # error
    app.on_shutdown(needs_something)  # error
    app.middleware(takes_too_little)  # error
    app.middleware(is_sync)  # error
    app.on_dead_letter(takes_a_name)  # error


async def hooks_stay_what_they_are(app: Pulse, job: Job) -> None:
    @app.on_startup
    def start() -> int:
        return 1

    @app.on_dead_letter
    async def tell(job: Job) -> None: ...

    start(1)  # error
    text: str = start()  # error
    tell(job)  # error
    await tell()  # error
    _ = (text,)


def in_a_handler(ctx: Context) -> None:
    ctx.job_id = UUID(int=1)  # error
    ctx.progres(1)  # error
    attempt: str = ctx.attempt  # error
    _ = (attempt,)
    raise ctx.retry()  # error


def in_another(ctx: Context) -> None:
    ctx.snooze(soon)  # error
