"""When, by this process's clock, did something happen at the server? Never later than it truly did.

A lease is counted from an instant on the server's clock. Its clock and ours run alike but started at different times.
If we ask at t and the server says its clock shows s, then what happened at s + x by its clock cannot have happened
before t + x by ours: so by that reckoning a lease may seem to end early, by as long as the question took, and never
late.
"""

from __future__ import annotations


class ServerClock:
    """One server's clock, in terms of time.monotonic() here."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def learn(self, *, asked_at: float, server_time: float) -> None:
        """A fresh answer counts more than an old one: clocks drift."""
        self._offset = asked_at - server_time

    def local(self, server_time: float) -> float:
        if self._offset is None:
            raise RuntimeError("nothing is known of the server's clock yet")
        return self._offset + server_time
