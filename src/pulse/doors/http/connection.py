"""For how long may a connection stay open on which nobody finishes asking, or nobody reads the answer?

uvicorn closes one that is silent after an answer, but waits for ever for the first request, for the rest of a head, and
for a client to read. What is slow after its head is `Exchange`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio


class Connection(H11Protocol):
    def __init__(self, *args: Any, deadline: float, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_watch()
        self._end_watch_of_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._end_watch_of_reader()
        super().resume_writing()

    def _watch(self) -> None:
        """From the first byte of a head on, and not from the last: a byte now and then does not make it longer."""
        if self.conn.their_state is not h11.IDLE:
            self._end_watch()
        elif self._timer is None:
            self._timer = self.loop.call_later(self._deadline, self._close)

    def _end_watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Without an answer: there is no request that it would be to."""
        self._timer = None
        self.transport.close()

    def _watch_reader(self) -> None:
        """Check after the deadline that some of what waits now was read: until it is, it takes memory."""
        self._end_watch_of_reader()
        unread = self.transport.get_write_buffer_size()
        self._reader_timer = self.loop.call_later(self._deadline, self._check_reader, unread)

    def _check_reader(self, unread: int) -> None:
        if self.transport.get_write_buffer_size() < unread:
            self._watch_reader()
        else:
            self.transport.abort()

    def _end_watch_of_reader(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None
