"""How the SDK reaches the engine."""
