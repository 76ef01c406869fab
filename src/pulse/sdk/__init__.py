"""Holds what programs import: the app, tasks, handles and the worker."""
