"""How is the server of a benchmark started and stopped?"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pulse.links.opening import open_link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pulse.settings import Settings


@asynccontextmanager
async def run_server(settings: Settings) -> AsyncIterator[Settings]:
    """Run a server process for this database, and yield settings that use it."""
    address = f"127.0.0.1:{_free_port()}"
    env = {
        "PULSE_DATABASE_URL": str(settings.database_url),
        "PULSE_SCHEMA": settings.schema,
        "PULSE_NOTIFY": str(int(settings.notify)),
        "PULSE_LISTEN": address,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pulse.cli.main", "server", "--log-level", "error", "--http-listen", ""),
        env=os.environ | env,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        remote = replace(settings, server_url=f"grpc://{address}")
        async with open_link(remote):  # waits until the server answers
            pass
        yield remote
    finally:
        process.terminate()
        await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
