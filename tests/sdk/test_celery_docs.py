"""Is what the page for those who come from Celery says of Pulse true?"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator
from dataclasses import fields
from functools import partial
from typing import Any

import asyncpg
import pytest

from pulse import Context, JobHandle, JobStatus, Pulse, Retry, Task
from pulse.engine.engine import Engine
from pulse.model.jobs import JobFilter
from pulse.settings import Settings
from tests.sdk.apps_here import working
from tests.sdk.pages import DOCS, a_module, blocks, run
from tests.waiting import connected, until

PAGE = (DOCS / "how-to" / "from-celery.md").read_text()
TABLES = """
create table orders (id int, cents int, paid bool); create table pictures (id int, resized bool);
create table stocktakes (id int, missing int); insert into pictures values (1, false)
"""

straight = pytest.mark.parametrize("settings", ["direct"], indirect=True)


@pytest.fixture
async def conn(settings: Settings) -> AsyncIterator[asyncpg.Connection]:
    async with connected(settings.database_url) as conn:
        await conn.execute(TABLES)
        try:
            yield conn
        finally:
            await conn.execute("drop table orders, pictures, stocktakes")


@pytest.fixture
async def shop(settings: Settings, conn: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page as one module."""
    monkeypatch.setenv("DATABASE_URL", str(settings.database_url))
    names = a_module("shop.tasks", monkeypatch)
    for block in blocks(PAGE):
        await run(block, names)
    names["app"].settings = names["billing"].settings = settings
    return names


@straight
async def test_a_task_and_a_beat_entry_have_moved(
    shop: dict[str, Any], conn: asyncpg.Connection, engine: Engine
) -> None:
    app: Pulse = shop["app"]
    async with working(app):
        report = await app.schedules.async_()
        job = await app.schedules.atrigger("daily-report")
        assert await job.aresult(10) == "all is well in Berlin"
        await asyncio.to_thread(shop["place_order"], 42, 990)
        [later] = (await engine.jobs.list_page(JobFilter(topic="payments"))).jobs
        await engine.jobs.run_now(later.id)
        assert await app.handle(later.id).aresult(10) is None

    assert report.created == ["daily-report"]
    assert (later.status, later.max_attempts) == (JobStatus.SCHEDULED, 5)
    assert await conn.fetchval("select paid from orders where id = 42")


@straight
async def test_a_chain_goes_on_and_a_chord_comes_together(shop: dict[str, Any], engine: Engine) -> None:
    async with working(shop["app"]):
        await shop["resize"].aenqueue(1)
        await asyncio.to_thread(shop["take_stock"], 7, ["a", "b", "c"])
        for task, result in (("publish", '"picture 1"'), ("add_up", '"stocktake 7 is complete"')):
            await until(partial(_results, engine, f"shop.tasks.{task}", [result]))
        jobs = (await engine.jobs.list_page(JobFilter(status=JobStatus.COMPLETED))).jobs

    assert len(jobs) == 6


async def _results(engine: Engine, task: str, wanted: list[str]) -> bool:
    found = await engine.jobs.list_page(JobFilter(task=task, status=JobStatus.COMPLETED))
    return [job.result for job in found.jobs] == wanted


@straight
async def test_who_is_told_to_wait_is_not_charged(shop: dict[str, Any]) -> None:
    async with working(shop["app"]):
        handle = await shop["balance"].aenqueue("ada")
        await until(partial(_is_snoozed, handle))


async def _is_snoozed(handle: JobHandle[int]) -> bool:
    job = await handle.ajob()
    return (job.status, job.attempt, job.refunded) == (JobStatus.SCHEDULED, 1, 1)


@straight
async def test_a_task_is_called_by_name_from_elsewhere(shop: dict[str, Any], settings: Settings) -> None:
    elsewhere = Pulse(settings=settings)

    @elsewhere.task(name="billing.invoice")
    def invoice(order_id: int, *, copies: int = 1) -> str:
        return f"{copies} of {order_id}"

    async with working(elsewhere):
        handle = await shop["invoice"].aenqueue(42)
        assert await elsewhere.handle(handle.id).aresult(10) == "1 of 42"
    shop["billing"].close()


def test_every_word_it_uses_is_there() -> None:
    commands = (DOCS / "reference" / "cli.md").read_text()
    pulse_side = " ".join(row.split(" | ")[1] for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE))
    options = inspect.signature(Task.using).parameters.keys()

    for name in re.findall(r"\bctx\.(\w+)", PAGE):
        assert hasattr(Context, name), name
    for name in re.findall(r"\bhandle\.(\w+)", PAGE):
        assert hasattr(JobHandle, name), name
    for name in re.findall(r"`(?:@)?app\.(\w+)", pulse_side):
        assert hasattr(Pulse, name) or name == "schedules", name
    for name in re.findall(r"using\((\w+)=", PAGE):
        assert name in options, name
    for given in re.findall(r"Retry\(([^)]*…)\)", PAGE):
        assert set(re.findall(r"(\w+)=", given)) <= {each.name for each in fields(Retry)}
    for flag in re.findall(r"--\w+", PAGE):
        assert f"`{flag}" in commands, flag
    for command in re.findall(r"(?:`|\$ )pulse (\w+)", PAGE):
        assert f"`pulse {command}`" in commands, command


def test_every_word_that_people_look_for_is_there() -> None:
    celery = " ".join(re.findall(r"^\| ([^|]+) \|", PAGE, re.MULTILINE))
    words = (
        "delay apply_async countdown eta expires beat result backend acks_late visibility_timeout max_retries "
        "autoretry_for task_routes queues priority prefetch chain group chord rate_limit revoke send_task Flower -c -P"
    )

    assert [word for word in words.split() if word not in celery] == []
    for block in re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL):
        compile(block, "celery", "exec")
