"""WHEN: durations, cron expressions, time zones and back-off. Nothing here knows jobs, schedules or alarms."""
