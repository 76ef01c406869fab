"""Holds the command line, `pulse`, which starts all processes of Pulse."""
