"""Pulse: durable jobs, schedules and alarms on nothing but Postgres."""

__version__ = "0.1.0"
