"""Statements that tell the duties what there is to do, whether for jobs, schedules or alarms."""
