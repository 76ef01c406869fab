"""The routes of jobs over HTTP, and their JSON."""
