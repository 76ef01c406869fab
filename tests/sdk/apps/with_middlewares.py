"""Middlewares around handlers that run in processes of their own."""

from __future__ import annotations

import asyncio

from pulse import Context, Pulse
from pulse.sdk.app import Next

app = Pulse()
passed: list[str] = []


@app.middleware
async def outer(ctx: Context, run: Next) -> list[str]:
    passed.append(f"before {ctx.task.rpartition('.')[2]}")
    return [*await run(), "after outer"]


@app.middleware
async def inner(ctx: Context, run: Next) -> list[str]:
    passed.append("then inner")
    return [*await run(), "after inner"]


@app.task(executor="process")
async def awaited() -> list[str]:
    return passed.copy()


@app.task(executor="process")
def with_a_loop_of_its_own() -> list[str]:
    return asyncio.run(copied())


async def copied() -> list[str]:
    return passed.copy()
