"""How does an agent set its own alarms? Over MCP: the tools of mcp_tools.py, in the words of that protocol.

What Pulse refuses is an answer the agent can read and mend, with a code and a message, never a traceback.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import mcp_types as types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from pulse.doors.access import LOCAL, caller
from pulse.doors.mcp.tools import INSTRUCTIONS, TOOLS, Tool, ToolContext, read_arguments, schema_of
from pulse.doors.owners import own_owner
from pulse.model.errors import InvalidInput, PulseError
from pulse.version import __version__

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from pulse.links.link import Producing

log = logging.getLogger("pulse.mcp")

INTERNAL = {"code": "internal", "message": "Pulse failed; the log of `pulse mcp` says why"}


class McpDoor:
    """The tools over one link. Without a token behind the call, alarms are `owner`'s; else they are the token's."""

    def __init__(self, link: Producing, *, owner: str) -> None:
        self._link = link
        self._owner = owner
        self._tools = {tool.name: tool for tool in TOOLS}
        self.server: Server[Any] = Server(
            "pulse",
            version=__version__,
            title="Pulse: alarms and jobs",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def serve_stdio(self) -> None:
        """Until the client closes our stdin. Nothing else can reach stdout meanwhile: the transport has it."""
        async with stdio_server() as (read, write):
            await self.server.run(read, write, self.server.create_initialization_options())

    async def _list(
        self, _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_shown(tool) for tool in TOOLS])

    async def _call(self, _: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer = await self._do(params.name, params.arguments or {})
        except PulseError as error:
            log.info("%s was refused: %s", params.name[:60], error.code)
            return _refusal({"code": error.code, "message": str(error)})
        except Exception:
            log.exception("%s failed", params.name[:60])
            return _refusal(INTERNAL)
        return _result(msgspec.to_builtins(answer))

    async def _do(self, name: str, arguments: dict[str, Any]) -> msgspec.Struct:
        tool = self._tools.get(name)
        if tool is None:
            raise InvalidInput(f"there is no tool {name[:60]!r}: there are {', '.join(self._tools)}")
        asker = caller.get(LOCAL)
        owner = self._owner if asker.is_trusted else own_owner(asker)
        return await tool.do(ToolContext(self._link, asker, owner), read_arguments(tool.takes, arguments))


def _shown(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema_of(tool.takes),
        output_schema=schema_of(tool.answers),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_reading,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_repeatable or tool.is_reading,
            open_world_hint=False,
        ),
    )


def _result(document: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(document)], structured_content=document)


def _refusal(error: dict[str, str]) -> types.CallToolResult:
    document = {"error": error}
    return types.CallToolResult(content=[_text(document)], structured_content=document, is_error=True)


def _text(document: dict[str, Any]) -> types.TextContent:
    """The same once more, for clients that read only text."""
    return types.TextContent(type="text", text=json.dumps(document, ensure_ascii=False))
