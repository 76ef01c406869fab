"""How does Python's garbage collector keep out of the way of a busy process?"""

import gc


def calm_collector() -> None:
    """For a process that is a worker, or a server, and nothing else. Thousands of short-lived objects a second make
    Python look for garbage a hundred times a second, and sometimes through everything that was ever imported, which
    holds a server's loop up for 18 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
