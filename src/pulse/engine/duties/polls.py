"""How often is something that falls due looked for, where no wake-up tells of it?"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = timedelta()


class Poll:
    """The looks of one process: at every wake-up, at the instant that was found last, and else once in a tick.

    While the process listens it is told of what falls due soon, and looks whenever it is asked to.
    """

    def __init__(
        self, tick: timedelta, is_listening: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tick = tick
        self._is_listening = is_listening
        self._clock = clock
        self._next = 0.0  # on that clock
        self._is_looking = True

    def wake(self) -> None:
        """Let the next look be taken: something falls due soon."""
        self._next = 0.0

    def begin(self) -> bool:
        """Answers whether to look now."""
        self._is_looking = self._is_listening() or self._clock() >= self._next
        return self._is_looking

    def end(self, until_due: timedelta | None) -> timedelta:
        """Answers with how long until the next look, given when the next thing falls due, if a look was taken."""
        ahead = until_due if until_due is not None and until_due > AT_ONCE else timedelta.max
        if self._is_listening():
            return ahead
        now = self._clock()
        if self._is_looking:
            self._next = now + min(self._tick, ahead).total_seconds()
        return timedelta(seconds=max(0.0, self._next - now))
