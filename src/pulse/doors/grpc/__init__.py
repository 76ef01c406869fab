"""The gRPC door: one module for each service of proto/pulse/v1/pulse.proto."""
