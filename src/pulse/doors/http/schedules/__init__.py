"""The routes of schedules over HTTP, and their JSON."""
