"""How does the world outside reach the engine? Each door translates and calls it, and decides nothing."""
