"""When did something happen at the server, by this process's clock? Never later than it really did.

A lease counts from an instant on the server's clock, which runs as fast as ours but started at another time. If we ask
at t and the server answers that its clock shows s, then an event at s + x by its clock happened at t + x by ours or
later. Taking t + x, a lease may seem to end early, by as long as the question took, but never late.
"""

from __future__ import annotations


class ServerClock:
    """The clock of one server, relative to time.monotonic() of this process."""

    def __init__(self) -> None:
        self._offset: float | None = None

    def synchronize(self, *, asked_at: float, server_time: float) -> None:
        """Set the offset by the newest answer, because clocks drift."""
        self._offset = asked_at - server_time

    def to_local(self, server_time: float) -> float:
        if self._offset is None:
            raise RuntimeError("the server's clock must be synchronized before it is read")
        return self._offset + server_time
