"""How much of a page can be sent?"""

from __future__ import annotations

from collections.abc import Iterable


def how_many_fit(sizes: Iterable[int], limit: int) -> int:
    """How many of a page can be sent; one always can, since a message takes more than the largest has."""
    total, number = 0, 0
    for number, size in enumerate(sizes, start=1):
        total += size
        if total > limit:
            return max(1, number - 1)
    return number
