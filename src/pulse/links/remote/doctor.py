"""How is an installation examined through its servers? By their answers, releases and connected workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from pulse.links.remote.errors import read_error
from pulse.links.remote.jobs import RemoteEngine
from pulse.links.remote.servers import Servers
from pulse.model.doctor import diagnoses as judge
from pulse.model.doctor.findings import ServerSeen
from pulse.model.errors import PulseError
from pulse.version import __version__
from pulse.wire.v1 import pulse_pb2 as pb

if TYPE_CHECKING:
    from pulse.links.remote.servers import Server
    from pulse.model.doctor.findings import Finding
    from pulse.settings import Settings

PATIENCE = 5.0  # seconds


async def examine(settings: Settings) -> list[Finding]:
    async with Servers(settings) as servers:
        seen = sorted(await asyncio.gather(*map(_ask, servers.all)), key=lambda server: server.address)
        found = judge.judge_servers(seen, __version__)
        if all(server.version is None for server in seen):
            return found
        return found + await _judge_workers(RemoteEngine(servers))


async def _ask(server: Server) -> ServerSeen:
    """Ask one server for its release, without falling back to another."""
    try:
        info = await server.info.GetServerInfo(pb.GetServerInfoRequest(), timeout=PATIENCE, wait_for_ready=True)
    except grpc.aio.AioRpcError as error:
        return ServerSeen(server.target, None, str(read_error(error)))
    return ServerSeen(server.target, info.version)


async def _judge_workers(engine: RemoteEngine) -> list[Finding]:
    try:
        return judge.judge_workers(await engine.workers.list(), {}, __version__)
    except PulseError as error:  # such as a token without the scope
        return [judge.warn("workers", f"workers could not be listed: {error}")]
