"""Holds the commands that run a server, for gRPC and HTTP or for MCP."""
