"""How does the outside come in? Doors translate and call the engine; they decide nothing."""
