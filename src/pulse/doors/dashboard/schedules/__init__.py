"""The pages about schedules."""
