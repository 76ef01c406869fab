"""Holds the command that runs a worker, and restarts it when code changes."""
