"""The door for programs: the services of proto/pulse/v1/pulse.proto."""
