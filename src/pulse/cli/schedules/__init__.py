"""Holds the commands that create, show and change schedules."""
