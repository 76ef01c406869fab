"""How many rows of a page fit into one response?"""

from __future__ import annotations

from collections.abc import Iterable


def how_many_fit(sizes: Iterable[int], limit: int) -> int:
    """Return how many of these rows fit. One always does, since a response may be larger than the largest row."""
    total, number = 0, 0
    for number, size in enumerate(sizes, start=1):
        total += size
        if total > limit:
            return max(1, number - 1)
    return number
