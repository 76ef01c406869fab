"""Two servers over one database, in a thread of their own: a handler that blocks its loop must not block them."""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from pulse.server import Server, open_server
from pulse.settings import Settings


class Served:
    """Started by `start`, which answers with settings that lead through them; `restart` with other settings."""

    def __init__(self, settings: Settings, *, count: int = 2) -> None:
        self._settings = settings
        self._count = count
        self._ports = [0] * count
        self._thread: threading.Thread | None = None

    def start(self, **changes: Any) -> Settings:
        self._is_up = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live(changes)), name="servers")
        self._thread.start()
        self._is_up.wait(20)
        if self._error is not None:
            raise self._error
        urls = ",".join(f"grpc://127.0.0.1:{port}" for port in self._ports)
        return replace(self._settings, server_url=urls)

    async def _live(self, changes: dict[str, Any]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.servers: list[Server] = []
                for number, port in enumerate(self._ports):
                    listening = replace(self._settings, **{"listen": f"127.0.0.1:{port}", "http_listen": ""} | changes)
                    server = await stack.enter_async_context(open_server(listening))
                    self.servers.append(server)
                    self._ports[number] = server.address.port
                self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
                self._is_up.set()
                await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._is_up.set()
            raise

    def stop(self) -> None:
        if self._thread is not None:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(30)

    def restart(self, **changes: Any) -> None:
        self.stop()
        self.start(**changes)
