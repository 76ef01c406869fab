"""How a process can be observed: traces and health."""
