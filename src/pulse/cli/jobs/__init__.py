"""Holds the commands that find, read, cancel, replay and explain jobs."""
