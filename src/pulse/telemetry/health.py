"""How does an orchestrator learn whether a worker or server lives and can take work? By a very small HTTP server.

    GET /livez    (also /healthz)  200 as long as the event loop runs
    GET /readyz                    200 if it takes work, the database answers and takes writes, and duties are done;
                                   else 503 and the reason
    GET /metrics                   for Prometheus, if the process has an engine

It runs on the worker's own event loop. When a handler blocks that loop there is no answer at all, which is right: such
a worker claims and reports nothing either.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pulse.model.errors import DatabaseReadOnly, InvalidOption, PulseError, SchemaMismatch
from pulse.model.prometheus_text import CONTENT_TYPE

if TYPE_CHECKING:
    from pulse.engine.metrics import Metrics

log = logging.getLogger("pulse.worker")

CLIENT_PATIENCE = 8.0  # seconds for a request and its answer, from the first byte to the last
LONGEST_HEAD = 8_192  # bytes
ASK_EVERY = 5.0  # seconds between two checks of the database, however many requests there are
ASK_PATIENCE = 3.0
FRESH = 30.0  # seconds for which an answer of the database is valid

Ask = Callable[[], Awaitable[object]]


class Reply(NamedTuple):
    status: HTTPStatus
    body: dict[str, object] | str  # JSON, or metrics


ALIVE = Reply(HTTPStatus.OK, {"status": "ok"})
BAD = Reply(HTTPStatus.BAD_REQUEST, {"status": "bad request", "why": "the request must be a short one of HTTP/1.1"})


class Process(Protocol):
    """The part of a worker or a server that its health depends on."""

    @property
    def is_ready(self) -> bool: ...


class Health:
    """Tells whether a worker or server lives and is ready.

    `ask` sends a cheap query to its database, `metrics` returns its metrics once it has any, and `is_open` tells
    whether everybody may see them.
    """

    def __init__(
        self,
        process: Process,
        ask: Ask,
        metrics: Callable[[], Metrics | None] = lambda: None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_open = is_open
        self._process = process
        self._ask = ask
        self._metrics = metrics
        self._asked_at = self._answered_at = -math.inf
        self._problem = ""
        self._lock = asyncio.Lock()

    async def reply(self, path: str) -> Reply:
        if path in ("/livez", "/healthz"):
            return ALIVE
        if path == "/readyz":
            why = await self.why_not_ready()
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "why": why}) if why else ALIVE
        if path == "/metrics" and (metrics := self._metrics()) is not None and self._is_open():
            return Reply(HTTPStatus.OK, await metrics.scrape())
        return Reply(HTTPStatus.NOT_FOUND, {"status": "not found", "why": "ask for /livez or /readyz"})

    async def why_not_ready(self) -> str:
        """Return the reason why it is not ready, or an empty text if it is."""
        if not self._process.is_ready:
            return "it is starting or stopping, and takes no work"
        async with self._lock:  # requests that come meanwhile share the answer
            if time.monotonic() - self._asked_at >= ASK_EVERY:
                await self._ask_database()
        if time.monotonic() - self._answered_at >= FRESH:
            return self._problem
        metrics = self._metrics()
        late = [health for health in metrics.healths if health.is_late] if metrics else []
        return "; ".join(f"the duty {health.name} has not been done for {health.age:.0f} s" for health in late)

    async def _ask_database(self) -> None:
        self._asked_at = asked_at = time.monotonic()
        try:
            async with asyncio.timeout(ASK_PATIENCE):
                await self._ask()
        except TimeoutError:
            self._problem = f"the database does not answer: no answer within {ASK_PATIENCE:.0f} s"
        except (SchemaMismatch, DatabaseReadOnly) as error:  # it has answered, but Pulse cannot work with it
            self._problem, self._answered_at = str(error), -math.inf
        except PulseError as error:
            self._problem = f"the database does not answer: {error}"
        else:
            self._answered_at = asked_at


@asynccontextmanager
async def serve_health(health: Health, *, host: str, port: int) -> AsyncIterator[int]:
    """Answer requests until the block ends. Yield the port, which is any free one for port 0."""
    try:
        server = await asyncio.start_server(_Client(health).serve, host, port, limit=LONGEST_HEAD)
    except (OSError, OverflowError) as error:
        raise InvalidOption("health port", f"{host}:{port}", f"be one that is free to listen on ({error})") from error
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()  # without waiting for it: a client that hangs must not keep the worker from ending


class _Client:
    def __init__(self, health: Health) -> None:
        self._health = health

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request. A client that misbehaves harms no other."""
        try:
            async with asyncio.timeout(CLIENT_PATIENCE):
                writer.write(await self._respond(reader))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            writer.transport.abort()
        except Exception:
            log.exception("a health request failed")
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path = _read_request(head)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return _write(BAD)
        if method not in ("GET", "HEAD"):
            return _write(Reply(HTTPStatus.METHOD_NOT_ALLOWED, {"status": "method not allowed"}), "Allow: GET, HEAD")
        reply = await self._health.reply(path)
        return _write(reply, has_body=method == "GET")


def _read_request(head: bytes) -> tuple[str, str]:
    """Return the method and the path without its query. The headers are read and ignored."""
    line = head.split(b"\r\n", 1)[0].decode("ascii")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise ValueError("the request must be HTTP/1.1")
    return parts[0], parts[1].partition("?")[0]


def _write(reply: Reply, *more: str, has_body: bool = True) -> bytes:
    is_text = isinstance(reply.body, str)
    body = str(reply.body).encode() if is_text else json.dumps(reply.body).encode() + b"\n"
    head = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        f"Content-Type: {CONTENT_TYPE if is_text else 'application/json'}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
        *more,
    ]
    return "\r\n".join([*head, "", ""]).encode("latin-1") + (body if has_body else b"")
