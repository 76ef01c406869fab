"""What travels between pulsed and its clients. `v1` is generated from proto/ and never edited."""

import os

# Before gRPC is loaded: it tells of every server that goes away, in lines of its own on stderr. So do we, in our log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
