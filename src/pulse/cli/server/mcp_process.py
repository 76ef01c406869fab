"""What happens between the start of an MCP server's process and its end?"""

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
from pulse.cli.output import say
from pulse.cli.startup import set_up_logs
from pulse.cli.worker.process import leave
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
    from pulse.links.link import Producing
    from pulse.settings import Settings

log = logging.getLogger("pulse.mcp")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class McpPlan:
    """What the command line asked of an MCP server."""

    settings: Settings
    http: str | None = None  # none: stdin and stdout
    owner: str | None = None
    hosts: tuple[str, ...] = ()
    log_level: str | None = None
    log_format: str | None = None


class Backend(NamedTuple):
    link: Producing
    tokens: Tokens | OwnToken | None  # none: nobody has to show one


def run_mcp(session: Session, plan: McpPlan) -> NoReturn:
    """Serve until the client is gone or we are told to stop, and end the process."""
    set_up_logs(plan.log_level, plan.log_format)
    try:
        _check_owner(plan)
        with session.reach(plan.settings) as found:
            # Never closed, which would wait for the thread that reads our stdin.
            asyncio.Runner(loop_factory=new_event_loop).run(_run(plan, found))
        code = OK
    except PulseError as error:
        code = session.refuse(error)
    except Exception:
        log.exception("the MCP server failed")
        code = REFUSED
    leave(code)


def _check_owner(plan: McpPlan) -> None:
    """Behind a server, a token stands for an owner whom only the server knows: an agent must not get to see others'."""
    owner = check_name("owner", plan.owner or DEFAULT_OWNER)
    if plan.settings.server_url and plan.settings.token and owner == DEFAULT_OWNER:
        raise InvalidSettings(
            "through a server with a token it has to be said whose alarms these are: give --owner NAME"
        )


async def _run(plan: McpPlan, settings: Settings) -> None:
    told_to_stop = asyncio.Event()
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    async with _open_way(settings, owner=plan.owner or DEFAULT_OWNER) as way:
        door = McpDoor(way.link, owner=plan.owner or DEFAULT_OWNER)
        if plan.http is not None:
            await _serve_http(plan, settings, way, door, told_to_stop)
            return
        serving = asyncio.create_task(door.serve_stdio())
        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if serving.done():
            serving.result()


@asynccontextmanager
async def _open_way(settings: Settings, *, owner: str) -> AsyncIterator[Backend]:
    if settings.server_url is not None:
        async with open_link(settings) as link:
            yield Backend(link, OwnToken(settings.token, owner=owner) if settings.token else None)
        return
    async with open_engine(settings) as engine:
        direct = DirectLink(engine)
        direct.start_notifying()
        yield Backend(direct, engine.tokens if await engine.tokens.has_any() else None)


async def _serve_http(
    plan: McpPlan, settings: Settings, way: Backend, door: McpDoor, told_to_stop: asyncio.Event
) -> None:
    assert plan.http is not None
    wanted = parse_listen(plan.http)
    check_mcp_exposure(wanted, has_tokens=way.tokens is not None)
    if plan.owner is not None and way.tokens is not None and not isinstance(way.tokens, OwnToken):
        raise InvalidSettings("the database has tokens, so each caller's alarms are its token's: leave --owner out")
    gate = McpGate(way.tokens, calls_per_second=settings.calls_per_second)
    with _listening(wanted) as listener:
        address = Address(wanted.host, listener.getsockname()[1])
        deadline = settings.http_deadline.total_seconds()
        app = make_app(door.server, gate, host=wanted.host, names=plan.hosts, deadline=deadline)
        server = HttpServer(app, deadline=deadline)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        _introduce(address, has_tokens=way.tokens is not None)
        stopping = asyncio.create_task(told_to_stop.wait())
        await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        await serving


def _listening(wanted: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in wanted.host else socket.AF_INET
    try:
        listener = socket.create_server((wanted.host, wanted.port), family=family)
    except (OSError, OverflowError) as error:
        raise InvalidOption("http", str(wanted), f"be free to listen on ({error})") from error
    send_at_once(listener)
    return listener


def _introduce(address: Address, *, has_tokens: bool) -> None:
    lines = [f"Pulse MCP server, pid {os.getpid()}", f"  address   http://{address}{PATH}"]
    lines.append(f"  tokens    {'on' if has_tokens else 'off'}")
    say("\n".join(lines), to_stderr=True)
    if not address.is_loopback:
        log.warning("tokens and payloads travel in clear text: put a proxy with TLS in front, or use a tunnel")
