"""Where calls come in: each door translates and calls the engine, and decides nothing itself."""
