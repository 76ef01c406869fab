"""The Postgres that Pulse brings along for development and tests."""
