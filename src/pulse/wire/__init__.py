"""Converts values of the model to messages of the gRPC contract, and back. `v1` is generated from proto/."""

import os

# Set before gRPC is loaded. By default gRPC writes a line to stderr for every server that goes away; our log has that.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
