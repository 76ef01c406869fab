"""When does a process look for due schedules or alarms, with and without notifications?"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

AT_ONCE = timedelta()


class Poll:
    """Decides when one process looks: after a notification, at the instant found last, and otherwise once in a tick.

    While the process listens, it is notified of what falls due soon, and looks whenever `begin` is called.
    """

    def __init__(
        self, tick: timedelta, is_listening: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tick = tick
        self._is_listening = is_listening
        self._clock = clock
        self._next = 0.0  # on that clock
        self._is_looking = True

    def reset(self) -> None:
        """Look at the next `begin`, because something falls due soon."""
        self._next = 0.0

    def begin(self) -> bool:
        """Tell whether to look now."""
        self._is_looking = self._is_listening() or self._clock() >= self._next
        return self._is_looking

    def end(self, until_due: timedelta | None) -> timedelta:
        """Return how long until the next look; `until_due` is what a look has found, and ignored if there was none."""
        ahead = until_due if until_due is not None and until_due > AT_ONCE else timedelta.max
        if self._is_listening():
            return ahead
        now = self._clock()
        if self._is_looking:
            self._next = now + min(self._tick, ahead).total_seconds()
        return timedelta(seconds=max(0.0, self._next - now))
