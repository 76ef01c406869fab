"""How much of a page can be sent?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def how_many_fit(messages: Sequence[Any], limit: int) -> int:
    """How many of a page can be sent; one always can, since a message takes more than the largest has."""
    size = 0
    for number, message in enumerate(messages):
        size += message.ByteSize()
        if size > limit:
            return max(1, number)
    return len(messages)
