"""How often is the same trouble told? At once, and then ever less often, so that a log is not made of one line."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST = 30.0  # seconds until it is told a second time
LONGEST = 600.0


class RepeatedWarning:
    """One kind of trouble that may last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._text = ""
        self._wait = FIRST
        self._next_at = 0.0

    def is_due(self, text: str) -> bool:
        """Whether to tell it now: when it is new, and then at intervals that double up to ten minutes."""
        now = self._clock()
        if text != self._text:
            self._text, self._wait = text, FIRST
        elif now < self._next_at:
            return False
        else:
            self._wait = min(self._wait * 2, LONGEST)
        self._next_at = now + self._wait
        return True

    def is_over(self) -> None:
        """The next one is told at once, even if it says the same."""
        self._text = ""
