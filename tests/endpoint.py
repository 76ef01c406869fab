"""A URL that alarms can wake: it answers as a test tells it to, and remembers who came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiohttp import web


class Call(NamedTuple):
    path: str
    headers: dict[str, str]  # with names in lower case
    body: dict[str, Any]
    raw: bytes
    at: datetime
    method: str

    @property
    def wake_id(self) -> str:
        return self.headers["webhook-id"]


Answer = Callable[[web.Request], "web.Response | None"]


class Endpoint:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.url = ""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.text = "thanks"
        self.gate = asyncio.Event()  # closed, nobody gets an answer
        self.gate.set()
        self.arrived = asyncio.Condition()

    async def answer(self, request: web.Request) -> web.Response:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append(Call(request.path, headers, json.loads(raw), raw, datetime.now(UTC), request.method))
        async with self.arrived:
            self.arrived.notify_all()
        await self.gate.wait()
        return web.Response(status=self.status, headers=self.headers, text=self.text)

    async def until(self, calls: int, within: float = 10) -> None:
        async with asyncio.timeout(within), self.arrived:
            await self.arrived.wait_for(lambda: len(self.calls) >= calls)


@asynccontextmanager
async def open_endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", endpoint.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    endpoint.url = f"http://127.0.0.1:{port}/hook"
    try:
        yield endpoint
    finally:
        endpoint.gate.set()
        await runner.cleanup()
