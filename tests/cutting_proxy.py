"""A way to Postgres that breaks where a test wants it: after a statement was carried out, before its answer arrives."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from pulse.settings import Settings


class CuttingProxy:
    """Passes everything on, and cuts a connection instead of passing on an answer that has `marker` in it."""

    def __init__(self, socket: str, marker: bytes) -> None:
        self._socket = socket
        self._marker = marker
        self.cuts_left = 0
        self.cuts = 0
        self._serving: set[asyncio.Task[None]] = set()

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._socket)
        ways = [asyncio.create_task(self._pass_on(reader, back)), asyncio.create_task(self._answer(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for end in (back, writer):
                end.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                if self.cuts_left and self._marker in data:
                    self.cuts_left -= 1
                    self.cuts += 1
                    await asyncio.sleep(0.02)  # its last bytes may be on the way still, and the commit with them
                    return
                writer.write(data)
                await writer.drain()


@asynccontextmanager
async def open_cutting_proxy(settings: Settings, marker: bytes) -> AsyncIterator[tuple[CuttingProxy, Settings]]:
    """The proxy, and settings that lead through it."""
    direct = str(settings.database_url)
    query = {name: values[0] for name, values in parse_qs(urlsplit(direct).query).items()}
    name = f".s.PGSQL.{query['port']}"
    folder = tempfile.mkdtemp(prefix="cut", dir="/tmp")
    proxy = CuttingProxy(f"{query['host']}/{name}", marker)
    server = await asyncio.start_unix_server(proxy.begin, str(Path(folder) / name))
    url = direct.replace(query["host"], folder)
    try:
        yield proxy, replace(settings, database_url=url)
    finally:
        server.close()
        await proxy.close()
        shutil.rmtree(folder)
