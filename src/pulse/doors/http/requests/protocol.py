"""For how long may a connection stay open on which nobody finishes asking, or nobody reads the answer?

uvicorn closes one that is silent after an answer, but waits for ever for the first request, for the rest of a head, and
for a client to read. What is slow after its head is `Exchange`'s.

And how much may it take of the server's time? A turn, and then the others have theirs. Of a client that cannot be
served nothing more is read: what still comes is thrown away, as it comes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from pulse.doors.http.requests.chunks import TOO_MANY, TurnedReader

if TYPE_CHECKING:
    import asyncio

LINGER = 2.0  # seconds in which a client finds its refusal, though it goes on sending
BYTES_IN_VAIN = 64 << 20  # bytes that are taken of a body whose request is answered already


class Flow(FlowControl):
    """Reads from the socket while uvicorn wants more, and we are not behind with what it has read."""

    is_held = False

    def hold(self) -> None:
        self.is_held = True
        self._transport.pause_reading()

    def release(self) -> None:
        self.is_held = False
        if not self.read_paused:
            self._transport.resume_reading()

    def resume_reading(self) -> None:
        super().resume_reading()
        if self.is_held:
            self._transport.pause_reading()


class Connection(H11Protocol):
    def __init__(self, *args: Any, deadline: float, **more: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **more)
        self.conn: TurnedReader = TurnedReader()
        self._turn: asyncio.Handle | None = None  # the next, if we are behind
        self._farewell: asyncio.TimerHandle | None = None  # once nothing more is read
        self._in_vain = 0  # bytes
        self._deadline = deadline
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow: Flow = Flow(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self._is_too_much(len(data)):
            self.transport.abort()
        elif self._farewell is None:
            super().data_received(data)
            self._watch()

    def handle_events(self) -> None:
        """As much as one turn holds, unless the next turn is coming anyhow."""
        if self._turn is None:
            self.conn.begin_turn()
            super().handle_events()
        if self.conn.is_behind:
            self._wait_for_turn()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be read, if it is not answered yet, and read no more of it."""
        if self.cycle is not None:  # nobody hears what else it says
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not self.conn.is_answered and not self.conn.is_crumbled:
            super().send_400_response(msg)
            return
        if not self.conn.is_answered:
            self._refuse(TOO_MANY)
        self._farewell = self.loop.call_later(LINGER, self.transport.close)
        self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for waiting in (self._turn, self._farewell):
            if waiting is not None:
                waiting.cancel()
        self._end_watch()
        self._end_watch_of_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._end_watch_of_reader()
        super().resume_writing()

    def _wait_for_turn(self) -> None:
        self.flow.hold()
        if self._turn is None:
            self._turn = self.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        if self._farewell is None and not self.transport.is_closing():
            self.handle_events()
            self._watch()
        if self._turn is None:
            self.flow.release()

    def _is_too_much(self, size: int) -> bool:
        """Tell whether a client has sent more after its answer than one sends that has not seen the answer yet."""
        is_sending = self.conn.their_state is h11.SEND_BODY
        is_in_vain = self._farewell is not None or (self.conn.is_answered and is_sending)
        self._in_vain = self._in_vain + size if is_in_vain else 0
        return self._in_vain > BYTES_IN_VAIN

    def _refuse(self, message: str) -> None:
        content = {"error": {"code": "too_many_chunks", "message": message, "details": {}}}
        headers = [("content-type", "application/json"), ("connection", "close"), ("cache-control", "no-store")]
        answer = h11.Response(status_code=400, headers=headers, reason="Bad Request")
        for event in (answer, h11.Data(data=json.dumps(content).encode()), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))

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
