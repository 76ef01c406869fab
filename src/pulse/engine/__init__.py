"""HOW: use cases and duties. A use case is one transaction."""
