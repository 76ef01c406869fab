"""The pages about alarms."""
