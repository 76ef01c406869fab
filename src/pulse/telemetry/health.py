"""How does an orchestrator learn whether a worker or a server lives, and can take work? Over a very small HTTP server.

    GET /livez    (also /healthz)  200 as long as the event loop turns
    GET /readyz                    200 when it takes work, the database answers and takes writes, and duties are done;
                                   else 503 and why
    GET /metrics                   for Prometheus, of a process that has an engine

It lives on the worker's own loop. When a handler keeps that from turning there is no answer at all, which is the
answer: such a worker claims and reports nothing either.
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

CLIENT_PATIENCE = 8.0  # seconds a client has for its request and for reading our answer, and we for writing it
LONGEST_HEAD = 8_192  # bytes
ASK_EVERY = 5.0  # seconds between two questions to the database, however often we are asked
ASK_PATIENCE = 3.0
FRESH = 30.0  # seconds an answer of the database counts

Ask = Callable[[], Awaitable[object]]


class Reply(NamedTuple):
    status: HTTPStatus
    body: dict[str, object] | str  # JSON, or metrics


ALIVE = Reply(HTTPStatus.OK, {"status": "ok"})
BAD = Reply(HTTPStatus.BAD_REQUEST, {"status": "bad request", "why": "that is not a short HTTP/1.1 request"})


class Patient(Protocol):
    """A worker or a server, as far as health looks at it."""

    @property
    def is_ready(self) -> bool: ...


class Health:
    """Whether one of them lives and is ready. `ask` puts a cheap question to its database; `metrics` are its own, once
    it has any, and `is_open` tells whether everybody may see them."""

    def __init__(
        self,
        patient: Patient,
        ask: Ask,
        metrics: Callable[[], Metrics | None] = lambda: None,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        self._is_open = is_open
        self._patient = patient
        self._ask = ask
        self._metrics = metrics
        self._asked_at = self._answered_at = -math.inf
        self._trouble = ""
        self._lock = asyncio.Lock()

    async def reply(self, path: str) -> Reply:
        if path in ("/livez", "/healthz"):
            return ALIVE
        if path == "/readyz":
            why = await self.why_not_ready()
            return Reply(HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "why": why}) if why else ALIVE
        if path == "/metrics" and (metrics := self._metrics()) is not None and self._is_open():
            return Reply(HTTPStatus.OK, await metrics.scrape())
        return Reply(HTTPStatus.NOT_FOUND, {"status": "not found", "why": "there are /livez and /readyz"})

    async def why_not_ready(self) -> str:
        """Empty: it is."""
        if not self._patient.is_ready:
            return "it is starting or stopping, and takes no work"
        async with self._lock:  # whoever asks meanwhile shares the answer
            if time.monotonic() - self._asked_at >= ASK_EVERY:
                await self._ask_database()
        if time.monotonic() - self._answered_at >= FRESH:
            return self._trouble
        metrics = self._metrics()
        late = [health for health in metrics.healths if health.is_late] if metrics else []
        return "; ".join(f"the duty {health.name} has not been done for {health.age:.0f} s" for health in late)

    async def _ask_database(self) -> None:
        self._asked_at = asked_at = time.monotonic()
        try:
            async with asyncio.timeout(ASK_PATIENCE):
                await self._ask()
        except TimeoutError:
            self._trouble = f"the database does not answer: no answer within {ASK_PATIENCE:.0f} s"
        except (SchemaMismatch, DatabaseReadOnly) as error:  # it has answered, and nothing of ours can be done
            self._trouble, self._answered_at = str(error), -math.inf
        except PulseError as error:
            self._trouble = f"the database does not answer: {error}"
        else:
            self._answered_at = asked_at


@asynccontextmanager
async def serve_health(health: Health, *, host: str, port: int) -> AsyncIterator[int]:
    """Answer until the block ends; hands out the port, which for 0 is any free one."""
    try:
        server = await asyncio.start_server(_Client(health).serve, host, port, limit=LONGEST_HEAD)
    except (OSError, OverflowError) as error:
        raise InvalidOption("health port", f"{host}:{port}", f"be free to listen on ({error})") from error
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()  # not waited for: a client that hangs must not keep a worker


class _Client:
    def __init__(self, health: Health) -> None:
        self._health = health

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer. Whatever a client does, it does it to itself."""
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
    """The method and the path without its query. Headers are of no interest, but must be there to be skipped."""
    line = head.split(b"\r\n", 1)[0].decode("ascii")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise ValueError("that is not HTTP/1.1")
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
