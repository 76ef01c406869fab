"""Runs jobs in a worker process."""
