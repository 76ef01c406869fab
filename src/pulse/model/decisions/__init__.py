"""What happens next? Decisions as pure functions, without any I/O."""
