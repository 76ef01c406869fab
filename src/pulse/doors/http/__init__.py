"""How do curl, browsers' programs and every other language reach the engine? JSON over HTTP, one file for each noun."""
