"""How a request arrives over HTTP, in which limits it is read, and which are refused unread."""
