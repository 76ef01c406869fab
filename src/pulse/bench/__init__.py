"""Holds the scenarios of `pulse bench`, which measures how fast Pulse is on this machine."""
