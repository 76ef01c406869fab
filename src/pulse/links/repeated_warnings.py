"""How often is the same problem logged? At once, and then less and less often, so that it does not fill the log."""

from __future__ import annotations

import time
from collections.abc import Callable

FIRST_PAUSE = 30.0  # seconds until it is logged a second time
MAX_PAUSE = 600.0


class RepeatedWarning:
    """Decides when to log a problem that may last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._text = ""
        self._pause = FIRST_PAUSE
        self._next_at = 0.0

    def is_due(self, text: str) -> bool:
        """Tell whether to log this text now: when it is new, and then at intervals that double up to ten minutes."""
        now = self._clock()
        if text != self._text:
            self._text, self._pause = text, FIRST_PAUSE
        elif now < self._next_at:
            return False
        else:
            self._pause = min(self._pause * 2, MAX_PAUSE)
        self._next_at = now + self._pause
        return True

    def reset(self) -> None:
        """Log the next text at once, even if it is the same."""
        self._text = ""
