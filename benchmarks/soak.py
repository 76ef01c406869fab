"""Should finished jobs leave the hot table? `python -m benchmarks soak` compares both designs in turn.

It submits, claims and completes jobs for a while, with and without an old snapshot held elsewhere, which keeps vacuum
from removing anything. It uses bare SQL on the real columns, so that only the design differs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from pulse.model.ids import Mint
from pulse.settings import Settings
from pulse.store.connections.pool import connect_options
from pulse.store.statements import parse

SQL = {found.name: found.sql for found in parse((Path(__file__).parent / "soak.sql").read_text(), "pulse")}
BATCH = 100
SUBMIT = 500
MAX_WAITING = 20_000
START = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


class Soak(NamedTuple):
    design: str
    is_pinned: bool
    jobs: int
    first_third: int
    last_third: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds


async def compare(settings: Settings, *, seconds: float, rounds: int) -> list[Soak]:
    found = []
    for is_pinned in (False, True):
        for number in range(rounds):
            for design in ("one", "move") if number % 2 else ("move", "one"):
                found.append(await soak(settings, design, seconds, is_pinned=is_pinned))
    return found


async def soak(settings: Settings, design: str, seconds: float, *, is_pinned: bool) -> Soak:
    admin = await asyncpg.connect(settings.database_url)
    await admin.execute(SQL["create_schema"])
    await admin.execute("checkpoint")
    holder = await asyncpg.connect(settings.database_url)
    if is_pinned:
        await holder.execute("begin isolation level repeatable read; select count(*) from soak.jobs")
    run = _Run(settings, design, seconds)
    await asyncio.gather(run.produce(), run.consume(), run.consume())
    await holder.close()
    await admin.close()
    third = seconds / 3
    first = sum(count for at, count in run.completed if at < third)
    last = sum(count for at, count in run.completed if at >= 2 * third)
    total = sum(count for _, count in run.completed)
    return Soak(design, is_pinned, total, first, last, seconds)


class _Run:
    def __init__(self, settings: Settings, design: str, seconds: float) -> None:
        self.settings, self.complete = settings, SQL[f"complete_{design}"]
        self.began = time.perf_counter()
        self.ends = self.began + seconds
        self.waiting = 0
        self.completed: list[tuple[float, int]] = []

    async def produce(self) -> None:
        conn = await asyncpg.connect(**connect_options(self.settings))
        mint = Mint()
        while time.perf_counter() < self.ends:
            if self.waiting > MAX_WAITING:
                await asyncio.sleep(0.005)
                continue
            await conn.fetch(SQL["submit"], mint.ids([0] * SUBMIT))
            self.waiting += SUBMIT
        await conn.close()

    async def consume(self) -> None:
        conn: Any = await asyncpg.connect(**connect_options(self.settings))
        mark, scanned_at = START, 0.0
        while (now := time.perf_counter()) < self.ends:
            if now - scanned_at > 1:
                mark, scanned_at = START, now
            rows = await conn.fetch(SQL["claim"], BATCH, *mark)
            if not rows:
                mark = START
                await asyncio.sleep(0.001)
                continue
            mark = (rows[-1]["ready_at"], rows[-1]["id"])
            await conn.fetch(self.complete, [row["id"] for row in rows], [row["lease_id"] for row in rows])
            self.waiting -= len(rows)
            self.completed.append((time.perf_counter() - self.began, len(rows)))
        await conn.close()


def summarize(soaks: list[Soak]) -> list[tuple[str, bool, float, float]]:
    """Return for each design and case the median rate, and the last third as a share of the first."""
    return [
        (
            design,
            is_pinned,
            statistics.median(soak.rate for soak in group),
            statistics.median(soak.last_third / soak.first_third for soak in group),
        )
        for is_pinned in (False, True)
        for design in ("one", "move")
        if (group := [soak for soak in soaks if (soak.design, soak.is_pinned) == (design, is_pinned)])
    ]
