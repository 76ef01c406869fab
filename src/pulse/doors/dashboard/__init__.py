"""IN: people, with a browser. Pages that update themselves, and the few things an operator does."""
