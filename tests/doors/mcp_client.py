"""An agent's side of `pulse mcp`, as a test has it: the official client, over a real process."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.doors.command_line import environment
from tests.doors.worker_processes import PATIENCE, Started, started


class Agent:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the tool answers: the same as text and as data."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        answer: dict[str, Any] = result.structured_content
        return answer

    async def refused(self, tool: str, **arguments: Any) -> dict[str, str]:
        """The error it answers with."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        said: dict[str, dict[str, str]] = json.loads(result.content[0].text)  # type: ignore[union-attr]
        assert "Traceback" not in str(said)
        return said["error"]


@asynccontextmanager
async def over_stdio(*args: str, folder: Path, mode: str = "auto", **env: str) -> AsyncIterator[Agent]:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "pulse.cli.main", "mcp", *args],
        env=environment(PYTHONPATH=os.environ.get("PYTHONPATH", ""), **env),
        cwd=folder,
    )
    async with Client(server, mode=mode, read_timeout_seconds=PATIENCE) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(url: str, *, token: str | None = None, mode: str = "auto", **headers: str) -> AsyncIterator[Agent]:
    shown = headers | ({"authorization": f"Bearer {token}"} if token else {})
    async with httpx2.AsyncClient(headers=shown, timeout=PATIENCE) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=PATIENCE) as client:
            yield Agent(client)


def url_of(running: Started) -> str:
    found: re.Match[str] = running.expect(r"address +(http://\S+/mcp)")
    return found[1]


__all__ = ["Agent", "over_http", "over_stdio", "started", "url_of"]
