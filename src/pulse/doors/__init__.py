"""How do programs, people and agents reach the engine? A door translates their requests, and decides nothing itself."""
