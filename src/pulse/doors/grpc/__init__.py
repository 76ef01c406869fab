"""The door for programs: the services of proto/pulse/v1/pulse.proto."""

import pulse.wire  # noqa: F401  before gRPC
