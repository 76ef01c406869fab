"""Holds the commands that set, show and change alarms, and show them arriving."""
