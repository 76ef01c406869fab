"""Statements on schedules and on the log of what they fired."""
