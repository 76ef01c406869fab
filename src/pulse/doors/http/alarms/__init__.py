"""The routes of alarms over HTTP, and their JSON."""
