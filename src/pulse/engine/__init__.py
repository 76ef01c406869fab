"""HOW: use cases and duties; one use case, one transaction."""
