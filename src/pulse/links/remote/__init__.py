"""The client of a server, over gRPC."""
