"""How does the process of an MCP server run, from its start to its end?"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pulse.cli.exit_codes import OK, REFUSED
from pulse.cli.output import print_text
from pulse.cli.startup import set_up_logs
from pulse.cli.worker.process import exit_process
from pulse.doors.http.requests.port import send_at_once
from pulse.doors.mcp.door import McpDoor
from pulse.doors.mcp.http import PATH, HttpServer, McpGate, OwnToken, check_mcp_exposure, make_app
from pulse.engine.engine import open_engine
from pulse.event_loop import new_event_loop
from pulse.links.direct import DirectLink
from pulse.links.opening import open_link
from pulse.model.alarms import DEFAULT_OWNER
from pulse.model.errors import InvalidOption, InvalidSettings, PulseError
from pulse.model.network.server_url import Address, parse_listen
from pulse.model.text import check_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pulse.cli.session import Session
    from pulse.engine.tokens import Tokens
    from pulse.links.link import ProducerLink
    from pulse.settings import Settings

log = logging.getLogger("pulse.mcp")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """The flags of `pulse mcp`."""

    settings: Settings
    http: str | None = None  # None: stdin and stdout
    owner: str | None = None
    hosts: tuple[str, ...] = ()
    log_level: str | None = None
    log_format: str | None = None


class Backend(NamedTuple):
    link: ProducerLink
    tokens: Tokens | OwnToken | None  # None: callers need no token


def run_mcp(session: Session, options: McpOptions) -> NoReturn:
    """Serve until the client is gone or a signal comes, and end the process."""
    set_up_logs(options.log_level, options.log_format)
    try:
        _check_owner(options)
        with session.reachable_settings(options.settings) as found:
            # The runner is never closed: that would wait for the thread that reads stdin.
            asyncio.Runner(loop_factory=new_event_loop).run(_run(options, found))
        code = OK
    except PulseError as error:
        code = session.refuse(error)
    except Exception:
        log.exception("the MCP server failed")
        code = REFUSED
    exit_process(code)


def _check_owner(options: McpOptions) -> None:
    """Require an owner if a token is used with a server: only the server knows the owner of the token, and without it
    an agent could see the alarms of others."""
    owner = check_name("owner", options.owner or DEFAULT_OWNER)
    if options.settings.server_url and options.settings.token and owner == DEFAULT_OWNER:
        raise InvalidSettings("with a server and a token, the owner of the alarms must be given: use --owner NAME")


async def _run(options: McpOptions, settings: Settings) -> None:
    stop_requested = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop_requested.set)
    async with _open_backend(settings, owner=options.owner or DEFAULT_OWNER) as backend:
        door = McpDoor(backend.link, owner=options.owner or DEFAULT_OWNER)
        if options.http is not None:
            await _serve_http(options, settings, backend, door, stop_requested)
            return
        serving = asyncio.create_task(door.serve_stdio())
        stopping = asyncio.create_task(stop_requested.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if serving.done():
            serving.result()


@asynccontextmanager
async def _open_backend(settings: Settings, *, owner: str) -> AsyncIterator[Backend]:
    if settings.server_url is not None:
        async with open_link(settings) as link:
            yield Backend(link, OwnToken(settings.token, owner=owner) if settings.token else None)
        return
    async with open_engine(settings) as engine:
        direct = DirectLink(engine)
        direct.start_notifying()
        yield Backend(direct, engine.tokens if await engine.tokens.has_any() else None)


async def _serve_http(
    options: McpOptions, settings: Settings, backend: Backend, door: McpDoor, stop_requested: asyncio.Event
) -> None:
    assert options.http is not None
    wanted = parse_listen(options.http)
    check_mcp_exposure(wanted, has_tokens=backend.tokens is not None)
    if options.owner is not None and backend.tokens is not None and not isinstance(backend.tokens, OwnToken):
        raise InvalidSettings("the database has tokens, so the owner of alarms is that of the token: omit --owner")
    gate = McpGate(backend.tokens, calls_per_second=settings.calls_per_second)
    with _bind(wanted) as listener:
        address = Address(wanted.host, listener.getsockname()[1])
        deadline = settings.http_deadline.total_seconds()
        app = make_app(door.server, gate, host=wanted.host, names=options.hosts, deadline=deadline)
        server = HttpServer(app, deadline=deadline)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        _print_banner(address, has_tokens=backend.tokens is not None)
        stopping = asyncio.create_task(stop_requested.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        await serving


def _bind(wanted: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    try:
        listener = socket.create_server((wanted.host, wanted.port), family=family)
    except (OSError, OverflowError) as error:
        raise InvalidOption("http", str(wanted), f"be an address that can be listened on ({error})") from error
    send_at_once(listener)
    return listener


def _print_banner(address: Address, *, has_tokens: bool) -> None:
    lines = [f"Pulse MCP server, pid {os.getpid()}", f"  address   http://{address}{PATH}"]
    lines.append(f"  tokens    {'on' if has_tokens else 'off'}")
    print_text("\n".join(lines), to_stderr=True)
    if not address.is_loopback:
        log.warning("tokens and payloads are sent in clear text: put a proxy with TLS in front, or use a tunnel")
