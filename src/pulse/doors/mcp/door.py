"""How does an agent call the tools of tools.py? This file serves them over the Model Context Protocol.

When Pulse refuses a call, the agent gets a result with a code and a message, so that it can correct the call. It never
gets a traceback.
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

    from pulse.links.link import ProducerLink

log = logging.getLogger("pulse.mcp")

INTERNAL = {"code": "internal", "message": "Pulse failed; the log of `pulse mcp` says why"}


class McpDoor:
    """Serves the tools over one link. Alarms belong to the owner of the caller's token; without a token, to `owner`."""

    def __init__(self, link: ProducerLink, *, owner: str) -> None:
        self._link = link
        self._owner = owner
        self._tools = {tool.name: tool for tool in TOOLS}
        self.server: Server[Any] = Server(
            "pulse",
            version=__version__,
            title="Pulse: alarms and jobs",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def serve_stdio(self) -> None:
        """Serve until the client closes our stdin. Meanwhile only the transport can write to stdout."""
        async with stdio_server() as (read, write):
            await self.server.run(read, write, self.server.create_initialization_options())

    async def _list_tools(
        self, _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(tool) for tool in TOOLS])

    async def _call_tool(
        self, _: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            output = await self._run(params.name, params.arguments or {})
        except PulseError as error:
            log.info("%s was refused: %s", params.name[:60], error.code)
            return _error_result({"code": error.code, "message": str(error)})
        except Exception:
            log.exception("%s failed", params.name[:60])
            return _error_result(INTERNAL)
        return _result(msgspec.to_builtins(output))

    async def _run(self, name: str, arguments: dict[str, Any]) -> msgspec.Struct:
        tool = self._tools.get(name)
        if tool is None:
            raise InvalidInput(f"there is no tool {name[:60]!r}: the tools are {', '.join(self._tools)}")
        current = caller.get(LOCAL)
        owner = self._owner if current.is_trusted else own_owner(current)
        return await tool.run(ToolContext(self._link, current, owner), read_arguments(tool.input_type, arguments))


def _describe(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=schema_of(tool.input_type),
        output_schema=schema_of(tool.output_type),
        annotations=types.ToolAnnotations(
            read_only_hint=tool.is_reading,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_repeatable or tool.is_reading,
            open_world_hint=False,
        ),
    )


def _result(document: dict[str, Any]) -> types.CallToolResult:
    return types.CallToolResult(content=[_text(document)], structured_content=document)


def _error_result(error: dict[str, str]) -> types.CallToolResult:
    document = {"error": error}
    return types.CallToolResult(content=[_text(document)], structured_content=document, is_error=True)


def _text(document: dict[str, Any]) -> types.TextContent:
    """Return the structured content once more, as text for clients that read only text."""
    return types.TextContent(type="text", text=json.dumps(document, ensure_ascii=False))
