"""One alarm, set through every door there is: HTTP, gRPC, MCP, the command line and Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from mcp import Client as McpClient

from pulse import Pulse
from pulse.doors.mcp.door import McpDoor
from pulse.engine.engine import open_engine
from pulse.errors import PulseError
from pulse.links.direct import DirectLink
from pulse.settings import Settings
from pulse.wire.v1 import pulse_pb2 as pb
from tests.doors.command_line import call
from tests.doors.grpc_client import Client, connected, refused
from tests.doors.http_client import Http, served_http
from tests.doors.mcp_client import Agent

URL = "http://127.0.0.1:9/hook"
FLAGS = {"delay_seconds": "--delay", "fire_at": "--fire-at", "cron_expr": "--cron", "tz": "--tz"}
OPTIONS = {"delay_seconds": "delay", "fire_at": "fire_at", "cron_expr": "cron", "tz": "tz"}


class Doors:
    """All of them, over one database. What an alarm is given is named as in the source documents."""

    def __init__(self, settings: Settings, http: Http, grpc: Client, mcp: McpDoor, app: Pulse) -> None:
        self.settings, self.http, self.grpc, self.app = settings, http, grpc, app
        self._mcp = mcp

    def _request(self, given: dict[str, Any]) -> pb.SetAlarmRequest:
        request = dict(given)
        if "fire_at" in request:
            instant = Timestamp()
            instant.FromDatetime(datetime.fromisoformat(request["fire_at"]))
            request["fire_at"] = instant
        return pb.SetAlarmRequest(url=URL, **request)

    def _flags(self, given: dict[str, Any]) -> list[str]:
        said = {name: f"{value}s" if name == "delay_seconds" else value for name, value in given.items()}
        return [part for name, value in said.items() for part in (FLAGS[name], value)]

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        said = {OPTIONS[name]: value for name, value in given.items()}
        if "delay" in said:
            said["delay"] = timedelta(seconds=said["delay"])
        return said

    async def _call(self, given: dict[str, Any]) -> Any:
        env = {"PULSE_DATABASE_URL": str(self.settings.database_url), "PULSE_ALARM_NETWORKS": "127.0.0.0/8"}
        return await asyncio.to_thread(call, "--json", "alarms", "set", *self._flags(given), "--url", URL, **env)

    async def set(self, **given: Any) -> dict[str, datetime]:
        """When the alarm fires first, by the door it was set through."""
        http = await self.http.done("POST", "/v1/alarms", {"url": URL} | given, status=201)
        grpc = (await self.grpc.alarms.SetAlarm(self._request(given))).alarm
        async with McpClient(self._mcp.server) as client:
            agent = await Agent(client).call("alarm_set", url=URL, **given)
        command = await self._call(given)
        assert command.exit_code == 0, command.output
        mine = await self.app.alarms.aset(url=URL, **self._options(given))
        assert mine.next_fire_at is not None
        written = {"http": http, "mcp": agent, "cli": json.loads(command.stdout)}
        found = {door: datetime.fromisoformat(each["next_fire_at"]) for door, each in written.items()}
        return found | {"python": mine.next_fire_at, "grpc": grpc.next_fire_at.ToDatetime(UTC)}

    async def refusals(self, *without: str, **given: Any) -> dict[str, str]:
        """What each door says to it, which all must refuse; `without` are doors by which it cannot be said."""
        found: dict[str, str] = {}
        if "http" not in without:
            status, _, found["http"] = await self.http.refused("POST", "/v1/alarms", {"url": URL} | given)
            assert status == 400
        if "grpc" not in without:
            found["grpc"] = (await refused(self.grpc.alarms.SetAlarm(self._request(given)))).message
        if "mcp" not in without:
            async with McpClient(self._mcp.server) as client:
                found["mcp"] = (await Agent(client).refused("alarm_set", url=URL, **given))["message"]
        if "cli" not in without:
            command = await self._call(given)
            assert command.exit_code != 0
            found["cli"] = command.stderr
        if "python" not in without:
            found["python"] = await self._refused_in_python(given)
        return found

    async def _refused_in_python(self, given: dict[str, Any]) -> str:
        try:
            await self.app.alarms.aset(url=URL, **self._options(given))
        except PulseError as error:
            return str(error)
        raise AssertionError(f"Python takes {given}")


@asynccontextmanager
async def open_doors(settings: Settings) -> AsyncIterator[Doors]:
    app = Pulse(settings=settings)
    try:
        async with (
            served_http(settings) as http,
            connected(str(http.server.address)) as grpc,
            open_engine(settings) as engine,
        ):
            yield Doors(settings, http, grpc, McpDoor(DirectLink(engine), owner="local"), app)
    finally:
        app.close()
