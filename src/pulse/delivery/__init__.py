"""OUT: how a wake reaches its receiver."""
