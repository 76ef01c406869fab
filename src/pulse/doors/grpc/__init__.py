"""The gRPC door, for programs and workers: it serves the services of proto/pulse/v1/pulse.proto."""

import pulse.wire  # noqa: F401  sets an environment variable that gRPC reads while it is loaded
