"""How HTTP requests arrive, within which limits they are read, and which of them are refused unread."""
