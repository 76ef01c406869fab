"""Connects the SDK to a server over gRPC."""
