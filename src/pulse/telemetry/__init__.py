"""How a process shows itself: traces and health."""
