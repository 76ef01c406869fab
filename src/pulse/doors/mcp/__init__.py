"""The MCP door, for agents: tools over the Model Context Protocol."""
