"""A server as curl meets it: on a real socket, by a client that knows nothing of ours."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from pulse.server import Server, open_server
from pulse.settings import Settings

ANYWHERE = "127.0.0.1:0"
# Nothing here speaks TLS, and a client of its own choosing would read the certificates of the whole world first.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Http(NamedTuple):
    """A running server and a client of it."""

    server: Server
    client: httpx.AsyncClient

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
        given: dict[str, Any] = {} if body is None else {"json": body}
        return await self.client.request(method, path, **given, **more)

    async def done(self, method: str, path: str, body: object = None, *, status: int = 200, **more: Any) -> Any:
        """What it answers, which must be this status."""
        response = await self.ask(method, path, body, **more)
        assert response.status_code == status, response.text
        return response.json()

    async def refused(self, method: str, path: str, body: object = None, **more: Any) -> tuple[int, str, str]:
        """The status, code and message of a refusal, which must be of the one shape."""
        return read_refusal(await self.ask(method, path, body, **more))


def read_refusal(response: httpx.Response) -> tuple[int, str, str]:
    assert response.status_code >= 400, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert response.json() == {"error": error}
    assert error.keys() == {"code", "message", "details"}
    return response.status_code, error["code"], error["message"]


@asynccontextmanager
async def served_http(settings: Settings, *, token: str | None = None, **changes: Any) -> AsyncIterator[Http]:
    listening = replace(settings, listen=ANYWHERE, http_listen=ANYWHERE, **changes)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with (
        open_server(listening) as server,
        httpx.AsyncClient(headers=headers, timeout=30, verify=NO_TLS) as client,
    ):
        client.base_url = httpx.URL(f"http://{server.http_address}")
        yield Http(server, client)


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")
