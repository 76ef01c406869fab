"""Asking again until something is so, and plain connections to ask on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg


@asynccontextmanager
async def connected(url: str | None) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        conn.terminate()


async def until(condition: Callable[[], Awaitable[object]], within: float = 5) -> None:
    """Ask again and again: there is no event for what another session does. Fails after so many seconds."""
    async with asyncio.timeout(within):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.005)
