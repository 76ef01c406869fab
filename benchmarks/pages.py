"""How long does each page of the dashboard take over a large database, and what do ten viewers cost?

A schema is filled once with ten million finished and a million waiting jobs; the server, the client and the database
share this machine. Then every page and filter is requested repeatedly, and the stream is watched by one and ten
viewers.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx

from pulse.server import open_server
from pulse.settings import Settings
from pulse.store.connections.pool import Connection
from pulse.store.statements import parse

SQL = Path(__file__).parent / "pages.sql"
TOPICS = 20
PORTION = 500_000
WATCH_SECONDS = 20.0
WARM_UP = 2  # requests that are not counted, which fill plans, templates and caches


class Timing(NamedTuple):
    path: str
    status: int
    p50: float  # milliseconds
    p95: float
    worst: float


class Watched(NamedTuple):
    viewers: int
    statements: float  # per second, of the whole server


async def fill(settings: Settings, *, finished: int, pending: int) -> None:
    """Fill the tables, unless that was done before."""
    conn = await asyncpg.connect(settings.database_url)
    statements = {found.name: found for found in parse(SQL.read_text(), settings.schema)}
    try:
        if await conn.fetchval("select exists (select from pulse.counts)"):
            return
        kinds = {
            "COMPLETED": finished * 97 // 100,
            "CANCELLED": finished * 2 // 100,
            "DEAD_LETTERED": finished // 100,
            "PENDING": pending,
            "SCHEDULED": 50_000,
            "RETRYING": 5_000,
            "RUNNING": 200,
        }
        newest = datetime.now(UTC)
        for status, number in kinds.items():
            for first in range(1, number + 1, PORTION):
                last = min(first + PORTION - 1, number)
                # Each portion spans the whole week, so that states and topics are mixed, as in production.
                await conn.execute(
                    statements["fill_jobs"].sql,
                    *ordered(
                        statements["fill_jobs"].parameters,
                        {
                            "status": status,
                            "topics": TOPICS,
                            "first": 1,
                            "last": last - first + 1,
                            "newest": newest,
                        },
                    ),
                )
        for name, given in (
            ("fill_attempts", {}),
            ("fill_counts", {}),
            ("fill_series", {"topics": TOPICS}),
            ("fill_schedules", {"number": 10_000}),
            ("fill_fires", {}),
            ("fill_alarms", {"number": 50_000}),
            ("fill_deliveries", {}),
        ):
            await conn.execute(statements[name].sql, *ordered(statements[name].parameters, given))
        await conn.execute("vacuum analyze")
    finally:
        await conn.close()


def ordered(parameters: tuple[str, ...], given: dict[str, Any]) -> list[Any]:
    return [given[name] for name in parameters]


async def paths(settings: Settings) -> list[str]:
    """Return the path of every page, and of the list of jobs with each filter."""
    conn = await asyncpg.connect(settings.database_url)
    try:
        job = await conn.fetchval("select id from pulse.jobs where status = 'DEAD_LETTERED' limit 1")
        alarm = await conn.fetchval("select id from pulse.alarms limit 1")
    finally:
        await conn.close()
    states = ("scheduled", "pending", "running", "retrying", "completed", "dead_lettered", "cancelled")
    filters = [
        *(f"status={state}" for state in states),
        *(f"status={state}&topic=topic+3" for state in states),
        "topic=topic+3",
        "task=shop.task_7",
        "task=nobody",
        "tag=vip",
        "tag=nobody",
        "error=card+77",
        "error=nowhere",
        "status=dead_lettered&error=nowhere",
        "after=nonsense",
    ]
    pages = ["/", "/?range=day", "/?range=week", "/jobs", *(f"/jobs?{each}" for each in filters), f"/jobs/{job}"]
    more = ["/topics/topic%203", "/workers", "/schedules", "/schedules?status=broken", "/schedules/schedule%207"]
    alarms = ["/alarms", "/alarms?status=failed", f"/alarms/{alarm}"]
    return [*pages, *more, "/schedules/calendar", "/schedules/new", *alarms, "/metrics", "/readyz"]


async def measure(settings: Settings, *, rounds: int) -> tuple[list[Timing], list[Watched]]:
    listening = replace(settings, listen="127.0.0.1:0", http_listen="127.0.0.1:0", keep_completed=timedelta(days=30))
    async with open_server(listening) as server, httpx.AsyncClient(timeout=60) as client:
        client.base_url = httpx.URL(f"http://{server.http_address}")
        timings = [await ask(client, path, rounds) for path in await paths(settings)]
        watched = [await watch(client, viewers) for viewers in (1, 10)]
    return timings, watched


async def ask(client: httpx.AsyncClient, path: str, rounds: int) -> Timing:
    took: list[float] = []
    status = 0
    for number in range(rounds + WARM_UP):
        began = time.perf_counter()
        answer = await client.get(path, headers={"accept": "text/html"})
        if number >= WARM_UP:
            took.append((time.perf_counter() - began) * 1_000)
        status = answer.status_code
    took.sort()
    return Timing(path, status, took[len(took) // 2], took[min(len(took) - 1, int(len(took) * 0.95))], took[-1])


async def watch(client: httpx.AsyncClient, viewers: int) -> Watched:
    """Count the statements of the server while this many viewers watch the first page."""
    asked: Counter[str] = Counter()
    rows = Connection.rows

    async def counted(self: Connection, name: str, **given: Any) -> Any:
        asked[name] += 1
        return await rows(self, name, **given)

    async with AsyncExitStack() as stack:
        for _ in range(viewers):
            answer = await stack.enter_async_context(client.stream("GET", "/live", timeout=None))
            stack.push_async_callback(cancel_later(asyncio.create_task(read(answer))))
        await asyncio.sleep(2)
        Connection.rows = counted  # type: ignore[method-assign,assignment]
        try:
            await asyncio.sleep(WATCH_SECONDS)
        finally:
            Connection.rows = rows  # type: ignore[method-assign]
    return Watched(viewers, sum(asked.values()) / WATCH_SECONDS)


def cancel_later(task: asyncio.Task[None]) -> Any:
    async def end() -> None:
        task.cancel()
        await asyncio.wait([task])

    return end


async def read(answer: httpx.Response) -> None:
    async for _ in answer.aiter_bytes():
        pass
