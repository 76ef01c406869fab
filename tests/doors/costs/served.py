"""A process with every door of Pulse open, for a test that watches what it costs. Run with the URL of a database."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

from pulse.doors.mcp.door import McpDoor
from pulse.doors.mcp.http import HttpServer, McpGate, make_app
from pulse.links.direct import DirectLink
from pulse.server import open_server
from pulse.settings import Settings


def settings_of(url: str) -> Settings:
    buckets = int(os.environ.get("PULSE_BUCKETS", "1"))
    any_port, loopback = "127.0.0.1:0", "127.0.0.0/8"
    return Settings(database_url=url, buckets=buckets, listen=any_port, http_listen=any_port, alarm_networks=loopback)


async def serve(url: str) -> None:
    async with open_server(settings_of(url)) as server:
        door = McpDoor(DirectLink(server._engine), owner="local")
        app = make_app(door.server, McpGate(None, calls_per_second=1e9), host="127.0.0.1")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            mcp = HttpServer(app)
            serving = asyncio.create_task(mcp.serve(sockets=[listener]))
            address = server.http_address
            assert address is not None
            ports = {"grpc": server.address.port, "http": address.port, "mcp": listener.getsockname()[1]}
            sys.stdout.write(json.dumps(ports) + "\n")
            sys.stdout.flush()
            await asyncio.to_thread(sys.stdin.read)  # until the test lets go
            mcp.should_exit = True
            await serving


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
