"""Schedules over HTTP: their routes and their JSON."""
