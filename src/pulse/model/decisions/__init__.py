"""Decisions about what happens to a schedule or an alarm next, as pure functions without any I/O."""
