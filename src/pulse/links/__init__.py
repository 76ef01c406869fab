"""Connects the SDK to the engine, in this process or through a server."""
